// SPDX-License-Identifier: MIT OR Apache-2.0
/* (q) A loop that computes: `looper` is in burn() for 1 s and waits for nothing. Off: it computes for 5 ms. */
#include "truth.h"

int main(int argc, char **argv)
{
	struct truth truth = { .cause = "computing", .expect = "clean" };
	bool fault = truth_begin(argc, argv);
	struct actor *looper = truth.victims[0] = truth.culprits[0] = truth.chain[0] = actor_new();

	actor_enter(looper, "looper");
	window_begin(looper);
	burn(fault ? 1000 * MS : 5 * MS);
	window_end(looper);
	truth.cause_ns = ran(looper);
	return truth_end(&truth);
}

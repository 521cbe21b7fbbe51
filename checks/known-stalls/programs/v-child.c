// SPDX-License-Identifier: MIT OR Apache-2.0
/* (v) Fork, and wait for a slow child: `parent` waits for `slow-child`, which computes for 200 ms; five times. Off: it ends at once. */
#include "truth.h"

static struct actor *parent, *slow;
static bool fault;

static void be_slow(void *unused)
{
	(void)unused;
	actor_enter(slow, "slow-child");
	window_begin(slow);
	if (fault)
		burn(200 * MS);
	window_end(slow);
}

int main(int argc, char **argv)
{
	struct truth truth = { .cause = "child" };

	fault = truth_begin(argc, argv);
	parent = truth.victims[0] = truth.chain[0] = actor_new();
	slow = truth.culprits[0] = truth.chain[1] = actor_new();
	actor_enter(parent, "parent");
	for (int i = 0; i < 5; i++) {
		pid_t pid = child(be_slow, NULL);

		window_begin(parent);
		wait_for(pid);
		window_end(parent);
	}
	truth.cause_ns = overlap(parent, slow);
	return truth_end(&truth);
}

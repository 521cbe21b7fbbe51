// SPDX-License-Identifier: MIT OR Apache-2.0
/* (m) SIGSTOP from outside: `worker` computes, and `stopper`, another process, stops it for 500 ms, twice. Off: it sends signal 0. */
#include "truth.h"

#include <signal.h>

static struct actor *worker, *stopper;
static pid_t victim;
static bool fault;

static void work(void *unused)
{
	uint64_t end = now() + 1600 * MS;

	(void)unused;
	actor_enter(worker, "worker");
	while (now() < end) {
		window_begin(worker);
		burn(1 * MS);
		window_end(worker);
	}
}

static void stop(void *unused)
{
	(void)unused;
	actor_enter(stopper, "stopper");
	for (int i = 0; i < 2; i++) {
		sleep_for(200 * MS);
		window_begin(stopper);
		must(kill(victim, fault ? SIGSTOP : 0), "kill");
		if (fault)
			sleep_for(500 * MS);
		must(kill(victim, fault ? SIGCONT : 0), "kill");
		window_end(stopper);
	}
}

int main(int argc, char **argv)
{
	struct truth truth = { .cause = "stopped", .without_running = true };
	pid_t other;

	fault = truth_begin(argc, argv);
	worker = truth.victims[0] = truth.chain[0] = actor_new();
	stopper = truth.culprits[0] = truth.chain[1] = actor_new();
	victim = child(work, NULL);
	other = child(stop, NULL);
	look_for_end(other);
	look_for_end(victim);
	truth.cause_ns = overlap(worker, stopper);
	return truth_end(&truth);
}

// SPDX-License-Identifier: MIT OR Apache-2.0
/* (i) Run queue: `worker` computes for 250 ms on a CPU that it shares with three hogs. Off: they sleep. */
#include "truth.h"

static struct actor *worker, *hogs[3];
static bool fault;

static void hog(void *number)
{
	struct actor *self = hogs[(intptr_t)number];
	char comm[16];

	snprintf(comm, sizeof(comm), "hog-%d", (int)(intptr_t)number);
	actor_enter(self, comm);
	pin(0);
	if (!fault)
		sleep_for(20000 * MS);
	burn(20000 * MS);
}

static void work(void *unused)
{
	(void)unused;
	actor_enter(worker, "worker");
	pin(0);
	for (int i = 0; i < 25; i++) {
		window_begin(worker);
		burn(10 * MS);
		window_end(worker);
	}
}

int main(int argc, char **argv)
{
	struct truth truth = { .cause = "run-queue", .without_running = true };
	pid_t others[3];

	fault = truth_begin(argc, argv);
	worker = truth.victims[0] = truth.chain[0] = actor_new();
	for (intptr_t i = 0; i < 3; i++) {
		hogs[i] = truth.culprits[i] = actor_new();
		others[i] = child(hog, (void *)i);
	}
	truth.chain[1] = hogs[0];
	sleep_for(50 * MS);
	look_for_end(child(work, NULL));
	for (int i = 0; i < 3; i++)
		kill_and_wait(others[i]);
	truth.cause_ns = queued(worker);
	return truth_end(&truth);
}

// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * (j) A System V semaphore whose holder is nice: `clerk` wants it, `batch` holds it at nice 19 for 1 ms of CPU and waits for the
 * CPU meanwhile, on which `hog` computes for 60 ms of 61. Off: the hog sleeps.
 */
#include "../programs/truth.h"

#include <sched.h>
#include <sys/ipc.h>
#include <sys/resource.h>
#include <sys/sem.h>

static struct actor *clerk, *batch, *hog;
static bool fault;
static bool *done;
static int semaphore;

static void add(int value)
{
	must(semop(semaphore, &(struct sembuf){ .sem_op = value }, 1), "semop");
}

static void hold(void *unused)
{
	(void)unused;
	actor_enter(batch, "batch");
	pin(0);
	if (fault)
		must(setpriority(PRIO_PROCESS, 0, 19), "setpriority");
	while (!__atomic_load_n(done, __ATOMIC_RELAXED)) {
		add(-1);
		window_begin(batch);
		burn(1 * MS);
		window_end(batch);
		add(1);
		sleep_for(30 * MS);
	}
}

static void compute(void *unused)
{
	(void)unused;
	actor_enter(hog, "hog");
	pin(0);
	while (!__atomic_load_n(done, __ATOMIC_RELAXED)) {
		window_begin(hog);
		if (fault)
			burn(60 * MS);
		window_end(hog);
		sleep_for(1 * MS);
	}
}

static void want(void *unused)
{
	uint64_t end = now() + 2800 * MS;

	(void)unused;
	actor_enter(clerk, "clerk");
	while (now() < end) {
		window_begin(clerk);
		add(-1);
		window_end(clerk);
		add(1);
		sleep_for(3 * MS);
	}
	__atomic_store_n(done, true, __ATOMIC_RELAXED);
}

int main(int argc, char **argv)
{
	struct truth truth = { .cause = "run-queue" };
	pid_t others[2];

	fault = truth_begin(argc, argv);
	/* The semaphore ends with the namespace. */
	if (unshare(CLONE_NEWIPC) < 0)
		skip("cannot make an IPC namespace: %s", strerror(errno));
	semaphore = must(semget(IPC_PRIVATE, 1, 0600), "semget");
	add(1);
	done = shared(sizeof(*done));
	clerk = truth.victims[0] = truth.chain[0] = actor_new();
	batch = truth.chain[1] = actor_new();
	hog = truth.culprits[0] = truth.chain[2] = actor_new();
	others[0] = child(hold, NULL);
	others[1] = child(compute, NULL);
	look_for_end(child(want, NULL));
	for (int i = 0; i < 2; i++)
		look_for_end(others[i]);
	/* How long the holder was on a run queue while the clerk waited for it. */
	truth.cause_ns = overlap(clerk, batch);
	if (truth.cause_ns > queued(batch))
		truth.cause_ns = queued(batch);
	return truth_end(&truth);
}

// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * (3) A barrier that one reaches late: two processes compute for 5 ms a round and wait at a barrier for `straggler`, which
 * computes for 10 ms and may run for 10 ms of each 100 ms. The cause is their waiting while it was off for 5 ms or more at a
 * time, at most what cpu.stat says for each. Off: no quota.
 */
#include "../programs/truth.h"

#define ROUNDS 15

static struct actor *workers[2], *straggler;
static pthread_barrier_t *barrier;
static struct group group;

static void be_worker(void *number)
{
	struct actor *self = workers[(intptr_t)number];
	char comm[16];

	snprintf(comm, sizeof(comm), "worker-%d", (int)(intptr_t)number);
	actor_enter(self, comm);
	for (int round = 0; round < ROUNDS; round++) {
		burn(5 * MS);
		window_begin(self);
		pthread_barrier_wait(barrier);
		window_end(self);
	}
}

static void straggle(void *unused)
{
	(void)unused;
	actor_enter(straggler, "straggler");
	group_join(&group);
	for (int round = 0; round < ROUNDS; round++) {
		for (int piece = 0; piece < 20; piece++) {
			window_begin(straggler);
			burn(MS / 2);
			/* What was not throttled is no window of its. */
			if (window_end(straggler) < 5 * MS)
				straggler->count--;
		}
		pthread_barrier_wait(barrier);
	}
}

int main(int argc, char **argv)
{
	struct truth truth = { .cause = "cpu-quota" };
	pthread_barrierattr_t attributes;
	bool fault = truth_begin(argc, argv);
	uint64_t throttled;
	pid_t others[3];

	barrier = shared(sizeof(*barrier));
	pthread_barrierattr_init(&attributes);
	pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(barrier, &attributes, 3);
	for (int i = 0; i < 2; i++)
		workers[i] = truth.victims[i] = actor_new();
	truth.chain[0] = workers[0];
	straggler = truth.culprits[0] = truth.chain[1] = actor_new();
	group = group_new("cpu");
	group_write(&group, group.unified ? "cpu.weight" : "cpu.shares", group.unified ? "10000" : "262144");
	if (fault && group.unified) {
		group_write(&group, "cpu.max", "10000 100000");
	} else if (fault) {
		group_write(&group, "cpu.cfs_period_us", "100000");
		group_write(&group, "cpu.cfs_quota_us", "10000");
	}
	truth.outside = group.path;
	others[2] = child(straggle, NULL);
	for (intptr_t i = 0; i < 2; i++)
		others[i] = child(be_worker, (void *)i);
	for (int i = 0; i < 3; i++)
		look_for_end(others[i]);
	throttled = group.unified ? group_read(&group, "cpu.stat", "throttled_usec ") * 1000 :
				    group_read(&group, "cpu.stat", "throttled_time ");
	for (int i = 0; i < 2; i++) {
		uint64_t both = overlap(workers[i], straggler);

		truth.cause_ns += both < throttled ? both : throttled;
	}
	return truth_end(&truth);
}

// SPDX-License-Identifier: MIT OR Apache-2.0
/* (h) CPU quota: `worker` may run 10 ms of each 100 ms and computes for 150 ms. The cause is measured by cpu.stat. Off: no quota. */
#include "truth.h"

static struct actor *worker;
static struct group group;

static void work(void *unused)
{
	(void)unused;
	actor_enter(worker, "worker");
	pin(0);
	group_join(&group);
	for (int i = 0; i < 150; i++) {
		window_begin(worker);
		burn(1 * MS);
		window_end(worker);
	}
}

int main(int argc, char **argv)
{
	struct truth truth = { .cause = "cpu-quota", .without_running = true };
	bool fault = truth_begin(argc, argv);

	worker = truth.victims[0] = truth.chain[0] = actor_new();
	group = group_new("cpu");
	group_write(&group, group.unified ? "cpu.weight" : "cpu.shares", group.unified ? "10000" : "262144");
	if (fault && group.unified) {
		group_write(&group, "cpu.max", "10000 100000");
	} else if (fault) {
		group_write(&group, "cpu.cfs_period_us", "100000");
		group_write(&group, "cpu.cfs_quota_us", "10000");
	}
	truth.outside = group.path;
	look_for_end(child(work, NULL));
	truth.cause_ns = group.unified ? group_read(&group, "cpu.stat", "throttled_usec ") * 1000 :
					 group_read(&group, "cpu.stat", "throttled_time ");
	return truth_end(&truth);
}

// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * (o) A budget that is too small: `controller`, a control loop under SCHED_DEADLINE, needs 25 ms of CPU for a step and has been given
 * 10 ms of each 100 ms. When they are spent, the kernel lets it not run before the next period. Off: it has 60 ms of each 100 ms.
 */
#include "../programs/truth.h"

#include <sys/syscall.h>

/* As in linux/sched/types.h, which some C libraries have a struct of the same name beside. */
struct attributes {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime, deadline, period;
};

static struct actor *controller;
static bool fault;

static void control(void *unused)
{
	struct attributes deadline = {
		.size = sizeof(deadline),
		.policy = 6, /* SCHED_DEADLINE */
		.runtime = (fault ? 10 : 60) * MS,
		.deadline = 100 * MS,
		.period = 100 * MS,
	};

	(void)unused;
	actor_enter(controller, "controller");
	if (syscall(SYS_sched_setattr, 0, &deadline, 0) < 0)
		skip("SCHED_DEADLINE is not to be had: %s", strerror(errno));
	for (int i = 0; i < 8; i++) {
		window_begin(controller);
		burn(25 * MS);
		window_end(controller);
		sleep_for(20 * MS);
	}
}

int main(int argc, char **argv)
{
	struct truth truth = { .cause = "cpu-quota", .outside = "SCHED_DEADLINE", .without_running = true };

	fault = truth_begin(argc, argv);
	controller = truth.victims[0] = truth.chain[0] = actor_new();
	look_for_end(child(control, NULL));
	/* Nothing has the CPU before a thread of this class but another of it. */
	truth.cause_ns = without(lost(controller), ran(controller));
	return truth_end(&truth);
}

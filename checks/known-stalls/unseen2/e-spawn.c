// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * (e) posix_spawn's clone: `spawner` sleeps in the kernel until its child has a memory of its own or is gone (CLONE_VFORK).
 * The child, `spawned`, closes all file descriptors that there could be before it would exec. Off: it closes none.
 */
#include "../programs/truth.h"

#include <sched.h>
#include <sys/wait.h>

static struct actor *spawner, *spawned;
static bool fault;

static int before_exec(void *unused)
{
	(void)unused;
	actor_enter(spawned, "spawned");
	window_begin(spawned);
	for (uint64_t end = now() + 40 * MS; fault && now() < end;)
		for (int fd = 100000; fd < 101000; fd++)
			close(fd);
	window_end(spawned);
	_exit(0);
}

static void spawn(void *unused)
{
	static char stack[64 * 1024] __attribute__((aligned(16)));

	(void)unused;
	actor_enter(spawner, "spawner");
	for (int i = 0; i < 20; i++) {
		pid_t pid;

		window_begin(spawner);
		pid = must(clone(before_exec, stack + sizeof(stack), CLONE_VM | CLONE_VFORK | SIGCHLD, NULL), "clone");
		window_end(spawner);
		must(waitpid(pid, NULL, 0), "waitpid");
		sleep_for(20 * MS);
	}
}

int main(int argc, char **argv)
{
	struct truth truth = { .cause = "child" };

	fault = truth_begin(argc, argv);
	spawner = truth.victims[0] = truth.chain[0] = actor_new();
	spawned = truth.culprits[0] = truth.chain[1] = actor_new();
	look_for_end(child(spawn, NULL));
	truth.cause_ns = without(overlap(spawner, spawned), queued(spawned));
	return truth_end(&truth);
}

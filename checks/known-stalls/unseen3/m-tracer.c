// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * (m) Somebody left strace on: `tracer` (PTRACE_SEIZE) stops `service` at each call and takes 20 ms to print each write. The service
 * is in a ptrace stop for as long. Off: it goes on at once.
 */
#include "../programs/truth.h"

#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static struct actor *service, *tracer;
static uint32_t *traced;
static bool fault;

static void serve(void *unused)
{
	int fd = must(open("/dev/null", O_WRONLY | O_CLOEXEC), "/dev/null");

	(void)unused;
	actor_enter(service, "service");
	await(traced);
	for (int i = 0; i < 50; i++) {
		window_begin(service);
		must(write(fd, "answer\n", 7), "write");
		window_end(service);
		sleep_for(6 * MS);
	}
}

static void trace(void *who)
{
	pid_t pid = (intptr_t)who;
	int status;

	actor_enter(tracer, "tracer");
	if (ptrace(PTRACE_SEIZE, pid, 0, PTRACE_O_TRACESYSGOOD) < 0)
		skip("ptrace: %s", strerror(errno));
	must(ptrace(PTRACE_INTERRUPT, pid, 0, 0), "PTRACE_INTERRUPT");
	post(traced);
	while (must(waitpid(pid, &status, __WALL), "waitpid") == pid && WIFSTOPPED(status)) {
		struct __ptrace_syscall_info info = { 0 };
		int signal_number = WSTOPSIG(status);

		if (signal_number == (SIGTRAP | 0x80)) {
			must(ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof(info), &info), "PTRACE_GET_SYSCALL_INFO");
			if (info.op == PTRACE_SYSCALL_INFO_ENTRY && info.entry.nr == SYS_write) {
				window_begin(tracer);
				if (fault)
					burn(20 * MS);
				window_end(tracer);
			}
			signal_number = 0;
		} else if (status >> 16) {
			signal_number = 0;
		}
		must(ptrace(PTRACE_SYSCALL, pid, 0, signal_number), "PTRACE_SYSCALL");
	}
}

int main(int argc, char **argv)
{
	struct truth truth = { .cause = "stopped" };
	pid_t serves, traces;

	fault = truth_begin(argc, argv);
	traced = shared(4);
	service = truth.victims[0] = truth.chain[0] = actor_new();
	tracer = truth.culprits[0] = truth.chain[1] = actor_new();
	serves = child(serve, NULL);
	traces = child(trace, (void *)(intptr_t)serves);
	look_for_end(serves);
	look_for_end(traces);
	truth.cause_ns = overlap(service, tracer);
	return truth_end(&truth);
}

// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * (b) Time to safepoint: `gc` stops all threads by a signal whose handler waits on a futex, each 60 ms. The mutators stop at
 * once; `native` computes for 40 ms with the signal blocked, again and again. Off: it does not block the signal.
 */
#include "../programs/truth.h"

#include <linux/futex.h>
#include <signal.h>
#include <sys/syscall.h>

#define ROUNDS 25

static struct actor *gc, *native, *mutators[2];
static __thread struct actor *self;
static bool fault, done;
/* Rounds that were asked for, and that are over. */
static uint32_t asked, over;
static uint32_t stopped;
static uint64_t asked_at, delay_at;
static uint64_t native_queued;

static long futex(uint32_t *word, int operation, uint32_t value)
{
	return syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
}

static void safepoint(int signal_number)
{
	uint32_t round = __atomic_load_n(&asked, __ATOMIC_ACQUIRE);
	int error = errno;

	(void)signal_number;
	if (self == native) {
		/* Its window is the time that all others wait for it. */
		struct window *window = &native->window[native->count];

		window->begin = asked_at;
		window->end = now();
		native_queued += run_delay(native) - delay_at;
		native->count++;
	} else {
		window_begin(self);
	}
	__atomic_add_fetch(&stopped, 1, __ATOMIC_SEQ_CST);
	futex(&stopped, FUTEX_WAKE, 1);
	while (__atomic_load_n(&over, __ATOMIC_ACQUIRE) != round)
		futex(&over, FUTEX_WAIT, round - 1);
	if (self != native)
		window_end(self);
	errno = error;
}

static void *compute(void *unused)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	self = native;
	actor_enter(native, "native");
	pin(0);
	while (!__atomic_load_n(&done, __ATOMIC_RELAXED)) {
		pthread_sigmask(fault ? SIG_BLOCK : SIG_UNBLOCK, &set, NULL);
		burn(40 * MS);
		pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	}
	return unused;
}

static void *mutate(void *number)
{
	char comm[16];

	self = mutators[(intptr_t)number];
	snprintf(comm, sizeof(comm), "mutator-%d", (int)(intptr_t)number);
	actor_enter(self, comm);
	pin(1);
	while (!__atomic_load_n(&done, __ATOMIC_RELAXED)) {
		burn(MS / 2);
		sleep_for(4 * MS);
	}
	return NULL;
}

static void *collect(void *unused)
{
	struct actor *all[] = { mutators[0], mutators[1], native };

	actor_enter(gc, "gc");
	pin(1);
	for (int round = 1; round <= ROUNDS; round++) {
		uint32_t count;

		sleep_for(60 * MS);
		__atomic_store_n(&stopped, 0, __ATOMIC_SEQ_CST);
		delay_at = run_delay(native);
		asked_at = now();
		__atomic_store_n(&asked, round, __ATOMIC_RELEASE);
		for (int i = 0; i < 3; i++)
			must(syscall(SYS_tgkill, getpid(), all[i]->tid, SIGUSR2), "tgkill");
		while ((count = __atomic_load_n(&stopped, __ATOMIC_SEQ_CST)) < 3)
			futex(&stopped, FUTEX_WAIT, count);
		burn(MS / 10);
		__atomic_store_n(&over, round, __ATOMIC_RELEASE);
		futex(&over, FUTEX_WAKE, 100);
	}
	__atomic_store_n(&done, true, __ATOMIC_RELAXED);
	return unused;
}

int main(int argc, char **argv)
{
	struct truth truth = { .cause = "server" };
	struct sigaction action = { .sa_handler = safepoint, .sa_flags = SA_RESTART };
	pthread_t threads[4];

	fault = truth_begin(argc, argv);
	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		skip("needs two CPUs");
	must(sigaction(SIGUSR2, &action, NULL), "sigaction");
	gc = truth.chain[1] = actor_new();
	native = truth.culprits[0] = truth.chain[2] = actor_new();
	for (int i = 0; i < 2; i++)
		mutators[i] = truth.victims[i] = actor_new();
	truth.chain[0] = mutators[0];
	threads[0] = thread(compute, NULL);
	for (intptr_t i = 0; i < 2; i++)
		threads[i + 1] = thread(mutate, (void *)i);
	while (!__atomic_load_n(&native->tid, __ATOMIC_RELAXED) || !__atomic_load_n(&mutators[0]->tid, __ATOMIC_RELAXED) ||
	       !__atomic_load_n(&mutators[1]->tid, __ATOMIC_RELAXED))
		sleep_for(1 * MS);
	sleep_for(20 * MS);
	threads[3] = thread(collect, NULL);
	for (int i = 0; i < 4; i++)
		join(threads[i]);
	/* `native` may wait for a CPU on a busy machine: that is another cause. */
	for (int i = 0; i < 2; i++)
		truth.cause_ns += without(overlap(mutators[i], native), native_queued);
	return truth_end(&truth);
}

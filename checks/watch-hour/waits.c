/*
 * Waits for a while in one way, and measures that itself: argv[1] is the way, argv[2] the seconds.
 *
 * Prints, for each call in which it waited: its name, how often it slept in it, and how long the calls took together, in nanoseconds. A call
 * that did not sleep (getrusage(2), nvcsw) counts by its time alone. So does time without a CPU after a sleep: it is in the call, too.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct sum {
	const char *call;
	long slept;
	int64_t ns;
};

static struct sum sleeps = { "clock_nanosleep" }, waits;
static int ends[2], event;
static _Atomic uint32_t word;
static atomic_int over;
static const char *way;

static int64_t now(void)
{
	struct timespec at;
	clock_gettime(CLOCK_MONOTONIC, &at);
	return at.tv_sec * 1000000000LL + at.tv_nsec;
}

static long switches(void)
{
	struct rusage usage;
	getrusage(RUSAGE_THREAD, &usage);
	return usage.ru_nvcsw;
}

/* Carries `what` out, and adds to `sum` what it took. */
#define MEASURED(sum, what) do {                \
		long before = switches();       \
		int64_t begin = now();          \
		what;                           \
		(sum).ns += now() - begin;      \
		(sum).slept += switches() - before; \
	} while (0)

/* 2 to 14 ms. */
static void naps(unsigned *seed)
{
	struct timespec length = { 0, 2000000 + rand_r(seed) % 12000000 };
	MEASURED(sleeps, clock_nanosleep(CLOCK_MONOTONIC, 0, &length, NULL));
}

static void waits_once(void)
{
	uint64_t got;
	struct pollfd fd = { event, POLLIN, 0 };
	char byte;
	if (!strcmp(way, "read")) {
		MEASURED(waits, if (read(ends[0], &byte, 1) != 1) abort());
	} else if (!strcmp(way, "futex")) {
		uint32_t seen = atomic_load(&word);
		MEASURED(waits, syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0));
	} else {
		MEASURED(waits, poll(&fd, 1, -1));
		if (read(event, &got, sizeof got) != sizeof got)
			abort();
	}
}

static void wakes(void)
{
	uint64_t one = 1;
	if (!strcmp(way, "read")) {
		if (write(ends[1], "x", 1) != 1)
			abort();
	} else if (!strcmp(way, "futex")) {
		atomic_fetch_add(&word, 1);
		syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
	} else if (write(event, &one, sizeof one) != sizeof one) {
		abort();
	}
}

static void *waiter(void *unused)
{
	while (!atomic_load(&over))
		waits_once();
	return unused;
}

int main(int argc, char **argv)
{
	unsigned seed = 7;
	pthread_t thread;
	if (argc != 3)
		return 2;
	way = argv[1];
	waits.call = strcmp(way, "nap") ? way : NULL;
	int64_t end = now() + atoi(argv[2]) * 1000000000LL;
	event = eventfd(0, 0);
	if (pipe(ends) || (waits.call && pthread_create(&thread, NULL, waiter, NULL)))
		return 1;
	while (now() < end) {
		naps(&seed);
		if (waits.call)
			wakes();
	}
	/* The last wait is over before the sums are read; no pthread_join, which waits in futex, too. */
	atomic_store(&over, 1);
	if (waits.call) {
		naps(&seed);
		wakes();
		naps(&seed);
		naps(&seed);
	}
	printf("%s %ld %lld\n", sleeps.call, sleeps.slept, (long long)sleeps.ns);
	if (waits.call)
		printf("%s %ld %lld\n", waits.call, waits.slept, (long long)waits.ns);
	return 0;
}

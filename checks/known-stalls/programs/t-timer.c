// SPDX-License-Identifier: MIT OR Apache-2.0
/* (t) A timer that `ticker` sleeps on by design, 100 ms each, and one that `napper` sleeps by nanosleep. Idle, no stall. Off: nobody sleeps. */
#include "truth.h"

#include <sys/timerfd.h>

static struct actor *ticker, *napper;
static bool fault;

static void *tick(void *unused)
{
	struct itimerspec period = { { 0, 100 * MS }, { 0, 100 * MS } };
	int fd = must(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC), "timerfd_create");
	uint64_t ticks;

	actor_enter(ticker, "ticker");
	must(timerfd_settime(fd, 0, &period, NULL), "timerfd_settime");
	for (int i = 0; i < (fault ? 15 : 0); i++) {
		window_begin(ticker);
		must(read(fd, &ticks, sizeof(ticks)), "read");
		window_end(ticker);
		burn(1 * MS);
	}
	return unused;
}

static void *nap(void *unused)
{
	actor_enter(napper, "napper");
	for (int i = 0; i < (fault ? 15 : 0); i++) {
		window_begin(napper);
		sleep_for(100 * MS);
		window_end(napper);
		burn(1 * MS);
	}
	return unused;
}

int main(int argc, char **argv)
{
	struct truth truth = { .cause = "idle", .expect = "clean" };
	pthread_t threads[2];

	fault = truth_begin(argc, argv);
	ticker = truth.victims[0] = actor_new();
	napper = truth.victims[1] = actor_new();
	threads[0] = thread(tick, NULL);
	threads[1] = thread(nap, NULL);
	join(threads[0]);
	join(threads[1]);
	truth.cause_ns = slept(ticker) + slept(napper);
	return truth_end(&truth);
}

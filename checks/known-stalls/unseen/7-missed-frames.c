// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * (7) Missed frames: `compositor` wakes by a timerfd 60 times a second, takes the scene's lock and draws for 1 ms; `loader`
 * holds that lock while it reads 40 MiB of a file past the page cache, 64 KiB at a time, then sleeps for 30 ms. The cause is
 * the compositor's waiting while the loader read, in the share for which the loader was asleep. Off: the pages are there.
 */
#include "../programs/truth.h"

#include <sys/timerfd.h>

#define FILE_BYTES (128 * MIB)
#define PIECE 65536
#define PIECES 640

static pthread_mutex_t scene = PTHREAD_MUTEX_INITIALIZER;
static struct actor *compositor, *loader;
static bool fault, done;
static int fd;

static void read_pieces(uint64_t offset)
{
	static char __attribute__((aligned(4096))) piece[PIECE];

	for (int i = 0; i < PIECES; i++)
		must(pread(fd, piece, PIECE, (offset + i * PIECE) % FILE_BYTES), "pread");
}

static void *load(void *unused)
{
	actor_enter(loader, "loader");
	for (uint64_t offset = 0; !__atomic_load_n(&done, __ATOMIC_RELAXED); offset += PIECES * PIECE) {
		if (!fault)
			read_pieces(offset);
		pthread_mutex_lock(&scene);
		window_begin(loader);
		read_pieces(offset);
		window_end(loader);
		pthread_mutex_unlock(&scene);
		sleep_for(30 * MS);
	}
	return unused;
}

static void *compose(void *unused)
{
	struct itimerspec period = { { 0, 16666667 }, { 0, 16666667 } };
	int timer = must(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC), "timerfd_create");
	uint64_t end = now() + 2500 * MS, ticks;

	actor_enter(compositor, "compositor");
	must(timerfd_settime(timer, 0, &period, NULL), "timerfd_settime");
	while (now() < end) {
		must(read(timer, &ticks, sizeof(ticks)), "read");
		window_begin(compositor);
		pthread_mutex_lock(&scene);
		burn(1 * MS);
		pthread_mutex_unlock(&scene);
		window_end(compositor);
	}
	__atomic_store_n(&done, true, __ATOMIC_RELAXED);
	return unused;
}

int main(int argc, char **argv)
{
	struct truth truth = { .cause = "disk-read", .outside = "disk", .without_running = true };
	pthread_t threads[2];

	fault = truth_begin(argc, argv);
	fd = must(open(prepared_file("cold", FILE_BYTES), O_RDONLY | O_CLOEXEC | (fault ? O_DIRECT : 0)), "cold");
	compositor = truth.victims[0] = truth.chain[0] = actor_new();
	loader = truth.culprits[0] = truth.chain[1] = actor_new();
	threads[0] = thread(load, NULL);
	threads[1] = thread(compose, NULL);
	join(threads[0]);
	join(threads[1]);
	truth.cause_ns = (double)overlap(compositor, loader) * slept(loader) / lost(loader);
	return truth_end(&truth);
}

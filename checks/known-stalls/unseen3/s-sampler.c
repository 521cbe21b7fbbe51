// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * (s) A sampler that streams from disk: `audio` (SCHED_FIFO) takes a mutex with priority inheritance for each period; `loader` keeps it
 * while it reads 64 cold pieces of 64 KiB of the samples. The loader's time asleep, by its CPU time and run queue, is the cause's share of
 * their overlap. Off: it reads before it takes the mutex.
 */
#include "../programs/truth.h"

#include <sched.h>

#define SIZE (256 * MIB)
#define PIECE (64 * 1024)

static pthread_mutex_t voices;
static struct actor *audio, *loader;
static bool fault, done;
static int fd;

static void read_samples(uint32_t *seed)
{
	static char piece[PIECE];

	for (int i = 0; i < 64; i++) {
		*seed = *seed * 1664525 + 1013904223;
		must(pread(fd, piece, PIECE, (off_t)(*seed >> 8) % (SIZE / PIECE) * PIECE), "pread");
	}
}

static void *load(void *unused)
{
	uint64_t end = now() + 2000 * MS;
	uint32_t seed = 17;

	actor_enter(loader, "loader");
	while (now() < end) {
		if (!fault)
			read_samples(&seed);
		pthread_mutex_lock(&voices);
		window_begin(loader);
		if (fault)
			read_samples(&seed);
		window_end(loader);
		pthread_mutex_unlock(&voices);
		/* Now and then it forgets all, so that pages are cold again. */
		posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
		sleep_for(3 * MS);
	}
	__atomic_store_n(&done, true, __ATOMIC_RELAXED);
	return unused;
}

static void *play(void *unused)
{
	struct sched_param priority = { .sched_priority = 20 };

	actor_enter(audio, "audio");
	if (pthread_setschedparam(pthread_self(), SCHED_FIFO, &priority) != 0)
		skip("no SCHED_FIFO here");
	while (!__atomic_load_n(&done, __ATOMIC_RELAXED)) {
		window_begin(audio);
		pthread_mutex_lock(&voices);
		window_end(audio);
		pthread_mutex_unlock(&voices);
		sleep_for(3 * MS);
	}
	return unused;
}

int main(int argc, char **argv)
{
	struct truth truth = { .cause = "disk-read", .outside = "disk" };
	pthread_mutexattr_t inherits;
	pthread_t threads[2];
	uint64_t both, all;

	fault = truth_begin(argc, argv);
	fd = must(open(prepared_file("samples", SIZE), O_RDONLY | O_CLOEXEC), "samples");
	posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	pthread_mutexattr_init(&inherits);
	pthread_mutexattr_setprotocol(&inherits, PTHREAD_PRIO_INHERIT);
	pthread_mutex_init(&voices, &inherits);
	audio = truth.victims[0] = truth.chain[0] = actor_new();
	loader = truth.culprits[0] = truth.chain[1] = actor_new();
	threads[0] = thread(load, NULL);
	threads[1] = thread(play, NULL);
	for (int i = 0; i < 2; i++)
		join(threads[i]);
	both = overlap(audio, loader);
	all = lost(loader);
	truth.cause_ns = all ? (uint64_t)((double)both * slept(loader) / all) : 0;
	return truth_end(&truth);
}

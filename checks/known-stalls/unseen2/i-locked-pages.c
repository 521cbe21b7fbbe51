// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * (i) mlock of 192 MiB: `loader` fills the pages with the process's mmap_lock held, `ui`, a thread of the same process, maps
 * and unmaps 64 KiB. Off: the loader is another process.
 */
#include "../programs/truth.h"

#include <sys/mman.h>

#define BYTES (192 * MIB)

static struct actor *ui, *loader;
static bool *done;

static void *map(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		fail("mmap: %s", strerror(errno));
	return memory;
}

static void *load(void *unused)
{
	actor_enter(loader, "loader");
	for (int i = 0; i < 14; i++) {
		char *pages = map(BYTES);

		/* Where there are no huge pages, it changes nothing. */
		madvise(pages, BYTES, MADV_NOHUGEPAGE);
		window_begin(loader);
		if (mlock(pages, BYTES) < 0)
			skip("mlock of %llu bytes: %s", BYTES, strerror(errno));
		window_end(loader);
		window_begin(loader);
		must(munmap(pages, BYTES), "munmap");
		window_end(loader);
		sleep_for(10 * MS);
	}
	__atomic_store_n(done, true, __ATOMIC_RELAXED);
	return unused;
}

static void load_apart(void *unused)
{
	load(unused);
}

static void *show(void *unused)
{
	actor_enter(ui, "ui");
	while (!__atomic_load_n(done, __ATOMIC_RELAXED)) {
		void *memory;

		window_begin(ui);
		memory = map(64 * 1024);
		window_end(ui);
		window_begin(ui);
		must(munmap(memory, 64 * 1024), "munmap");
		window_end(ui);
		sleep_for(2 * MS);
	}
	return unused;
}

int main(int argc, char **argv)
{
	struct truth truth = { .cause = "mmap_lock" };
	bool fault = truth_begin(argc, argv);
	pthread_t threads[2];
	pid_t other = 0;

	done = shared(sizeof(*done));
	ui = truth.victims[0] = truth.chain[0] = actor_new();
	loader = truth.culprits[0] = truth.chain[1] = actor_new();
	if (fault)
		threads[1] = thread(load, NULL);
	else
		other = child(load_apart, NULL);
	threads[0] = thread(show, NULL);
	join(threads[0]);
	if (fault)
		join(threads[1]);
	else
		look_for_end(other);
	truth.cause_ns = without(overlap(ui, loader), queued(loader));
	return truth_end(&truth);
}

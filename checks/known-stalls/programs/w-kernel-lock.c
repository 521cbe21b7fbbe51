// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * (w) A lock of the kernel: `bulk` writes 256 MiB to a file in memory by one call, which holds the inode's lock; `small`
 * writes one byte to the same file. Off: to another file.
 */
#include "truth.h"

#include <sys/mman.h>
#include <sys/uio.h>

#define PIECES 256

static struct actor *bulk, *small;
static int file, other;
static bool fault, done;

static void *write_bulk(void *unused)
{
	static char data[MIB];
	struct iovec pieces[PIECES];
	uint64_t end = now() + 1500 * MS;

	memset(data, 1, sizeof(data));
	for (int i = 0; i < PIECES; i++)
		pieces[i] = (struct iovec){ data, sizeof(data) };
	actor_enter(bulk, "bulk");
	while (now() < end) {
		window_begin(bulk);
		must(pwritev(file, pieces, PIECES, 0), "pwritev");
		window_end(bulk);
		sleep_for(5 * MS);
	}
	__atomic_store_n(&done, true, __ATOMIC_RELAXED);
	return unused;
}

static void *write_small(void *unused)
{
	actor_enter(small, "small");
	while (!__atomic_load_n(&done, __ATOMIC_RELAXED)) {
		window_begin(small);
		must(pwrite(fault ? file : other, "x", 1, 0), "pwrite");
		window_end(small);
		sleep_for(2 * MS);
	}
	return unused;
}

int main(int argc, char **argv)
{
	struct truth truth = { .cause = "kernel-lock" };
	pthread_t threads[2];

	fault = truth_begin(argc, argv);
	file = must(memfd_create("file", MFD_CLOEXEC), "memfd_create");
	other = must(memfd_create("other", MFD_CLOEXEC), "memfd_create");
	small = truth.victims[0] = truth.chain[0] = actor_new();
	bulk = truth.culprits[0] = truth.chain[1] = actor_new();
	threads[0] = thread(write_bulk, NULL);
	threads[1] = thread(write_small, NULL);
	join(threads[0]);
	join(threads[1]);
	truth.cause_ns = fault ? overlap(small, bulk) : 0;
	return truth_end(&truth);
}

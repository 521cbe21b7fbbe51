// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * (l) mmap_lock: `protector` changes the protection of a large populated mapping, which holds the lock for writing;
 * `faulter` gives pages of the same mapping up and touches them. Page tables make the call long, not memory: 2 MiB are
 * mapped again and again. Off: the protector changes one page.
 */
#include "truth.h"

#include <sys/mman.h>

#define PIECE (2 * MIB)
#define PIECES 3072

static struct actor *protector, *faulter;
static char *base;
static bool fault, done;

static void *protect(void *unused)
{
	uint64_t end = now() + 1800 * MS;

	actor_enter(protector, "protector");
	for (int i = 0; now() < end; i++) {
		window_begin(protector);
		must(mprotect(base, fault ? PIECES * PIECE : 4096, i % 2 ? PROT_READ | PROT_WRITE : PROT_READ), "mprotect");
		window_end(protector);
		sleep_for(3 * MS);
	}
	__atomic_store_n(&done, true, __ATOMIC_RELAXED);
	return unused;
}

static void *touch(void *unused)
{
	/* The middle of it: the lock on the mapping itself is held until the whole call ends. */
	volatile char *pages = base + PIECES / 2 * PIECE;

	actor_enter(faulter, "faulter");
	while (!__atomic_load_n(&done, __ATOMIC_RELAXED)) {
		window_begin(faulter);
		madvise((char *)pages, 64 * 4096, MADV_DONTNEED);
		for (int i = 0; i < 64; i++)
			(void)pages[i * 4096];
		window_end(faulter);
		sleep_for(1 * MS);
	}
	return unused;
}

int main(int argc, char **argv)
{
	struct truth truth = { .cause = "mmap_lock" };
	pthread_t threads[2];
	int fd = memfd_create("piece", MFD_CLOEXEC);

	fault = truth_begin(argc, argv);
	must(fd, "memfd_create");
	must(ftruncate(fd, PIECE), "ftruncate");
	base = mmap(NULL, PIECES * PIECE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (base == MAP_FAILED)
		fail("mmap");
	for (uint64_t i = 0; i < PIECES; i++)
		if (mmap(base + i * PIECE, PIECE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE, fd, 0) == MAP_FAILED)
			fail("mmap of piece %d: %s", (int)i, strerror(errno));
	protector = truth.culprits[0] = truth.chain[1] = actor_new();
	faulter = truth.victims[0] = truth.chain[0] = actor_new();
	threads[0] = thread(protect, NULL);
	threads[1] = thread(touch, NULL);
	join(threads[0]);
	join(threads[1]);
	truth.cause_ns = overlap(faulter, protector);
	return truth_end(&truth);
}

// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * (f) Reclaim in a memory cgroup: `filler` may have 64 MiB and reads 16 MiB of zeros at a time into new memory, with swap in a file, until 600
 * ms have been lost. What filling takes without a limit is measured first and is no part of the cause. Off: no limit.
 */
#include "truth.h"

#include <sys/mman.h>

#define PIECE (16 * MIB)
#define PIECES 16

static struct actor *filler;
static struct group group;
static uint64_t *usual;
static int zero;
static bool fault;

/* Fills new memory in one call, which faults once a page. */
static void fill(void)
{
	static char *held[PIECES];
	static int next;

	if (held[next])
		munmap(held[next], PIECE);
	held[next] = mmap(NULL, PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (held[next] == MAP_FAILED)
		fail("mmap");
	must(madvise(held[next], PIECE, MADV_NOHUGEPAGE), "MADV_NOHUGEPAGE");
	window_begin(filler);
	if (must(read(zero, held[next], PIECE), "read") != (long)PIECE)
		fail("a short read of /dev/zero");
	window_end(filler);
	next = (next + 1) % PIECES;
}

static void fill_on(void *unused)
{
	(void)unused;
	actor_enter(filler, "filler");
	for (int i = 0; i < 5; i++)
		fill();
	*usual = usual_length(filler);
	group_join(&group);
	for (int i = 0; i < (fault ? 200 : 20) && lost(filler) < i * *usual + 600 * MS; i++)
		fill();
}

int main(int argc, char **argv)
{
	struct truth truth = { .cause = "memcg-reclaim" };

	fault = truth_begin(argc, argv);
	usual = shared(sizeof(*usual));
	zero = must(open("/dev/zero", O_RDONLY | O_CLOEXEC), "/dev/zero");
	filler = truth.victims[0] = truth.chain[0] = actor_new();
	group = group_new("memory");
	swap_on(384 * MIB);
	if (fault)
		memory_limit(&group, 64 * MIB);
	look_for_end(child(fill_on, NULL));
	/* Slower by chance, not by reclaim: without a limit nothing is reclaimed. */
	if (fault) {
		truth.wanted_ns = filler->count * *usual;
		truth.cause_ns = lost(filler) - truth.wanted_ns - queued(filler);
	}
	return truth_end(&truth);
}

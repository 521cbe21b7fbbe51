// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * (g) Compaction: of 256 MiB every other page is freed, then memory is compacted by writing to vm.compact_memory, until 600
 * ms have been lost or 2.5 s are over. Huge pages ask for the same work, but only on a machine that has no free huge page
 * left. Off: the calls write to /dev/null.
 */
#include "truth.h"

#include <sys/mman.h>

#define BYTES (256 * MIB)

int main(int argc, char **argv)
{
	struct truth truth = { .cause = "compaction" };
	bool fault = truth_begin(argc, argv);
	uint64_t end = now() + 2500 * MS;
	struct actor *compactor = truth.victims[0] = truth.culprits[0] = truth.chain[0] = actor_new();
	int fd = open(fault ? "/proc/sys/vm/compact_memory" : "/dev/null", O_WRONLY | O_CLOEXEC);
	char *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (fd < 0)
		skip("cannot open vm.compact_memory: %s", strerror(errno));
	if (memory == MAP_FAILED)
		fail("mmap");
	must(madvise(memory, BYTES, MADV_NOHUGEPAGE), "MADV_NOHUGEPAGE");
	memset(memory, 1, BYTES);
	for (uint64_t at = 0; at < BYTES; at += 8192)
		madvise(memory + at, 4096, MADV_DONTNEED);
	actor_enter(compactor, "compactor");
	for (int round = 0; round < (fault ? 1000 : 100) && lost(compactor) < 600 * MS && now() < end; round++) {
		window_begin(compactor);
		must(write(fd, "1", 1), "compact_memory");
		window_end(compactor);
		sleep_for(2 * MS);
	}
	if (fault)
		truth.cause_ns = lost(compactor) - queued(compactor);
	return truth_end(&truth);
}

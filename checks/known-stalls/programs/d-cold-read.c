// SPDX-License-Identifier: MIT OR Apache-2.0
/* (d) Cold page-cache reads of 16 MiB each, until 600 ms have been lost. The cause is the time asleep. Off: the pages are there. */
#include "truth.h"

#include <sys/mman.h>

#define FILE_BYTES (128 * MIB)
#define PIECE (16 * MIB)

int main(int argc, char **argv)
{
	struct truth truth = { .cause = "disk-read", .outside = "disk", .without_running = true };
	bool fault = truth_begin(argc, argv);
	int fd = must(open(prepared_file("cold", FILE_BYTES), O_RDONLY | O_CLOEXEC), "cold");
	struct actor *reader = truth.victims[0] = truth.chain[0] = actor_new();
	char *buffer = shared(PIECE);

	memset(buffer, 1, PIECE);
	/* Nothing is read ahead while the thread copies, so that it waits for all. */
	posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
	actor_enter(reader, "reader");
	for (int pass = 0; pass < (fault ? 60 : 3) && slept(reader) < 600 * MS; pass++) {
		if (fault && posix_fadvise(fd, 0, FILE_BYTES, POSIX_FADV_DONTNEED) != 0)
			fail("posix_fadvise");
		for (uint64_t offset = 0; offset < FILE_BYTES; offset += PIECE) {
			window_begin(reader);
			must(pread(fd, buffer, PIECE, offset), "pread");
			window_end(reader);
		}
	}
	truth.cause_ns = slept(reader);
	return truth_end(&truth);
}

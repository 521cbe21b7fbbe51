// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * (n) A container's I/O limit: `loader` reads 256 KiB at a time (O_DIRECT) in a cgroup that may read 3 MiB/s (io.max, or blkio.throttle
 * of version 1). The disk is idle. Twice the median without the limit, measured first, is no part of the cause. Off: no limit.
 */
#include "../programs/truth.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#define PIECE (256 * 1024)

static struct actor *loader;
static struct group group;
static const char *file;
static uint64_t *usual;
static bool fault;

/* The numbers of the disk that the file is on, the whole one: limits are not for partitions. */
static void disk_of(int fd, char *numbers, size_t size)
{
	char path[96], text[32] = "";
	struct stat status;
	int dev;

	must(fstat(fd, &status), "fstat");
	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/partition", major(status.st_dev), minor(status.st_dev));
	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/%sdev", major(status.st_dev), minor(status.st_dev),
		 access(path, F_OK) == 0 ? "../" : "");
	dev = open(path, O_RDONLY | O_CLOEXEC);
	if (dev < 0 || read(dev, text, sizeof(text) - 1) <= 0)
		skip("the file is not on a block device: %s", path);
	close(dev);
	snprintf(numbers, size, "%.*s", (int)strcspn(text, "\n"), text);
}

static void read_piece(int fd, void *buffer, int number)
{
	window_begin(loader);
	must(pread(fd, buffer, PIECE, (off_t)number * PIECE), "pread");
	window_end(loader);
}

static void load(void *unused)
{
	int fd = open(file, O_RDONLY | O_DIRECT | O_CLOEXEC);
	char numbers[32];
	void *buffer;

	(void)unused;
	if (fd < 0)
		skip("no O_DIRECT on this file system: %s", strerror(errno));
	if (posix_memalign(&buffer, 4096, PIECE))
		fail("posix_memalign");
	actor_enter(loader, "loader");
	group_join(&group);
	disk_of(fd, numbers, sizeof(numbers));
	for (int i = 0; i < 11; i++)
		read_piece(fd, buffer, i);
	*usual = 2 * usual_length(loader);
	if (fault && group.unified)
		group_write(&group, "io.max", "%s rbps=%llu", numbers, 3 * MIB);
	else if (fault)
		group_write(&group, "blkio.throttle.read_bps_device", "%s %llu", numbers, 3 * MIB);
	for (int i = 0; i < 16; i++)
		read_piece(fd, buffer, 11 + i);
}

int main(int argc, char **argv)
{
	struct truth truth = { .cause = "disk-read" };

	fault = truth_begin(argc, argv);
	file = prepared_file("limited", 8 * MIB);
	group = group_new(access("/sys/fs/cgroup/cgroup.controllers", F_OK) == 0 ? "io" : "blkio");
	usual = shared(sizeof(*usual));
	truth.outside = group.path;
	loader = truth.victims[0] = truth.chain[0] = actor_new();
	look_for_end(child(load, NULL));
	truth.cause_ns = overlap_beyond(loader, loader, *usual);
	return truth_end(&truth);
}

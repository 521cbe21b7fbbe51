// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * (o) FUSE: `reader` reads a file whose daemon, `fuse-daemon`, sleeps for 60 ms before it answers. Off: it answers at once.
 * The daemon speaks the protocol of /dev/fuse itself.
 */
#include "truth.h"

#include <linux/fuse.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>

#define FILE_NODE 2

static struct actor *reader, *daemon_actor;
static char mount_point[256];
static int device;
static bool fault;

static void answer(const struct fuse_in_header *request, int error, const void *body, size_t bytes)
{
	struct fuse_out_header header = { sizeof(header) + (error ? 0 : bytes), error, request->unique };
	struct iovec parts[2] = { { &header, sizeof(header) }, { (void *)body, error ? 0 : bytes } };

	/* ENOENT: who asked was interrupted meanwhile. */
	if (writev(device, parts, 2) < 0 && errno != ENOENT)
		fail("write to /dev/fuse: %s", strerror(errno));
}

static struct fuse_attr attributes(uint64_t node)
{
	bool is_file = node == FILE_NODE;

	return (struct fuse_attr){ .ino = node, .mode = is_file ? S_IFREG | 0444 : S_IFDIR | 0555, .nlink = 1, .size = is_file ? MIB : 0, .blksize = 4096 };
}

static void serve(void *unused)
{
	static char buffer[FUSE_MIN_READ_BUFFER + 65536] __attribute__((aligned(8)));
	static char data[4096];
	const struct fuse_in_header *request = (void *)buffer;
	const void *body = buffer + sizeof(*request);

	(void)unused;
	actor_enter(daemon_actor, "fuse-daemon");
	for (;;) {
		ssize_t bytes = read(device, buffer, sizeof(buffer));

		if (bytes < 0 && errno == ENODEV) /* unmounted */
			return;
		if (bytes < 0 && (errno == EINTR || errno == ENOENT || errno == EAGAIN))
			continue;
		must(bytes, "read of /dev/fuse");
		switch (request->opcode) {
		case FUSE_INIT: {
			const struct fuse_init_in *in = body;
			struct fuse_init_out out = { .major = FUSE_KERNEL_VERSION, .minor = FUSE_KERNEL_MINOR_VERSION, .max_readahead = in->max_readahead, .max_write = 65536 };

			answer(request, 0, &out, sizeof(out));
			break;
		}
		case FUSE_LOOKUP: {
			struct fuse_entry_out out = { .nodeid = FILE_NODE, .attr = attributes(FILE_NODE), .entry_valid = 60, .attr_valid = 60 };

			answer(request, strcmp(body, "slow") ? -ENOENT : 0, &out, sizeof(out));
			break;
		}
		case FUSE_GETATTR: {
			struct fuse_attr_out out = { .attr_valid = 60, .attr = attributes(request->nodeid) };

			answer(request, 0, &out, sizeof(out));
			break;
		}
		case FUSE_OPEN: {
			struct fuse_open_out out = { .open_flags = FOPEN_DIRECT_IO };

			answer(request, 0, &out, sizeof(out));
			break;
		}
		case FUSE_READ: {
			const struct fuse_read_in *in = body;

			window_begin(daemon_actor);
			if (fault)
				sleep_for(60 * MS);
			window_end(daemon_actor);
			answer(request, 0, data, in->size < sizeof(data) ? in->size : sizeof(data));
			break;
		}
		case FUSE_RELEASE:
		case FUSE_FLUSH:
			answer(request, 0, NULL, 0);
			break;
		case FUSE_FORGET:
		case FUSE_BATCH_FORGET:
		case FUSE_INTERRUPT:
			break;
		default:
			answer(request, -ENOSYS, NULL, 0);
		}
	}
}

static void read_on(void *unused)
{
	char path[300], data[4096];
	int fd;

	(void)unused;
	/* The connection ends with its last descriptor; with one here, this thread would wait for ever if all were killed. */
	close(device);
	actor_enter(reader, "reader");
	snprintf(path, sizeof(path), "%s/slow", mount_point);
	fd = must(open(path, O_RDONLY | O_CLOEXEC), path);
	for (int i = 0; i < 25; i++) {
		window_begin(reader);
		must(pread(fd, data, sizeof(data), i * sizeof(data)), "pread");
		window_end(reader);
		sleep_for(2 * MS);
	}
}

int main(int argc, char **argv)
{
	struct truth truth = { .cause = "fuse" };
	char options[128];
	pid_t other;

	fault = truth_begin(argc, argv);
	device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (device < 0)
		skip("/dev/fuse: %s", strerror(errno));
	snprintf(mount_point, sizeof(mount_point), "%.200s/mount", disk_folder());
	must(mkdir(mount_point, 0700), mount_point);
	own_mounts();
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0", device);
	if (mount("stopgap-known-stalls", mount_point, "fuse", MS_NODEV | MS_NOSUID, options) < 0)
		skip("cannot mount a FUSE filesystem: %s", strerror(errno));
	reader = truth.victims[0] = truth.chain[0] = actor_new();
	daemon_actor = truth.culprits[0] = truth.chain[1] = actor_new();
	other = child(serve, NULL);
	look_for_end(child(read_on, NULL));
	umount2(mount_point, MNT_DETACH);
	close(device);
	look_for_end(other);
	truth.cause_ns = overlap(reader, daemon_actor);
	return truth_end(&truth);
}

// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * (r) A flush that waits for writeback: `syncer` dirties 96 MiB of a filesystem of its own (an image on a loop device) and
 * calls syncfs, which has a kworker write them and waits for it. Until 800 ms have been lost. Off: nothing is dirty, and the
 * filesystem asks for no flush of the disk's cache, which takes 10 ms and more where others write to that disk.
 */
#include "truth.h"

#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#define IMAGE (256 * MIB)

/* Attaches the image to a free loop device, which ends with its last user. */
static int attach(int image, char *device, size_t room)
{
	int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
	struct loop_config config = { .fd = image, .info.lo_flags = LO_FLAGS_AUTOCLEAR };

	if (control < 0)
		skip("/dev/loop-control: %s", strerror(errno));
	/* Another program may take the free one first. */
	for (int tries = 0; tries < 20; tries++) {
		int fd;

		snprintf(device, room, "/dev/loop%ld", must(ioctl(control, LOOP_CTL_GET_FREE), "LOOP_CTL_GET_FREE"));
		fd = open(device, O_RDWR | O_CLOEXEC);
		if (fd >= 0 && ioctl(fd, LOOP_CONFIGURE, &config) == 0) {
			close(control);
			return fd;
		}
		if (fd >= 0)
			close(fd);
	}
	skip("no free loop device: %s", strerror(errno));
}

static void make_filesystem(const char *image)
{
	char command[640];
	int fd = must(open(image, O_CREAT | O_RDWR | O_CLOEXEC, 0600), image);

	must(ftruncate(fd, IMAGE), "ftruncate");
	close(fd);
	snprintf(command, sizeof(command), "PATH=$PATH:/usr/sbin:/sbin mkfs.ext4 -q -F -E lazy_itable_init=0 '%s'", image);
	if (system(command) != 0)
		skip("mkfs.ext4 failed or is not installed (e2fsprogs)");
}

int main(int argc, char **argv)
{
	struct truth truth = { .cause = "writeback", .outside = "disk", .culprit_comm = "kworker/" };
	bool fault = truth_begin(argc, argv);
	struct actor *syncer = truth.victims[0] = truth.chain[0] = actor_new();
	const char *prepared = getenv("STALLS_PREPARED");
	char image[512], device[64], mount_point[512], path[600];
	struct stat found;
	int backing, loop, fd, folder;

	snprintf(mount_point, sizeof(mount_point), "%.400s/mount", disk_folder());
	snprintf(image, sizeof(image), "%.400s/image", prepared ? prepared : disk_folder());
	if (stat(image, &found) < 0)
		make_filesystem(image);
	own_mounts();
	backing = must(open(image, O_RDWR | O_CLOEXEC), image);
	loop = attach(backing, device, sizeof(device));
	must(mkdir(mount_point, 0700), mount_point);
	if (mount(device, mount_point, "ext4", 0, fault ? NULL : "barrier=0") < 0)
		skip("cannot mount ext4: %s", strerror(errno));
	close(loop);
	close(backing);
	snprintf(path, sizeof(path), "%s/file", mount_point);
	fd = must(open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600), path);
	folder = must(open(mount_point, O_RDONLY | O_DIRECTORY | O_CLOEXEC), mount_point);
	must(syncfs(folder), "syncfs");
	actor_enter(syncer, "syncer");
	for (int round = 0; round < (fault ? 40 : 5) && slept(syncer) < 800 * MS; round++) {
		if (fault) {
			must(ftruncate(fd, 0), "ftruncate");
			must(lseek(fd, 0, SEEK_SET), "lseek");
			write_whole(fd, 96 * MIB);
		}
		window_begin(syncer);
		must(syncfs(folder), "syncfs");
		window_end(syncer);
		sleep_for(3 * MS);
	}
	truth.cause_ns = slept(syncer);
	/* What it waits for from here is no part of the truth. */
	prctl(PR_SET_NAME, "unmounter");
	close(fd);
	close(folder);
	umount(mount_point);
	return truth_end(&truth);
}

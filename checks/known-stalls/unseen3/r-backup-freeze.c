// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * (r) A backup freezes the file system: `backup` (FIFREEZE, as a guest's agent does before a snapshot) keeps ext4 on a loop device frozen
 * for 70 ms at a time. `database` waits in write for it, by a lock of the kernel, and `client` for the database's answer by a Unix
 * socket. Off: it freezes nothing.
 */
#include "../programs/truth.h"

#include <linux/fs.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>

static struct actor *client, *database, *backup;
static char mount_point[512];
static uint32_t *done;
static int ends[2];
static bool fault;

static void mount_image(void)
{
	struct loop_config config = { .info.lo_flags = LO_FLAGS_AUTOCLEAR };
	int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC), loop = -1;
	char image[512], device[64], command[640];

	if (control < 0)
		skip("/dev/loop-control: %s", strerror(errno));
	snprintf(image, sizeof(image), "%.400s/image", disk_folder());
	snprintf(mount_point, sizeof(mount_point), "%.400s/mount", disk_folder());
	config.fd = must(open(image, O_CREAT | O_RDWR | O_CLOEXEC, 0600), image);
	must(ftruncate(config.fd, 32 * MIB), "ftruncate");
	snprintf(command, sizeof(command), "PATH=$PATH:/usr/sbin:/sbin mkfs.ext4 -q -F -E lazy_itable_init=0 '%s'", image);
	if (system(command) != 0)
		skip("mkfs.ext4 failed or is not installed (e2fsprogs)");
	own_mounts();
	/* Another program may take the free one first. */
	for (int tries = 0; tries < 20 && loop < 0; tries++) {
		snprintf(device, sizeof(device), "/dev/loop%ld", must(ioctl(control, LOOP_CTL_GET_FREE), "LOOP_CTL_GET_FREE"));
		loop = open(device, O_RDWR | O_CLOEXEC);
		if (loop >= 0 && ioctl(loop, LOOP_CONFIGURE, &config) < 0) {
			close(loop);
			loop = -1;
		}
	}
	if (loop < 0)
		skip("no free loop device");
	must(mkdir(mount_point, 0700), mount_point);
	if (mount(device, mount_point, "ext4", 0, NULL) < 0)
		skip("cannot mount ext4: %s", strerror(errno));
	close(loop);
	close(config.fd);
	close(control);
}

static void back_up(void)
{
	int fd = must(open(mount_point, O_RDONLY | O_DIRECTORY | O_CLOEXEC), mount_point);

	actor_enter(backup, "backup");
	for (int i = 0; i < 14; i++) {
		/* Writers wait from the begin of the call on, while it waits for earlier ones and writes all out. */
		window_begin(backup);
		if (fault && ioctl(fd, FIFREEZE, 0) < 0)
			skip("FIFREEZE: %s", strerror(errno));
		if (fault)
			sleep_for(70 * MS);
		if (fault)
			must(ioctl(fd, FITHAW, 0), "FITHAW");
		window_end(backup);
		sleep_for(25 * MS);
	}
	__atomic_store_n(done, 1, __ATOMIC_RELAXED);
	_exit(0);
}

static void keep(void *unused)
{
	char path[600], row[64];
	int fd;

	(void)unused;
	actor_enter(database, "database");
	snprintf(path, sizeof(path), "%s/table", mount_point);
	fd = must(open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600), path);
	while (must(read(ends[1], row, sizeof(row)), "read") == sizeof(row)) {
		must(pwrite(fd, row, sizeof(row), 0), "pwrite");
		must(write(ends[1], "k", 1), "write");
	}
}

static void be_client(void *unused)
{
	char row[64] = "row", byte;

	(void)unused;
	actor_enter(client, "client");
	while (!__atomic_load_n(done, __ATOMIC_RELAXED)) {
		window_begin(client);
		must(write(ends[0], row, sizeof(row)), "write");
		must(read(ends[0], &byte, 1), "read");
		window_end(client);
		sleep_for(4 * MS);
	}
}

int main(int argc, char **argv)
{
	struct truth truth = { .cause = "kernel-lock" };
	pid_t keeps, asks, backs_up;

	fault = truth_begin(argc, argv);
	mount_image();
	must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), "socketpair");
	done = shared(4);
	client = truth.victims[0] = truth.chain[0] = actor_new();
	database = truth.chain[1] = actor_new();
	backup = truth.culprits[0] = truth.chain[2] = actor_new();
	keeps = child(keep, NULL);
	asks = child(be_client, NULL);
	/* It outlives a kill of this process, so that nothing stays frozen: who waits for a thaw cannot be killed. */
	backs_up = must(fork(), "fork");
	if (backs_up == 0)
		back_up();
	look_for_end(asks);
	look_for_end(backs_up);
	kill_and_wait(keeps);
	umount(mount_point);
	truth.cause_ns = overlap(client, backup);
	return truth_end(&truth);
}

// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * (4) Wait by pidfd for a child that saves: `parent` polls the pidfd of `saver`, which writes 60 times 128 KiB, calls fsync
 * after each, and ends; until 1.2 s have been lost by fsync. Off: it does not call fsync.
 */
#include "../programs/truth.h"

#include <poll.h>
#include <sys/syscall.h>

static struct actor *parent, *saver;
static bool fault;

static void save(void *unused)
{
	int fd = must(open(in_folder("saved"), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600), "saved");

	(void)unused;
	actor_enter(saver, "saver");
	for (int i = 0; i < 60; i++) {
		write_whole(fd, 131072);
		window_begin(saver);
		if (fault)
			must(fsync(fd), "fsync");
		window_end(saver);
	}
}

int main(int argc, char **argv)
{
	struct truth truth = { .cause = "fsync", .outside = "disk" };

	fault = truth_begin(argc, argv);
	disk_folder();
	parent = truth.victims[0] = truth.chain[0] = actor_new();
	saver = truth.culprits[0] = truth.chain[1] = actor_new();
	actor_enter(parent, "parent");
	for (int round = 0; round < (fault ? 40 : 5) && overlap(parent, saver) < 1200 * MS; round++) {
		pid_t pid = child(save, NULL);
		struct pollfd ended = { .fd = must(syscall(SYS_pidfd_open, pid, 0), "pidfd_open"), .events = POLLIN };

		window_begin(parent);
		must(poll(&ended, 1, -1), "poll");
		window_end(parent);
		close(ended.fd);
		wait_for(pid);
	}
	truth.cause_ns = overlap(parent, saver);
	return truth_end(&truth);
}

// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * (k) A virus scanner on access: `scanner` has asked the kernel (fanotify, FAN_OPEN_PERM) to be asked before a file of the folder is
 * opened, and looks through each for 15 ms. `editor` and `indexer` wait in openat. Off: it allows at once.
 */
#include "../programs/truth.h"

#include <sys/fanotify.h>

#define FILES 16

static struct actor *scanner, *openers[2];
static uint32_t *ready;
static bool fault;

static void scan(void *unused)
{
	struct fanotify_event_metadata event;
	int fd = fanotify_init(FAN_CLASS_CONTENT | FAN_CLOEXEC, O_RDONLY | O_CLOEXEC);

	(void)unused;
	actor_enter(scanner, "scanner");
	if (fd < 0 || fanotify_mark(fd, FAN_MARK_ADD, FAN_OPEN_PERM | FAN_EVENT_ON_CHILD, AT_FDCWD, disk_folder()) < 0)
		skip("fanotify does not ask for permission here: %s", strerror(errno));
	post(ready);
	post(ready);
	/* A buffer with room for one event: each is answered before the next is taken. */
	while (must(read(fd, &event, sizeof(event)), "read") == sizeof(event)) {
		struct fanotify_response response = { .fd = event.fd, .response = FAN_ALLOW };

		window_begin(scanner);
		if (fault)
			burn(15 * MS);
		window_end(scanner);
		must(write(fd, &response, sizeof(response)), "write");
		close(event.fd);
	}
}

static void open_files(void *number)
{
	struct actor *self = openers[(intptr_t)number];

	actor_enter(self, number ? "indexer" : "editor");
	await(ready);
	for (int i = 0; i < 40; i++) {
		char name[16], byte;
		int fd;

		snprintf(name, sizeof(name), "file-%d", (i + 7 * (int)(intptr_t)number) % FILES);
		/* The path is made before the window. */
		const char *path = in_folder(name);

		window_begin(self);
		fd = must(open(path, O_RDONLY | O_CLOEXEC), path);
		window_end(self);
		must(read(fd, &byte, 1), "read");
		close(fd);
		sleep_for((number ? 9 : 4) * MS);
	}
}

int main(int argc, char **argv)
{
	struct truth truth = { .cause = "server" };
	pid_t scans, opens[2];

	fault = truth_begin(argc, argv);
	for (int i = 0; i < FILES; i++) {
		char name[16];
		int fd;

		snprintf(name, sizeof(name), "file-%d", i);
		fd = must(open(in_folder(name), O_CREAT | O_WRONLY | O_CLOEXEC, 0600), name);
		write_whole(fd, 4096);
		close(fd);
	}
	ready = shared(4);
	scanner = truth.culprits[0] = truth.chain[1] = actor_new();
	for (int i = 0; i < 2; i++)
		openers[i] = truth.victims[i] = actor_new();
	truth.chain[0] = openers[0];
	scans = child(scan, NULL);
	for (intptr_t i = 0; i < 2; i++)
		opens[i] = child(open_files, (void *)i);
	for (int i = 0; i < 2; i++)
		look_for_end(opens[i]);
	kill_and_wait(scans);
	for (int i = 0; i < 2; i++)
		truth.cause_ns += overlap(openers[i], scanner);
	return truth_end(&truth);
}

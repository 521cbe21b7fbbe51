// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * (f) The lock of a folder: `indexer` lists a folder of 200,000 files by one getdents64, `builder` makes a file in it, again
 * and again. Off: it makes its files in another folder.
 */
#include "../programs/truth.h"

#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define FILES 200000

static struct actor *builder, *indexer;
static bool fault;
static char mounted[4096];

static void list(void *unused)
{
	char *entries = shared(16 * MIB);
	int fd = must(open("many", O_RDONLY | O_DIRECTORY | O_CLOEXEC), "many");

	(void)unused;
	actor_enter(indexer, "indexer");
	for (;;) {
		long length;

		must(lseek(fd, 0, SEEK_SET), "lseek");
		do {
			window_begin(indexer);
			length = must(syscall(SYS_getdents64, fd, entries, 16 * MIB), "getdents64");
			window_end(indexer);
		} while (length > 0);
		sleep_for(5 * MS);
	}
}

static void make(void *unused)
{
	const char *name = fault ? "many/new" : "few/new";
	uint64_t end = now() + 1600 * MS;

	(void)unused;
	actor_enter(builder, "builder");
	while (now() < end) {
		int fd;

		window_begin(builder);
		fd = must(open(name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600), name);
		window_end(builder);
		close(fd);
		window_begin(builder);
		must(unlink(name), name);
		window_end(builder);
		sleep_for(2 * MS);
	}
}

int main(int argc, char **argv)
{
	struct truth truth = { .cause = "kernel-lock" };
	pid_t other;

	fault = truth_begin(argc, argv);
	snprintf(mounted, sizeof(mounted), "%s", in_folder("mounted"));
	must(mkdir(mounted, 0700), mounted);
	own_mounts();
	if (mount("known-stalls", mounted, "tmpfs", 0, "mode=700,size=64m,nr_inodes=400k") < 0)
		skip("cannot mount a tmpfs: %s", strerror(errno));
	must(chdir(mounted), mounted);
	must(mkdir("few", 0700), "few");
	must(mkdir("many", 0700), "many");
	for (int i = 0; i < FILES; i++) {
		char name[32];

		snprintf(name, sizeof(name), "many/%d", i);
		must(mknod(name, S_IFREG | 0600, 0), name);
	}
	builder = truth.victims[0] = truth.chain[0] = actor_new();
	indexer = truth.culprits[0] = truth.chain[1] = actor_new();
	other = child(list, NULL);
	look_for_end(child(make, NULL));
	kill_and_wait(other);
	must(chdir("/"), "/");
	truth.cause_ns = without(overlap(builder, indexer), queued(indexer));
	return truth_end(&truth);
}

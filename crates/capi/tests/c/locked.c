/* stopgap_locked(3): taking, releasing, purging, and what is refused. */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/wait.h>

#include "test.h"

static uint64_t locked(stopgap_set *set)
{
	struct stopgap_set_statistics statistics;

	memset(&statistics, 0, sizeof statistics);
	statistics.size = sizeof statistics;
	CHECK(stopgap_set_stat(set, &statistics) == 0);
	return statistics.locked;
}

static void way(uint64_t which)
{
	const size_t length = 16384;
	struct stopgap_set_options options;
	struct stopgap_purged purged;
	stopgap_set *set;
	stopgap_held *held, *other;
	uint64_t unlocked = 7, offset = 7;
	char *at;
	int fd;

	memset(&options, 0, sizeof options);
	options.size = sizeof options;
	options.budget = 2 * length;
	options.batch = 4 * length;
	options.way = which;
	WORKS((set = stopgap_set_new(&options)) != NULL);
	held = stopgap_set_take(set, length - 1);
	if (held == NULL && (errno == EPERM || errno == ENOMEM)) {
		puts("skipped: a locked set: RLIMIT_MEMLOCK is too low");
		CHECK(stopgap_set_close(set) == 0);
		return;
	}
	CHECK(held != NULL);
	CHECK(stopgap_held_length(held) == (ptrdiff_t)length);
	CHECK(stopgap_held_is_writable(held) == 1);
	WORKS((at = stopgap_held_address(held)) != NULL);
	CHECK(at[0] == 0 && at[length - 1] == 0);
	memset(at, 5, length);
	CHECK(locked(set) == length);
	WORKS((other = stopgap_set_take(set, length)) != NULL);
	REFUSES(stopgap_set_take(set, 1), ENOMEM);
	REFUSES(stopgap_set_take(set, 0), EINVAL);
	WORKS(stopgap_held_close(other) == 0);

	WORKS(stopgap_held_release(held) == 0);
	FAILS(stopgap_held_release(held), EINVAL);
	WORKS(stopgap_held_keep(held) == STOPGAP_KEPT);
	WORKS(stopgap_held_release(held) == 0);
	WORKS(stopgap_set_flush(set, &unlocked) == 0 && unlocked == length);
	CHECK(locked(set) == 0);
	WORKS(stopgap_held_keep(held) == STOPGAP_KEPT && at[length - 1] == 5);

	WORKS(stopgap_held_purgeable(held) == 0);
	WORKS(stopgap_held_keep(held) == STOPGAP_KEPT);
	WORKS(stopgap_held_purgeable(held) == 0);
	memset(&purged, 0, sizeof purged);
	FAILS(stopgap_set_react(set, &purged), EINVAL); /* no size: nothing was done */
	WORKS(stopgap_held_keep(held) == STOPGAP_KEPT);
	WORKS(stopgap_held_purgeable(held) == 0);
	purged.size = sizeof purged;
	WORKS(stopgap_set_react(set, &purged) == 0);
	CHECK(purged.objects == 1 && purged.bytes == length && purged.error == 0);
	WORKS(stopgap_held_keep(held) == STOPGAP_LOST && at[0] == 0);

	if (stopgap_held_way(held) == STOPGAP_WAY_SYSV) {
		FAILS(stopgap_held_file(held, &offset), ENOTSUP);
	} else {
		at[1] = 9;
		fd = stopgap_held_file(held, &offset);
		CHECK(fd >= 0 && pread(fd, &unlocked, 2, (off_t)offset) == 2 && ((char *)&unlocked)[1] == 9);
		close(fd);
	}

	/* A child may do nothing, and nothing that it does is its parent's loss. */
	{
		int status;
		pid_t child = fork();

		CHECK(child >= 0);
		if (child == 0) {
			FAILS(stopgap_held_release(held), EINVAL);
			REFUSES(stopgap_set_take(set, length), EINVAL);
			CHECK(stopgap_held_close(held) == 0);
			CHECK(stopgap_set_close(set) == 0);
			_exit(0);
		}
		CHECK(waitpid(child, &status, 0) == child && status == 0);
	}
	CHECK(locked(set) == length);
	at[2] = 1;

	FAILS(stopgap_set_poll_pressure(NULL, NULL), EBADF);
	WORKS(stopgap_set_poll_pressure(set, NULL) == 0);
	FAILS(stopgap_set_pressure_fd(set), EINVAL);
	FAILS(stopgap_set_watch(set), EINVAL);
	FAILS(stopgap_set_watch_end(set), EINVAL);
	/* A set is nothing held. */
	REFUSES(stopgap_held_address((stopgap_held *)set), EBADF);
	WORKS(stopgap_set_close(set) == 0);
	FAILS(stopgap_set_close(set), EBADF);
	at[3] = 1; /* what is held stays */
	WORKS(stopgap_held_close(held) == 0);
	FAILS(stopgap_held_close(held), EBADF);
	REFUSES(stopgap_held_address(held), EBADF);
}

static void shareable(void)
{
	stopgap_set *set = stopgap_set_new(NULL);
	stopgap_held *held = stopgap_set_take_shareable(set, 4096);
	uint64_t offset = 7;
	char *at, *other;
	int fd;

	if (held == NULL && (errno == EPERM || errno == ENOMEM)) {
		puts("skipped: a shareable piece of a locked set: RLIMIT_MEMLOCK is too low");
	} else {
		CHECK(held != NULL && stopgap_held_way(held) == STOPGAP_WAY_MEMFD);
		WORKS((fd = stopgap_held_file(held, &offset)) >= 0);
		other = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);
		CHECK(other != MAP_FAILED && close(fd) == 0);
		WORKS((at = stopgap_held_address(held)) != NULL);
		at[5] = 6;
		CHECK(other[5] == 6 && munmap(other, 4096) == 0);
		WORKS(stopgap_held_close(held) == 0);
	}
	WORKS(stopgap_set_close(set) == 0);
}

static void file(void)
{
	stopgap_set *set = stopgap_set_new(NULL);
	stopgap_held *held;
	int fd = memfd_create("capi", MFD_CLOEXEC);
	char *at;

	CHECK(set != NULL && fd >= 0 && ftruncate(fd, 8192) == 0);
	CHECK(pwrite(fd, "memfd", 5, 4096) == 5);
	REFUSES(stopgap_set_take_file(set, fd, 4096, 8192), EINVAL);
	REFUSES(stopgap_set_take_file(set, -1, 0, 4096), EBADF);
	held = stopgap_set_take_file(set, fd, 4096, 4096);
	close(fd);
	if (held == NULL && (errno == EPERM || errno == ENOMEM)) {
		puts("skipped: a locked memfd: RLIMIT_MEMLOCK is too low");
	} else {
		CHECK(held != NULL);
		at = stopgap_held_address(held);
		CHECK(at != NULL && memcmp(at, "memfd", 5) == 0);
		WORKS(stopgap_held_close(held) == 0);
	}
	WORKS(stopgap_set_close(set) == 0);
}

static void pressure(void)
{
	struct stopgap_set_options options;
	stopgap_set *set;

	memset(&options, 0, sizeof options);
	options.size = sizeof options;
	options.pressure_path = "/nonexistent/memory.pressure";
	CHECK(stopgap_set_new(&options) == NULL);
	options.pressure_path = NULL;
	options.pressure_stall_ns = 150000000;
	set = stopgap_set_new(&options);
	if (set == NULL) {
		printf("skipped: pressure: %s\n", strerror(errno));
		return;
	}
	CHECK(stopgap_set_pressure_fd(set) >= 0);
	WORKS(stopgap_set_poll_pressure(set, NULL) >= 0);
	WORKS(stopgap_set_watch(set) == 0);
	WORKS(stopgap_set_watch(set) == 0);
	WORKS(stopgap_set_watch_end(set) == 0);
	WORKS(stopgap_set_watch(set) == 0);
	WORKS(stopgap_set_close(set) == 0);
	options.way = 3;
	REFUSES(stopgap_set_new(&options), EINVAL);
}

int main(void)
{
	way(STOPGAP_WAY_SYSV);
	way(STOPGAP_WAY_MEMFD);
	shareable();
	file();
	pressure();
	puts("done");
	return 0;
}

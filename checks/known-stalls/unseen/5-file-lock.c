// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * (5) A lock on a file: `keeper` has a write lock by fcntl and sleeps for 90 ms on purpose before it gives it up; `comer`,
 * another process, waits for it by F_SETLKW. Off: it sleeps without the lock.
 */
#include "../programs/truth.h"

static struct actor *keeper, *comer;
static char path[512];
static bool fault;

static int opened(void)
{
	return must(open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600), path);
}

static void set(int fd, short type)
{
	struct flock lock = { .l_type = type, .l_whence = SEEK_SET };

	must(fcntl(fd, F_SETLKW, &lock), "F_SETLKW");
}

static void keep(void *unused)
{
	int fd = opened();

	(void)unused;
	actor_enter(keeper, "keeper");
	for (int round = 0; round < 15; round++) {
		set(fd, F_WRLCK);
		window_begin(keeper);
		if (fault)
			sleep_for(90 * MS);
		window_end(keeper);
		set(fd, F_UNLCK);
		sleep_for(fault ? 10 * MS : 100 * MS);
	}
}

static void come(void *unused)
{
	uint64_t end = now() + 1600 * MS;
	int fd = opened();

	(void)unused;
	actor_enter(comer, "comer");
	while (now() < end) {
		window_begin(comer);
		set(fd, F_WRLCK);
		window_end(comer);
		set(fd, F_UNLCK);
		sleep_for(4 * MS);
	}
}

int main(int argc, char **argv)
{
	struct truth truth = { .cause = "file-lock" };
	pid_t others[2];

	fault = truth_begin(argc, argv);
	snprintf(path, sizeof(path), "%s", in_folder("lock"));
	comer = truth.victims[0] = truth.chain[0] = actor_new();
	keeper = truth.culprits[0] = truth.chain[1] = actor_new();
	others[0] = child(keep, NULL);
	others[1] = child(come, NULL);
	for (int i = 0; i < 2; i++)
		look_for_end(others[i]);
	truth.cause_ns = overlap(comer, keeper);
	return truth_end(&truth);
}

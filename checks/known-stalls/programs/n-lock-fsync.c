// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * (n) A lock whose holder is in fsync: `holder` writes 96 MiB, then waits with the lock held until they are on disk;
 * `waiter` wants the lock. Until 600 ms have been lost. The disk's are those in which the holder slept: in fsync it also
 * computes and waits for a CPU, which takes a tenth to a fifth where the disk is fast. Off: the holder calls fsync before it takes the lock.
 */
#include "truth.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct actor *holder, *waiter;
static bool fault, done;

static void *hold(void *unused)
{
	int fd = must(open(in_folder("file"), O_CREAT | O_WRONLY | O_CLOEXEC, 0600), "file");

	actor_enter(holder, "holder");
	for (int round = 0; round < (fault ? 40 : 5) && overlap(waiter, holder) < 600 * MS; round++) {
		must(ftruncate(fd, 0), "ftruncate");
		must(lseek(fd, 0, SEEK_SET), "lseek");
		write_whole(fd, 96 * MIB);
		if (!fault)
			must(fsync(fd), "fsync");
		pthread_mutex_lock(&lock);
		window_begin(holder);
		if (fault)
			must(fsync(fd), "fsync");
		window_end(holder);
		pthread_mutex_unlock(&lock);
		sleep_for(5 * MS);
	}
	__atomic_store_n(&done, true, __ATOMIC_RELAXED);
	return unused;
}

static void *want(void *unused)
{
	actor_enter(waiter, "waiter");
	while (!__atomic_load_n(&done, __ATOMIC_RELAXED)) {
		window_begin(waiter);
		pthread_mutex_lock(&lock);
		window_end(waiter);
		pthread_mutex_unlock(&lock);
		sleep_for(2 * MS);
	}
	return unused;
}

int main(int argc, char **argv)
{
	struct truth truth = { .cause = "lock-holder-in-fsync", .outside = "disk" };
	pthread_t threads[2];

	fault = truth_begin(argc, argv);
	disk_folder();
	waiter = truth.victims[0] = truth.chain[0] = actor_new();
	holder = truth.culprits[0] = truth.chain[1] = actor_new();
	threads[0] = thread(hold, NULL);
	threads[1] = thread(want, NULL);
	join(threads[0]);
	join(threads[1]);
	if (lost(holder))
		truth.cause_ns = (double)overlap(waiter, holder) * slept(holder) / lost(holder);
	return truth_end(&truth);
}

// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * (1) A logger behind a bounded queue: two producers put records of 64 KiB into a queue of eight; `logger` takes all that are
 * there, writes each and calls fsync, while the queue fills and the producers wait on a condition variable. Off: no fsync.
 */
#include "../programs/truth.h"

#define ROOM 8
#define RECORD 65536

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t not_full = PTHREAD_COND_INITIALIZER, not_empty = PTHREAD_COND_INITIALIZER;
static struct actor *producers[2], *logger;
static int queued_records, open_producers = 2;
static bool fault;

static void *write_log(void *unused)
{
	int fd = must(open(in_folder("log"), O_CREAT | O_WRONLY | O_CLOEXEC, 0600), "log");

	actor_enter(logger, "logger");
	for (int written = 0;;) {
		int batch;

		pthread_mutex_lock(&lock);
		while (queued_records == 0 && open_producers > 0)
			pthread_cond_wait(&not_empty, &lock);
		batch = queued_records;
		queued_records = 0;
		pthread_cond_broadcast(&not_full);
		pthread_mutex_unlock(&lock);
		if (batch == 0)
			return unused;
		for (int i = 0; i < batch; i++) {
			write_whole(fd, RECORD);
			window_begin(logger);
			if (fault)
				must(fsync(fd), "fsync");
			window_end(logger);
		}
		written += batch;
		if (written >= 1024) {
			must(ftruncate(fd, 0), "ftruncate");
			must(lseek(fd, 0, SEEK_SET), "lseek");
			written = 0;
		}
	}
}

static void *produce(void *number)
{
	struct actor *self = producers[(intptr_t)number];
	uint64_t end = now() + 1500 * MS;
	char comm[16];

	snprintf(comm, sizeof(comm), "producer-%d", (int)(intptr_t)number);
	actor_enter(self, comm);
	while (now() < end) {
		window_begin(self);
		pthread_mutex_lock(&lock);
		while (queued_records == ROOM)
			pthread_cond_wait(&not_full, &lock);
		queued_records++;
		pthread_cond_signal(&not_empty);
		pthread_mutex_unlock(&lock);
		window_end(self);
		sleep_for(1 * MS);
	}
	pthread_mutex_lock(&lock);
	open_producers--;
	pthread_cond_signal(&not_empty);
	pthread_mutex_unlock(&lock);
	return NULL;
}

int main(int argc, char **argv)
{
	struct truth truth = { .cause = "fsync", .outside = "disk" };
	pthread_t threads[3];

	fault = truth_begin(argc, argv);
	disk_folder();
	logger = truth.culprits[0] = truth.chain[1] = actor_new();
	for (int i = 0; i < 2; i++)
		producers[i] = truth.victims[i] = actor_new();
	truth.chain[0] = producers[0];
	threads[2] = thread(write_log, NULL);
	for (intptr_t i = 0; i < 2; i++)
		threads[i] = thread(produce, (void *)i);
	for (int i = 0; i < 3; i++)
		join(threads[i]);
	for (int i = 0; i < 2; i++)
		truth.cause_ns += overlap(producers[i], logger);
	return truth_end(&truth);
}

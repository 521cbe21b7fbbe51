// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * (2) A store with a single writer: three client processes put requests into shared memory, ring an eventfd and wait on a
 * futex word; `store` answers them, for which it takes a lock; `checkpointer`, a thread of the store, writes 64 MiB and holds
 * the lock while they go to disk. Off: it calls fsync before it takes the lock.
 */
#include "../programs/truth.h"

#include <sys/eventfd.h>

#define CLIENTS 3

struct slot {
	uint32_t asked, answer;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct actor *clients[CLIENTS], *store, *checkpointer;
static struct slot *slots;
static int bell;
static bool fault;

static void *checkpoint(void *unused)
{
	int fd = must(open(in_folder("store"), O_CREAT | O_WRONLY | O_CLOEXEC, 0600), "store");

	actor_enter(checkpointer, "checkpointer");
	for (;;) {
		must(ftruncate(fd, 0), "ftruncate");
		must(lseek(fd, 0, SEEK_SET), "lseek");
		write_whole(fd, 64 * MIB);
		if (!fault)
			must(fsync(fd), "fsync");
		pthread_mutex_lock(&lock);
		window_begin(checkpointer);
		if (fault)
			must(fsync(fd), "fsync");
		window_end(checkpointer);
		pthread_mutex_unlock(&lock);
		sleep_for(10 * MS);
	}
	return unused;
}

static void be_store(void *unused)
{
	uint64_t rings;

	(void)unused;
	actor_enter(store, "store");
	thread(checkpoint, NULL);
	for (;;) {
		must(read(bell, &rings, sizeof(rings)), "eventfd");
		for (int i = 0; i < CLIENTS; i++) {
			if (!__atomic_exchange_n(&slots[i].asked, 0, __ATOMIC_SEQ_CST))
				continue;
			pthread_mutex_lock(&lock);
			pthread_mutex_unlock(&lock);
			post(&slots[i].answer);
		}
	}
}

static void be_client(void *number)
{
	struct actor *self = clients[(intptr_t)number];
	struct slot *slot = &slots[(intptr_t)number];
	uint64_t end = now() + 1500 * MS, one = 1;
	char comm[16];

	snprintf(comm, sizeof(comm), "client-%d", (int)(intptr_t)number);
	actor_enter(self, comm);
	while (now() < end) {
		window_begin(self);
		__atomic_store_n(&slot->asked, 1, __ATOMIC_SEQ_CST);
		must(write(bell, &one, sizeof(one)), "eventfd");
		await(&slot->answer);
		window_end(self);
		sleep_for(3 * MS);
	}
}

int main(int argc, char **argv)
{
	struct truth truth = { .cause = "lock-holder-in-fsync", .outside = "disk" };
	pid_t other, asking[CLIENTS];

	fault = truth_begin(argc, argv);
	disk_folder();
	bell = must(eventfd(0, EFD_CLOEXEC), "eventfd");
	slots = shared(CLIENTS * sizeof(*slots));
	for (int i = 0; i < CLIENTS; i++)
		clients[i] = truth.victims[i] = actor_new();
	truth.chain[0] = clients[0];
	store = truth.chain[1] = actor_new();
	checkpointer = truth.culprits[0] = truth.chain[2] = actor_new();
	other = child(be_store, NULL);
	for (intptr_t i = 0; i < CLIENTS; i++)
		asking[i] = child(be_client, (void *)i);
	for (int i = 0; i < CLIENTS; i++)
		look_for_end(asking[i]);
	kill_and_wait(other);
	for (int i = 0; i < CLIENTS; i++)
		truth.cause_ns += overlap(clients[i], checkpointer);
	return truth_end(&truth);
}

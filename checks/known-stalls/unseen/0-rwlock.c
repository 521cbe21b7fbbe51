// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * (0) A reader-writer lock: `updater` computes for 30 ms with the lock held for writing, again and again; three threads want
 * to read. Off: it computes first.
 */
#include "../programs/truth.h"

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static struct actor *updater, *readers[3];
static bool fault, done;

static void *update(void *unused)
{
	actor_enter(updater, "updater");
	for (int round = 0; round < 30; round++) {
		if (!fault)
			burn(30 * MS);
		pthread_rwlock_wrlock(&lock);
		window_begin(updater);
		if (fault)
			burn(30 * MS);
		window_end(updater);
		pthread_rwlock_unlock(&lock);
		sleep_for(5 * MS);
	}
	__atomic_store_n(&done, true, __ATOMIC_RELAXED);
	return unused;
}

static void *look_up(void *number)
{
	struct actor *self = readers[(intptr_t)number];
	char comm[16];

	snprintf(comm, sizeof(comm), "reader-%d", (int)(intptr_t)number);
	actor_enter(self, comm);
	while (!__atomic_load_n(&done, __ATOMIC_RELAXED)) {
		window_begin(self);
		pthread_rwlock_rdlock(&lock);
		window_end(self);
		pthread_rwlock_unlock(&lock);
		sleep_for(2 * MS);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	struct truth truth = { .cause = "lock" };
	pthread_t threads[4];

	fault = truth_begin(argc, argv);
	updater = truth.culprits[0] = actor_new();
	for (int i = 0; i < 3; i++)
		readers[i] = truth.victims[i] = actor_new();
	threads[3] = thread(update, NULL);
	for (intptr_t i = 0; i < 3; i++)
		threads[i] = thread(look_up, (void *)i);
	for (int i = 0; i < 4; i++)
		join(threads[i]);
	for (int i = 0; i < 3; i++)
		truth.cause_ns += overlap(readers[i], updater);
	truth.chain[0] = readers[0];
	truth.chain[1] = updater;
	return truth_end(&truth);
}

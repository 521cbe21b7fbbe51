// SPDX-License-Identifier: MIT OR Apache-2.0
/* (a) Mutex convoy: `holder` computes for 20 ms with the lock held, again and again; four threads want it. Off: it computes first. */
#include "truth.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct actor *holder, *waiters[5];
static bool fault, done;

static void *hold(void *unused)
{
	actor_enter(holder, "holder");
	for (int round = 0; round < 60; round++) {
		if (!fault)
			burn(20 * MS);
		pthread_mutex_lock(&lock);
		window_begin(holder);
		if (fault)
			burn(20 * MS);
		window_end(holder);
		pthread_mutex_unlock(&lock);
		sleep_for(3 * MS);
	}
	__atomic_store_n(&done, true, __ATOMIC_RELAXED);
	return unused;
}

static void *want(void *number)
{
	struct actor *self = waiters[(intptr_t)number];
	char comm[16];

	snprintf(comm, sizeof(comm), "waiter-%d", (int)(intptr_t)number);
	actor_enter(self, comm);
	while (!__atomic_load_n(&done, __ATOMIC_RELAXED)) {
		window_begin(self);
		pthread_mutex_lock(&lock);
		window_end(self);
		pthread_mutex_unlock(&lock);
		sleep_for(2 * MS);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	struct truth truth = { .cause = "lock" };
	pthread_t threads[5];

	fault = truth_begin(argc, argv);
	holder = truth.culprits[0] = actor_new();
	for (int i = 0; i < 4; i++)
		waiters[i] = truth.victims[i] = actor_new();
	threads[4] = thread(hold, NULL);
	for (intptr_t i = 0; i < 4; i++)
		threads[i] = thread(want, (void *)i);
	for (int i = 0; i < 5; i++)
		join(threads[i]);
	for (int i = 0; i < 4; i++)
		truth.cause_ns += overlap(waiters[i], holder);
	truth.chain[0] = waiters[0];
	truth.chain[1] = holder;
	return truth_end(&truth);
}

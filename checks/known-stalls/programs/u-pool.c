// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * (u) A pool of 32 idle threads beside one stalled: `stalled` wants a lock that `holder` keeps while it sleeps for 100 ms on
 * purpose; 32 wait for work that never comes. Off: the holder sleeps without the lock.
 */
#include "truth.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, pool_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work = PTHREAD_COND_INITIALIZER;
static struct actor *holder, *stalled, *idle[32];
static bool fault, done, pool_done;

static void *be_idle(void *number)
{
	char comm[16];

	snprintf(comm, sizeof(comm), "idle-%d", (int)(intptr_t)number);
	actor_enter(idle[(intptr_t)number], comm);
	pthread_mutex_lock(&pool_lock);
	while (!pool_done)
		pthread_cond_wait(&work, &pool_lock);
	pthread_mutex_unlock(&pool_lock);
	return NULL;
}

static void *hold(void *unused)
{
	actor_enter(holder, "holder");
	for (int i = 0; i < 12; i++) {
		pthread_mutex_lock(&lock);
		window_begin(holder);
		if (fault)
			sleep_for(100 * MS);
		window_end(holder);
		pthread_mutex_unlock(&lock);
		sleep_for(fault ? 5 * MS : 100 * MS);
	}
	__atomic_store_n(&done, true, __ATOMIC_RELAXED);
	return unused;
}

static void *want(void *unused)
{
	actor_enter(stalled, "stalled");
	while (!__atomic_load_n(&done, __ATOMIC_RELAXED)) {
		window_begin(stalled);
		pthread_mutex_lock(&lock);
		window_end(stalled);
		pthread_mutex_unlock(&lock);
		sleep_for(2 * MS);
	}
	return unused;
}

int main(int argc, char **argv)
{
	struct truth truth = { .cause = "lock" };
	pthread_t threads[34];

	fault = truth_begin(argc, argv);
	stalled = truth.victims[0] = truth.chain[0] = actor_new();
	holder = truth.culprits[0] = truth.chain[1] = actor_new();
	for (intptr_t i = 0; i < 32; i++) {
		idle[i] = actor_new();
		threads[i] = thread(be_idle, (void *)i);
	}
	threads[32] = thread(hold, NULL);
	threads[33] = thread(want, NULL);
	join(threads[32]);
	join(threads[33]);
	pthread_mutex_lock(&pool_lock);
	pool_done = true;
	pthread_cond_broadcast(&work);
	pthread_mutex_unlock(&pool_lock);
	for (int i = 0; i < 32; i++)
		join(threads[i]);
	truth.cause_ns = overlap(stalled, holder);
	return truth_end(&truth);
}

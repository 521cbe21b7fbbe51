// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * (b) Priority inversion: on one CPU, `high` wants the lock of `low`, which does not get the CPU because of `hog`, whose
 * priority is between theirs. Off: the lock inherits priorities.
 */
#include "truth.h"

#include <sched.h>

static pthread_mutex_t lock;
static struct actor *high, *low, *hog;
static uint32_t *go_high, *go_hog, *high_done, *hog_done;

static void realtime(int priority)
{
	struct sched_param parameters = { .sched_priority = priority };

	pin(sysconf(_SC_NPROCESSORS_ONLN) - 1);
	if (sched_setscheduler(0, SCHED_FIFO, &parameters) < 0)
		skip("SCHED_FIFO is refused: %s", strerror(errno));
}

static void *be_high(void *unused)
{
	actor_enter(high, "high");
	realtime(30);
	for (int round = 0; round < 5; round++) {
		await(go_high);
		window_begin(high);
		pthread_mutex_lock(&lock);
		window_end(high);
		pthread_mutex_unlock(&lock);
		post(high_done);
	}
	return unused;
}

static void *be_hog(void *unused)
{
	actor_enter(hog, "hog");
	realtime(20);
	for (int round = 0; round < 5; round++) {
		await(go_hog);
		window_begin(hog);
		burn(150 * MS);
		window_end(hog);
		post(hog_done);
	}
	return unused;
}

static void *be_low(void *unused)
{
	actor_enter(low, "low");
	realtime(10);
	for (int round = 0; round < 5; round++) {
		/* The kernel gives real-time threads 950 ms of each second: 150 in 250 are well below. */
		sleep_for(100 * MS);
		window_begin(low);
		pthread_mutex_lock(&lock);
		/* Runs at once, and blocks on the lock. */
		post(go_high);
		/* Runs at once, unless this thread has the priority of `high` by now. */
		post(go_hog);
		burn(1 * MS);
		pthread_mutex_unlock(&lock);
		window_end(low);
		await(high_done);
		await(hog_done);
	}
	return unused;
}

int main(int argc, char **argv)
{
	struct truth truth = { .cause = "priority-inversion" };
	bool fault = truth_begin(argc, argv);
	pthread_mutexattr_t attributes;
	pthread_t threads[3];

	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_setprotocol(&attributes, fault ? PTHREAD_PRIO_NONE : PTHREAD_PRIO_INHERIT);
	pthread_mutex_init(&lock, &attributes);
	go_high = shared(4), go_hog = shared(4), high_done = shared(4), hog_done = shared(4);
	high = truth.victims[0] = truth.chain[0] = actor_new();
	low = truth.chain[1] = actor_new();
	hog = truth.culprits[0] = truth.chain[2] = actor_new();
	threads[0] = thread(be_high, NULL);
	threads[1] = thread(be_hog, NULL);
	threads[2] = thread(be_low, NULL);
	for (int i = 0; i < 3; i++)
		join(threads[i]);
	truth.cause_ns = overlap(high, hog);
	return truth_end(&truth);
}

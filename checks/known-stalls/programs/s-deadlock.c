// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * (s) Deadlock: `left` has a lock and wants that of `right`, another process, which has one and wants left's; after 1.5 s
 * left gives up by a timeout. Off: both take the locks in the same order.
 */
#include "truth.h"

#include <time.h>

static struct actor *left, *right;
static pthread_mutex_t *locks;
static uint32_t *go_left, *go_right;
static bool fault;

static void be_left(void *unused)
{
	struct timespec until;
	uint64_t end;
	int error;

	(void)unused;
	actor_enter(left, "left");
	pthread_mutex_lock(&locks[0]);
	post(go_right);
	if (fault)
		await(go_left);
	/* 10 ms for the other to be waiting. */
	sleep_for(10 * MS);
	end = now() + 1500 * MS;
	until = (struct timespec){ end / 1000000000, end % 1000000000 };
	window_begin(left);
	error = pthread_mutex_clocklock(&locks[1], CLOCK_MONOTONIC, &until);
	window_end(left);
	if (error == 0)
		pthread_mutex_unlock(&locks[1]);
	if (error != (fault ? ETIMEDOUT : 0))
		fail("the lock said %s", strerror(error));
	pthread_mutex_unlock(&locks[0]);
}

static void be_right(void *unused)
{
	(void)unused;
	actor_enter(right, "right");
	await(go_right);
	if (fault) {
		pthread_mutex_lock(&locks[1]);
		post(go_left);
	} else {
		/* In left's order, and after it. */
		sleep_for(50 * MS);
	}
	window_begin(right);
	pthread_mutex_lock(&locks[0]);
	window_end(right);
	pthread_mutex_unlock(&locks[0]);
	if (fault)
		pthread_mutex_unlock(&locks[1]);
}

int main(int argc, char **argv)
{
	struct truth truth = { .cause = "deadlock" };
	pthread_mutexattr_t attributes;
	pid_t others[2];

	fault = truth_begin(argc, argv);
	go_left = shared(4), go_right = shared(4);
	locks = shared(2 * sizeof(*locks));
	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&locks[0], &attributes);
	pthread_mutex_init(&locks[1], &attributes);
	left = truth.victims[0] = truth.culprits[0] = truth.chain[0] = truth.chain[2] = actor_new();
	right = truth.victims[1] = truth.culprits[1] = truth.chain[1] = actor_new();
	others[0] = child(be_left, NULL);
	others[1] = child(be_right, NULL);
	look_for_end(others[0]);
	look_for_end(others[1]);
	/* Both wait at the same time, each for the other. */
	truth.cause_ns = overlap(left, right) * 2;
	return truth_end(&truth);
}

// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Threads that draw frames: frames HZ. Each waits for its beat in another call; four of them miss it once, at a time that they alone
 * know. Each writes down every frame of its own that may be late: its beat, its end, and when the thread ran again after the sleep that
 * followed. Prints them as windows in the truth of known-stalls, the last time in place of CPU time.
 *
 *     pulse-lock     timerfd     wants a mutex whose holder sleeps
 *     pulse-fsync    nanosleep   syncs a file into which another thread has written
 *     pulse-hog      ppoll       its CPU is taken by a thread under SCHED_FIFO
 *     pulse-compute  nanosleep   computes
 *     pulse-even     nanosleep   misses nothing
 *     pulse-sleeper  ppoll       draws some frames, sleeps until an event wakes it, computes for long, and draws again: misses nothing
 */
#include "../known-stalls/programs/truth.h"

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <time.h>

enum { LOCK, FSYNC, HOG, COMPUTE, EVEN, SLEEPER, PULSES };

static const char *const names[PULSES] = { "pulse-lock", "pulse-fsync", "pulse-hog", "pulse-compute", "pulse-even", "pulse-sleeper" };
/* When the planted frame begins, after the first beat. */
static const uint64_t at[PULSES] = { 4000 * MS, 6000 * MS, 9000 * MS, 11000 * MS };
#define LENGTH (13000 * MS)

static struct actor *pulses[PULSES], *holder, *hog;
static uint64_t period, stall = 300 * MS;
static uint32_t *take, *taken, *burst;
static int event, shared_file;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static struct timespec timespec_of(uint64_t ns)
{
	return (struct timespec){ ns / 1000000000, ns % 1000000000 };
}

/* Sleeps until `until`, or with 0 until an event. Each kind of thread has its one place. */
static void await_beat(int pulse, int timer, uint64_t until)
{
	struct timespec absolute = timespec_of(until);
	uint64_t count, present = now(), left = until > present ? until - present : 0;
	struct timespec relative = timespec_of(left);
	struct pollfd fd = { .fd = event, .events = pulse == SLEEPER ? POLLIN : 0 };

	if (pulse == LOCK) {
		struct itimerspec spec = { .it_value = absolute };

		must(timerfd_settime(timer, TFD_TIMER_ABSTIME, &spec, NULL), "timerfd_settime");
		must(read(timer, &count, sizeof(count)), "read");
	} else if (pulse == HOG || pulse == SLEEPER) {
		if (ppoll(&fd, 1, until ? &relative : NULL, NULL) == 1)
			must(read(event, &count, sizeof(count)), "read");
	} else {
		while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &absolute, NULL) == EINTR)
			;
	}
}

static void plant(int pulse)
{
	if (pulse == LOCK || pulse == HOG) {
		post(take);
		await(taken);
	}
	if (pulse == LOCK) {
		pthread_mutex_lock(&mutex);
		pthread_mutex_unlock(&mutex);
	} else if (pulse == FSYNC) {
		must(fsync(shared_file), "fsync");
	} else if (pulse == COMPUTE) {
		burn(stall);
	}
}

static void draw(void *argument)
{
	int pulse = (int)(intptr_t)argument, timer = must(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC), "timerfd_create");
	struct actor *actor = pulses[pulse];
	uint64_t begin, beat;
	bool planted = false, due = false;

	actor_enter(actor, names[pulse]);
	if (pulse == HOG)
		pin(0);
	begin = beat = now();
	for (int frame = 1; beat < begin + LENGTH; frame++) {
		uint64_t end, next, ran;

		if (!planted && at[pulse] && beat >= begin + at[pulse]) {
			planted = true;
			plant(pulse);
		}
		burn(MS / 2);
		/* The first frame after an event: none was due. */
		if (pulse == SLEEPER && !due && frame > 1)
			burn(100 * MS);
		end = now();
		if (pulse == SLEEPER && frame % 60 == 0) {
			post(burst);
			await_beat(pulse, timer, 0);
			beat = now();
			due = false;
			continue;
		}
		next = beat + ((end - beat) / period + 1) * period;
		await_beat(pulse, timer, next);
		ran = now();
		if (due && ran > beat + period * 3 / 2 && actor->count < WINDOWS)
			actor->window[actor->count++] = (struct window){ .begin = beat, .end = end, .ran = ran };
		beat = next;
		due = true;
	}
	post(burst);
}

static void *hold(void *unused)
{
	actor_enter(holder, "holder");
	await(take);
	pthread_mutex_lock(&mutex);
	post(taken);
	sleep_for(stall);
	pthread_mutex_unlock(&mutex);
	return unused;
}

/* Takes CPU 0 from its thread. */
static void *take_cpu(void *unused)
{
	struct sched_param parameters = { .sched_priority = 20 };

	actor_enter(hog, "hog");
	pin(0);
	if (sched_setscheduler(0, SCHED_FIFO, &parameters) < 0)
		skip("SCHED_FIFO is refused: %s", strerror(errno));
	await(take);
	post(taken);
	burn(stall);
	return unused;
}

/* Wakes the sleeper a second after it has begun to sleep. */
static void *wake(void *unused)
{
	uint64_t one = 1;

	for (;;) {
		await(burst);
		sleep_for(1000 * MS);
		must(write(event, &one, sizeof(one)), "write");
	}
	return unused;
}

static void *make_dirty(void *unused)
{
	sleep_for(at[FSYNC] - 1500 * MS);
	write_whole(shared_file, 512 * MIB);
	return unused;
}

static void *draw_thread(void *argument)
{
	draw(argument);
	return argument;
}

int main(int argc, char **argv)
{
	struct truth truth = { .cause = "frames" };
	pthread_t threads[PULSES];
	const char *argument;

	truth_begin(argc, argv);
	argument = truth_argument();
	if (!argument || atoi(argument) < 1)
		fail("the argument is HZ");
	period = 1000 * MS / atoi(argument);
	take = shared(4);
	taken = shared(4);
	burst = shared(4);
	holder = actor_new();
	hog = actor_new();
	event = must(eventfd(0, EFD_CLOEXEC), "eventfd");
	disk_folder();
	shared_file = must(open(in_folder("shared"), O_CREAT | O_WRONLY | O_CLOEXEC, 0600), "open");
	for (int pulse = 0; pulse < PULSES; pulse++)
		truth.victims[pulse] = pulses[pulse] = actor_new();
	thread(hold, NULL);
	thread(wake, NULL);
	thread(make_dirty, NULL);
	for (intptr_t pulse = 0; pulse < PULSES; pulse++)
		threads[pulse] = thread(draw_thread, (void *)pulse);
	/* The holder has its turn before. */
	sleep_for(at[LOCK] + 1000 * MS);
	thread(take_cpu, NULL);
	for (int pulse = 0; pulse < PULSES; pulse++)
		join(threads[pulse]);
	return truth_end(&truth);
}

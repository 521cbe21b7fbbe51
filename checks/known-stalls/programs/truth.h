/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the programs of known stalls share: actors that time their own waits, children that die with their parent, things
 * that are put back however the program ends, and the line of JSON with the truth.
 *
 * All times are nanoseconds of CLOCK_MONOTONIC.
 */
#pragma once

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#define MS 1000000ull
#define MIB (1024ull * 1024)
#define SKIPPED 77
#define WINDOWS 8192

/* An interval that an actor timed. */
struct window {
	uint64_t begin, end;
	uint64_t ran;	 /* CPU time of the thread within */
	uint64_t queued; /* time on a run queue within, by /proc/PID/task/TID/schedstat */
};

/* A thread that takes part. Lies in memory that all processes of the program share. */
struct actor {
	pid_t pid, tid;
	char comm[16];
	int schedstat;
	uint32_t count;
	uint64_t ran, queued; /* counters at the begin of the open window */
	uint64_t first_queued, last_queued; /* the same, when the thread became this actor and when its last window ended */
	struct window window[WINDOWS];
};

/* What happened, for the line of JSON. Lists end with NULL. */
struct truth {
	const char *cause;		/* a word of README.md */
	const char *expect;		/* "stalls", or "clean" where the fault is none by design; NULL: "stalls" */
	const char *outside;		/* an actor that is no thread: "disk"; NULL: none */
	struct actor *victims[40];	/* their windows are the time lost */
	struct actor *culprits[8];	/* any of them is a right answer */
	struct actor *chain[8];		/* from a victim to the culprit */
	const char *culprit_comm;	/* a culprit that is no actor: the begin of its name; NULL: none */
	bool without_running;		/* windows hold wanted work, too: their CPU time is no loss */
	uint64_t wanted_ns;		/* time of wanted work in the windows, which is no loss */
	uint64_t cause_ns;		/* the time lost by `cause` */
};

uint64_t now(void);
/* `a` less `b`, or 0. */
uint64_t without(uint64_t a, uint64_t b);

/* Reads the arguments (`--off`), sets a time limit of 60 s. Returns whether the fault is to be planted. */
bool truth_begin(int argc, char **argv);
/* The argument that is no flag, or NULL. */
const char *truth_argument(void);
/* Prints the truth, puts everything back, returns the exit status. */
int truth_end(struct truth *truth);

/* Ends with status 77 and this reason: the machine cannot plant the fault. */
void skip(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
/* Ends with status 1. */
void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
/* The value of a call that must not fail. */
long must(long result, const char *what);

/* Memory that is shared with children. */
void *shared(size_t bytes);
struct actor *actor_new(void);
/* The calling thread becomes this actor: gets the name, at most 15 characters. */
void actor_enter(struct actor *actor, const char *comm);
/* Time that the actor has spent on run queues so far. */
uint64_t run_delay(const struct actor *actor);
void window_begin(struct actor *actor);
/* Ends the open window. Returns its length. */
uint64_t window_end(struct actor *actor);

/* Sums over an actor's windows. */
uint64_t lost(const struct actor *actor);
uint64_t ran(const struct actor *actor);
uint64_t queued(const struct actor *actor);
/* Time on a run queue between the windows, which is lost, too. */
uint64_t queued_between(const struct actor *actor);
/* Time off the CPU and off the run queue. */
uint64_t slept(const struct actor *actor);
/* How much of the victim's windows lies within the culprit's. Each actor's windows must be in order and apart. */
uint64_t overlap(const struct actor *victim, const struct actor *culprit);
/* The same, less `usual` from each of the victim's windows: what it would have taken without the culprit. */
uint64_t overlap_beyond(const struct actor *victim, const struct actor *culprit, uint64_t usual);
/* The median length of an actor's windows, which are then forgotten: how long it takes without the fault. */
uint64_t usual_length(struct actor *actor);

/* A child that runs `body` and dies with this process. */
pid_t child(void (*body)(void *), void *argument);
pthread_t thread(void *(*body)(void *), void *argument);
/* Waits for a child's end, which is a stall. */
void wait_for(pid_t child);
/* Look every 20 ms whether a child or a thread has ended, so that the first thread sleeps on purpose and waits for nobody. */
void look_for_end(pid_t child);
void join(pthread_t thread);
void kill_and_wait(pid_t child);

/* Computes for so much CPU time of the thread. */
void burn(uint64_t ns);
void sleep_for(uint64_t ns);
void pin(int cpu);
/* Semaphores in shared memory, by futex. */
void post(uint32_t *word);
void await(uint32_t *word);

/* A folder on a disk, removed at the end with the files in it. Skips where there is no disk. */
const char *disk_folder(void);
/* A path in that folder. */
const char *in_folder(const char *name);
/*
 * A file of so many bytes, on disk. With STALLS_PREPARED=FOLDER it is left there for the next run, so that a recorded run
 * does not show how it was made.
 */
const char *prepared_file(const char *name, size_t bytes);
void write_whole(int fd, size_t bytes);

/* A control group of its own, removed at the end. `controller` is "memory" or "cpu". */
struct group {
	char path[128];
	bool unified;
};
struct group group_new(const char *controller);
/* One of version 2 without a controller, wherever version 2 is mounted: frozen processes can be killed there. */
struct group group_plain(void);
void group_write(const struct group *group, const char *file, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The number behind `key` in a file of the group; with an empty key the file's own. */
uint64_t group_read(const struct group *group, const char *file, const char *key);
void group_join(const struct group *group);
void memory_limit(const struct group *group, uint64_t bytes);
/* Swaps to a file on disk until the end. */
void swap_on(uint64_t bytes);
/* A mount namespace of its own, so that mounts end with the program. */
void own_mounts(void);

/* Loads whose threads read the kernel's own counts of their switches.
 *
 *     load ping-pong ROUNDS      two processes answer each other through pipes
 *     load threads COUNT ROUNDS  COUNT threads live at once; each sleeps, yields and waits for a lock ROUNDS times
 *     load processes COUNT       COUNT processes after one another, 8 at a time; each sleeps once and ends
 *
 * Prints a line for each thread: `thread PID TID COUNT TIMESLICES TIME`, and for each process that ended: `ended PID COUNT`. COUNT is
 * voluntary and involuntary switches, by rusage; TIMESLICES the third number of schedstat; TIME, in ns of CLOCK_MONOTONIC, when they
 * were read.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct counts {
	int tid;
	long switches, timeslices;
	long long time;
};

static void need(int good, const char *what)
{
	if (!good) {
		perror(what);
		_exit(1);
	}
}

/* The counts of the calling thread. */
static struct counts counts(void)
{
	struct counts own = { .tid = gettid() };
	struct rusage usage;
	char text[128] = "";
	int file = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
	need(file >= 0 && read(file, text, sizeof text - 1) > 0, "schedstat");
	close(file);
	need(sscanf(text, "%*s %*s %ld", &own.timeslices) == 1, "schedstat");
	need(!getrusage(RUSAGE_THREAD, &usage), "getrusage");
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	own.switches = usage.ru_nvcsw + usage.ru_nivcsw;
	own.time = now.tv_sec * 1000000000LL + now.tv_nsec;
	return own;
}

static void tell(struct counts own)
{
	printf("thread %d %d %ld %ld %lld\n", getpid(), own.tid, own.switches, own.timeslices, own.time);
	fflush(stdout);
}

/* Waits for a child, any one where `pid` is -1. */
static void reap(int pid)
{
	struct rusage usage;
	int status;
	pid = wait4(pid, &status, 0, &usage);
	need(pid > 0 && status == 0, "a child");
	printf("ended %d %ld\n", pid, usage.ru_nvcsw + usage.ru_nivcsw);
}

static int ping_pong(int rounds)
{
	int there[2], back[2];
	char byte = 0;
	need(!pipe(there) && !pipe(back), "pipe");
	int child = fork();
	need(child >= 0, "fork");
	int from = child ? back[0] : there[0], to = child ? there[1] : back[1];
	for (int i = 0; i < rounds; i++) {
		if (child)
			need(write(to, &byte, 1) == 1, "write");
		need(read(from, &byte, 1) == 1, "read");
		if (!child)
			need(write(to, &byte, 1) == 1, "write");
	}
	if (!child) {
		tell(counts());
		_exit(0);
	}
	tell(counts());
	reap(child);
	return 0;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t all;
static int rounds;

static void *thread(void *own)
{
	pthread_barrier_wait(&all);
	for (int i = 0; i < rounds; i++) {
		struct timespec pause = { .tv_nsec = 1000000 };
		nanosleep(&pause, 0);
		sched_yield();
		pthread_mutex_lock(&lock);
		for (volatile int spin = 0; spin < 200; spin++)
			;
		pthread_mutex_unlock(&lock);
	}
	*(struct counts *)own = counts();
	return 0;
}

static int threads(int count)
{
	struct counts *found = calloc(count, sizeof *found);
	pthread_t *ids = calloc(count, sizeof *ids);
	pthread_attr_t small;
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 1 << 16);
	need(found && ids && !pthread_barrier_init(&all, 0, count), "memory");
	for (int i = 0; i < count; i++)
		need(!pthread_create(&ids[i], &small, thread, &found[i]), "pthread_create");
	for (int i = 0; i < count; i++)
		pthread_join(ids[i], 0);
	for (int i = 0; i < count; i++)
		tell(found[i]);
	return 0;
}

static int processes(int count)
{
	int live = 0;
	for (int i = 0; i < count; i++) {
		if (live == 8) {
			reap(-1);
			live--;
		}
		fflush(stdout);
		int child = fork();
		need(child >= 0, "fork");
		if (!child) {
			usleep(200);
			/* Another program, as a shell's commands are. */
			execl("/bin/true", "true", (char *)0);
			_exit(1);
		}
		live++;
	}
	while (live--)
		reap(-1);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "ping-pong"))
		return ping_pong(atoi(argv[2]));
	if (argc == 4 && !strcmp(argv[1], "threads")) {
		rounds = atoi(argv[3]);
		return threads(atoi(argv[2]));
	}
	if (argc == 3 && !strcmp(argv[1], "processes"))
		return processes(atoi(argv[2]));
	fprintf(stderr, "load ping-pong ROUNDS | threads COUNT ROUNDS | processes COUNT\n");
	return 1;
}

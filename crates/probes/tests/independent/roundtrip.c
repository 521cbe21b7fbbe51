/*
 * Counts context switches a round trip of a client and a server on one CPU, without any of stopgap's code.
 *
 *   roundtrip CLIENT REPLY BATCH WORK_NS ROUND_TRIPS CPU
 *
 * CLIENT waits by poll, epoll or read. The server waits by poll and answers a batch by one writev (together) or a
 * write a reply (each), after WORK_NS of CPU time on each request. Prints switch-outs of both, divided by ROUND_TRIPS.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MESSAGE 32
#define MOST 1024
static char buffer[MOST * MESSAGE];

static void check(int good, const char *what)
{
	if (!good) {
		perror(what);
		_exit(1);
	}
}

static long cpu_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

static long switches(void)
{
	struct rusage usage;
	check(!getrusage(RUSAGE_SELF, &usage), "getrusage");
	return usage.ru_nvcsw + usage.ru_nivcsw;
}

/* Gives the switches from the first request on to the last reply. */
static long serve(int fd, int each, long work, long requests)
{
	struct pollfd in = {fd, POLLIN, 0};
	struct iovec replies[MOST];
	long before = 0, done = 0;

	while (done < requests) {
		check(poll(&in, 1, -1) == 1, "poll");
		long count = read(fd, buffer, sizeof buffer) / MESSAGE;
		check(count > 0, "read");
		if (!done)
			before = switches();
		for (long i = 0; i < count; i++) {
			long end = work ? cpu_ns() + work : 0;
			while (work && cpu_ns() < end)
				;
			replies[i] = (struct iovec){buffer, MESSAGE};
			if (each)
				check(write(fd, buffer, MESSAGE) == MESSAGE, "write");
		}
		if (!each)
			check(writev(fd, replies, count) == count * MESSAGE, "writev");
		done += count;
	}
	return switches() - before;
}

static long ask(int fd, const char *wait, int batch, long round_trips)
{
	struct pollfd in = {fd, POLLIN, 0};
	struct epoll_event event = {EPOLLIN, {0}};
	int epoll = epoll_create1(0);
	check(!epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event), "epoll_ctl");
	long before = switches();

	while (round_trips--) {
		check(write(fd, buffer, batch * MESSAGE) == batch * MESSAGE, "write");
		for (long left = batch * MESSAGE; left > 0;) {
			if (*wait == 'p')
				check(poll(&in, 1, -1) == 1, "poll");
			else if (*wait == 'e')
				check(epoll_wait(epoll, &event, 1, -1) == 1, "epoll_wait");
			long count = read(fd, buffer, sizeof buffer);
			check(count > 0, "read");
			left -= count;
		}
	}
	return switches() - before;
}

int main(int count, char **words)
{
	int ends[2], told[2];
	cpu_set_t cpus;
	long served;

	check(count == 7 && atoi(words[3]) > 0 && atoi(words[3]) <= MOST, "usage");
	int batch = atoi(words[3]);
	long work = atol(words[4]), round_trips = atol(words[5]);
	CPU_ZERO(&cpus);
	CPU_SET(atoi(words[6]), &cpus);
	check(!sched_setaffinity(0, sizeof cpus, &cpus), "sched_setaffinity");
	check(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends) && !pipe(told), "socketpair");
	pid_t server = fork();
	check(server >= 0, "fork");
	if (!server) {
		close(ends[1]);
		served = serve(ends[0], !strcmp(words[2], "each"), work, round_trips * batch);
		_exit(write(told[1], &served, sizeof served) != sizeof served);
	}
	close(ends[0]);
	close(told[1]);
	long asked = ask(ends[1], words[1], batch, round_trips);
	check(read(told[0], &served, sizeof served) == sizeof served, "the server's count");
	printf("%.4f\n", (double)(asked + served) / round_trips);
	return waitpid(server, NULL, 0) != server;
}

// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * (a) Frame callback: `client` commits a frame to `compositor` by a Unix socket and polls for the callback. The compositor is
 * an event loop: a timer each 16 ms, and rendering takes 25 ms of CPU. Off: rendering takes 20 us, and the client waits for
 * the timer.
 */
#include "../programs/truth.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

static struct actor *client, *compositor;
static bool fault;
static int ends[2];

static void compose(void *unused)
{
	int timer = must(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC), "timerfd_create");
	int loop = must(epoll_create1(EPOLL_CLOEXEC), "epoll_create1");
	struct itimerspec each = { { 0, 16 * MS }, { 0, 16 * MS } };
	struct epoll_event ready[2] = { { .events = EPOLLIN, .data.fd = timer }, { .events = EPOLLIN, .data.fd = ends[1] } };
	bool committed = false;
	uint64_t ticks;
	char byte;

	(void)unused;
	actor_enter(compositor, "compositor");
	for (int i = 0; i < 2; i++)
		must(epoll_ctl(loop, EPOLL_CTL_ADD, ready[i].data.fd, &ready[i]), "epoll_ctl");
	must(timerfd_settime(timer, 0, &each, NULL), "timerfd_settime");
	for (;;) {
		int count = must(epoll_wait(loop, ready, 2, -1), "epoll_wait");
		bool tick = false;

		for (int i = 0; i < count; i++) {
			if (ready[i].data.fd == timer)
				tick = must(read(timer, &ticks, sizeof(ticks)), "read") > 0;
			else if (must(read(ends[1], &byte, 1), "read") == 1)
				committed = true;
			else
				return;
		}
		if (!tick)
			continue;
		window_begin(compositor);
		burn(fault ? 25 * MS : MS / 50);
		window_end(compositor);
		if (committed)
			must(write(ends[1], &byte, 1), "write");
		committed = false;
	}
}

static void draw(void *unused)
{
	uint64_t end = now() + 1800 * MS;
	char byte = 'f';

	(void)unused;
	actor_enter(client, "client");
	while (now() < end) {
		struct pollfd callback = { .fd = ends[0], .events = POLLIN };

		burn(1 * MS);
		window_begin(client);
		must(write(ends[0], &byte, 1), "write");
		must(poll(&callback, 1, -1), "poll");
		window_end(client);
		must(read(ends[0], &byte, 1), "read");
	}
}

int main(int argc, char **argv)
{
	struct truth truth = { .cause = "server" };
	pid_t other;

	fault = truth_begin(argc, argv);
	must(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), "socketpair");
	client = truth.victims[0] = truth.chain[0] = actor_new();
	compositor = truth.culprits[0] = truth.chain[1] = actor_new();
	other = child(compose, NULL);
	look_for_end(child(draw, NULL));
	kill_and_wait(other);
	/* Rendering may wait for a CPU on a busy machine: that is another cause. */
	truth.cause_ns = without(overlap(client, compositor), queued(compositor));
	return truth_end(&truth);
}

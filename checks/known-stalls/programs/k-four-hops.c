// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * (k) Four hops: `first` asks by a pipe, who is asked asks on by a Unix socket, that one by TCP, that one by a futex in
 * shared memory, and `last` sleeps for 50 ms on purpose before it answers. Off: it answers at once.
 */
#include "truth.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

static struct actor *first, *by_pipe, *by_unix, *by_tcp, *last;
static int ask_pipe[2], answer_pipe[2], unix_ends[2], tcp_ends[2];
static uint32_t *ask_futex, *answer_futex;
static bool fault;

static void send_one(int fd)
{
	must(write(fd, "x", 1), "write");
}

static void take_one(int fd)
{
	char byte;

	if (must(read(fd, &byte, 1), "read") != 1)
		_exit(0);
}

static void be_last(void *unused)
{
	(void)unused;
	actor_enter(last, "last");
	for (;;) {
		await(ask_futex);
		window_begin(last);
		if (fault)
			sleep_for(50 * MS);
		window_end(last);
		post(answer_futex);
	}
}

static void be_by_tcp(void *unused)
{
	(void)unused;
	actor_enter(by_tcp, "by-tcp");
	for (;;) {
		take_one(tcp_ends[1]);
		post(ask_futex);
		await(answer_futex);
		send_one(tcp_ends[1]);
	}
}

static void be_by_unix(void *unused)
{
	(void)unused;
	actor_enter(by_unix, "by-unix");
	for (;;) {
		take_one(unix_ends[1]);
		send_one(tcp_ends[0]);
		take_one(tcp_ends[0]);
		send_one(unix_ends[1]);
	}
}

static void be_by_pipe(void *unused)
{
	(void)unused;
	actor_enter(by_pipe, "by-pipe");
	for (;;) {
		take_one(ask_pipe[0]);
		send_one(unix_ends[0]);
		take_one(unix_ends[0]);
		send_one(answer_pipe[1]);
	}
}

static void be_first(void *unused)
{
	(void)unused;
	actor_enter(first, "first");
	for (int i = 0; i < 25; i++) {
		window_begin(first);
		send_one(ask_pipe[1]);
		take_one(answer_pipe[0]);
		window_end(first);
		sleep_for(2 * MS);
	}
}

static void connect_tcp(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof(address);
	int listener = must(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket"), on = 1;

	must(bind(listener, (struct sockaddr *)&address, length), "bind");
	must(listen(listener, 1), "listen");
	must(getsockname(listener, (struct sockaddr *)&address, &length), "getsockname");
	tcp_ends[0] = must(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
	must(connect(tcp_ends[0], (struct sockaddr *)&address, length), "connect");
	tcp_ends[1] = must(accept(listener, NULL, NULL), "accept");
	setsockopt(tcp_ends[0], IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(tcp_ends[1], IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	close(listener);
}

int main(int argc, char **argv)
{
	struct truth truth = { .cause = "sleep-on-purpose" };
	pid_t others[4];

	fault = truth_begin(argc, argv);
	must(pipe2(ask_pipe, O_CLOEXEC), "pipe");
	must(pipe2(answer_pipe, O_CLOEXEC), "pipe");
	must(socketpair(AF_UNIX, SOCK_STREAM, 0, unix_ends), "socketpair");
	connect_tcp();
	ask_futex = shared(4);
	answer_futex = shared(4);
	first = truth.victims[0] = truth.chain[0] = actor_new();
	by_pipe = truth.chain[1] = actor_new();
	by_unix = truth.chain[2] = actor_new();
	by_tcp = truth.chain[3] = actor_new();
	last = truth.culprits[0] = truth.chain[4] = actor_new();
	others[0] = child(be_last, NULL);
	others[1] = child(be_by_tcp, NULL);
	others[2] = child(be_by_unix, NULL);
	others[3] = child(be_by_pipe, NULL);
	look_for_end(child(be_first, NULL));
	for (int i = 0; i < 4; i++)
		kill_and_wait(others[i]);
	truth.cause_ns = overlap(first, last);
	return truth_end(&truth);
}

// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * (9) A server that accepts late: two clients connect by TCP, which succeeds by the backlog, send a request and wait for the
 * answer; `server` computes for 40 ms between two looks at its listening socket. Off: it does not.
 */
#include "../programs/truth.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>

static struct actor *clients[2], *server;
static struct sockaddr_in address = { .sin_family = AF_INET };
static int listener;
static bool fault;

static void serve(void *unused)
{
	struct pollfd ready = { .fd = listener, .events = POLLIN };
	char request[64];

	(void)unused;
	actor_enter(server, "server");
	for (;;) {
		int connection;

		window_begin(server);
		if (fault)
			burn(40 * MS);
		window_end(server);
		must(poll(&ready, 1, 5), "poll");
		while ((connection = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
			must(read(connection, request, sizeof(request)), "read");
			must(write(connection, "HTTP/1.0 204\r\n\r\n", 16), "write");
			close(connection);
		}
	}
}

static void ask(void *number)
{
	struct actor *self = clients[(intptr_t)number];
	uint64_t end = now() + 1500 * MS;
	char comm[16], answer[64];

	snprintf(comm, sizeof(comm), "client-%d", (int)(intptr_t)number);
	actor_enter(self, comm);
	while (now() < end) {
		int fd = must(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");

		window_begin(self);
		must(connect(fd, (struct sockaddr *)&address, sizeof(address)), "connect");
		must(write(fd, "GET / HTTP/1.0\r\n\r\n", 18), "write");
		must(read(fd, answer, sizeof(answer)), "read");
		window_end(self);
		close(fd);
		sleep_for(4 * MS);
	}
}

int main(int argc, char **argv)
{
	struct truth truth = { .cause = "server" };
	socklen_t length = sizeof(address);
	pid_t other, asking[2];

	fault = truth_begin(argc, argv);
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	listener = must(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), "socket");
	must(bind(listener, (struct sockaddr *)&address, length), "bind");
	must(listen(listener, 16), "listen");
	must(getsockname(listener, (struct sockaddr *)&address, &length), "getsockname");
	server = truth.culprits[0] = truth.chain[1] = actor_new();
	for (int i = 0; i < 2; i++)
		clients[i] = truth.victims[i] = actor_new();
	truth.chain[0] = clients[0];
	other = child(serve, NULL);
	for (intptr_t i = 0; i < 2; i++)
		asking[i] = child(ask, (void *)i);
	for (int i = 0; i < 2; i++)
		look_for_end(asking[i]);
	kill_and_wait(other);
	for (int i = 0; i < 2; i++)
		truth.cause_ns += overlap(clients[i], server);
	return truth_end(&truth);
}

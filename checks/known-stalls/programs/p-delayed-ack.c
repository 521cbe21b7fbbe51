// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * (p) Delayed ACK against Nagle: `client` writes a request in two parts; its kernel holds the second back until the first
 * is acknowledged, and the server's kernel acknowledges after 40 ms, because `server` has nothing to answer yet. The cause is
 * the time for which the server waited for the second part while the client had already written it. Off: TCP_NODELAY.
 */
#include "truth.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

static struct actor *client, *server;
static int ends[2];

static void set(int fd, int option, int value)
{
	must(setsockopt(fd, IPPROTO_TCP, option, &value, sizeof(value)), "setsockopt");
}

/* Takes so many bytes. Returns whether they came. */
static bool take(int fd, size_t bytes)
{
	char data[64];

	while (bytes > 0) {
		ssize_t got = must(read(fd, data, bytes), "read");

		if (got == 0)
			return false;
		bytes -= got;
	}
	return true;
}

static void serve(void *unused)
{
	(void)unused;
	actor_enter(server, "server");
	for (;;) {
		/* The kernel acknowledges at once for some time, of a young connection for instance. */
		set(ends[1], TCP_QUICKACK, 0);
		if (!take(ends[1], 16))
			return;
		window_begin(server);
		set(ends[1], TCP_QUICKACK, 0);
		if (!take(ends[1], 16))
			return;
		window_end(server);
		must(write(ends[1], "0123456789abcdef", 16), "write");
	}
}

static void ask(void *unused)
{
	(void)unused;
	actor_enter(client, "client");
	for (int i = 0; i < 30; i++) {
		must(write(ends[0], "head 0123456789:", 16), "write");
		must(write(ends[0], "body 0123456789.", 16), "write");
		window_begin(client);
		take(ends[0], 16);
		window_end(client);
		sleep_for(3 * MS);
	}
}

int main(int argc, char **argv)
{
	struct truth truth = { .cause = "delayed-ack", .outside = "TCP" };
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof(address);
	bool fault = truth_begin(argc, argv);
	int listener = must(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
	pid_t other;

	must(bind(listener, (struct sockaddr *)&address, length), "bind");
	must(listen(listener, 1), "listen");
	must(getsockname(listener, (struct sockaddr *)&address, &length), "getsockname");
	ends[0] = must(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
	must(connect(ends[0], (struct sockaddr *)&address, length), "connect");
	ends[1] = must(accept(listener, NULL, NULL), "accept");
	if (!fault)
		set(ends[0], TCP_NODELAY, 1);
	client = truth.victims[0] = truth.chain[0] = actor_new();
	server = truth.culprits[0] = truth.chain[1] = actor_new();
	other = child(serve, NULL);
	look_for_end(child(ask, NULL));
	kill_and_wait(other);
	truth.cause_ns = overlap(client, server);
	return truth_end(&truth);
}

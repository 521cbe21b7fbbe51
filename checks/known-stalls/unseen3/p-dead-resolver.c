// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * (p) The first name server is dead: `browser` asks `resolver` for a name by a Unix socket; the resolver asks the first server by UDP,
 * gets no answer and gives up after 60 ms (poll), then asks the second one, `dnsmasq`, which answers at once. Off: the first
 * server is dnsmasq.
 */
#include "../programs/truth.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>

static struct actor *browser, *resolver, *dnsmasq;
static int ends[2], servers[2];
static bool fault;

static struct sockaddr_in address_of(int fd)
{
	struct sockaddr_in address;
	socklen_t length = sizeof(address);

	must(getsockname(fd, (struct sockaddr *)&address, &length), "getsockname");
	return address;
}

static void answer(void *unused)
{
	struct sockaddr_in from;
	char query[64];

	(void)unused;
	actor_enter(dnsmasq, "dnsmasq");
	for (;;) {
		socklen_t length = sizeof(from);
		ssize_t bytes = must(recvfrom(servers[1], query, sizeof(query), 0, (struct sockaddr *)&from, &length), "recvfrom");

		must(sendto(servers[1], query, bytes, 0, (struct sockaddr *)&from, length), "sendto");
	}
}

static void resolve(void *unused)
{
	struct sockaddr_in order[2] = { address_of(servers[fault ? 0 : 1]), address_of(servers[1]) };
	char query[64];

	(void)unused;
	actor_enter(resolver, "resolver");
	for (;;) {
		ssize_t bytes = must(read(ends[1], query, sizeof(query)), "read");
		/* A port of its own for each query. */
		int fd = must(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), "socket");
		struct pollfd answered = { .fd = fd, .events = POLLIN };

		if (bytes == 0)
			return;
		for (int i = 0; i < 2; i++) {
			bool dead = fault && i == 0;
			long ready;

			must(sendto(fd, query, bytes, 0, (struct sockaddr *)&order[i], sizeof(order[i])), "sendto");
			if (dead)
				window_begin(resolver);
			ready = must(poll(&answered, 1, dead ? 60 : 5000), "poll");
			if (dead)
				window_end(resolver);
			if (ready)
				break;
		}
		must(recv(fd, query, sizeof(query), 0), "recv");
		close(fd);
		must(write(ends[1], query, bytes), "write");
	}
}

static void browse(void *unused)
{
	char name[64] = "www.example.org";

	(void)unused;
	actor_enter(browser, "browser");
	for (int i = 0; i < 20; i++) {
		window_begin(browser);
		must(write(ends[0], name, sizeof(name)), "write");
		must(read(ends[0], name, sizeof(name)), "read");
		window_end(browser);
		sleep_for(5 * MS);
	}
}

int main(int argc, char **argv)
{
	struct truth truth = { .cause = "sleep-on-purpose" };
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	pid_t others[2];

	fault = truth_begin(argc, argv);
	must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), "socketpair");
	/* Nobody reads from the first one. */
	for (int i = 0; i < 2; i++) {
		servers[i] = must(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), "socket");
		must(bind(servers[i], (struct sockaddr *)&any, sizeof(any)), "bind");
	}
	browser = truth.victims[0] = truth.chain[0] = actor_new();
	resolver = truth.culprits[0] = truth.chain[1] = actor_new();
	dnsmasq = actor_new();
	others[0] = child(answer, NULL);
	others[1] = child(resolve, NULL);
	look_for_end(child(browse, NULL));
	for (int i = 0; i < 2; i++)
		kill_and_wait(others[i]);
	truth.cause_ns = overlap(browser, resolver);
	return truth_end(&truth);
}

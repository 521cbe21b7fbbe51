// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * (c) Head of line: `web`, a server of one thread, answers two clients by TCP. It sends a file of 1 MiB to `modem` by
 * sendfile, which waits for room in the socket: modem reads 32 KiB and sleeps for 5 ms. `visitor` asks for a byte. Off: modem
 * does not sleep.
 */
#include "../programs/truth.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define LENGTH MIB

static struct actor *visitor, *web, *modem;
static bool fault;
static struct sockaddr_in address = { .sin_family = AF_INET };
static int listener;

static int connected(void)
{
	int fd = must(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");

	must(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &(int){ 128 * 1024 }, sizeof(int)), "SO_RCVBUF");
	must(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int)), "TCP_NODELAY");
	must(connect(fd, (struct sockaddr *)&address, sizeof(address)), "connect");
	return fd;
}

static void serve(void *unused)
{
	int file = must(open(in_folder("page"), O_CREAT | O_RDWR | O_CLOEXEC, 0600), "page");
	struct pollfd clients[2];
	char request;

	(void)unused;
	actor_enter(web, "web");
	write_whole(file, LENGTH);
	for (int i = 0; i < 2; i++) {
		clients[i] = (struct pollfd){ .fd = must(accept4(listener, NULL, NULL, SOCK_CLOEXEC), "accept"), .events = POLLIN };
		must(setsockopt(clients[i].fd, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int)), "TCP_NODELAY");
	}
	for (;;) {
		must(poll(clients, 2, -1), "poll");
		for (int i = 0; i < 2; i++) {
			off_t from = 0;

			if (!clients[i].revents)
				continue;
			if (read(clients[i].fd, &request, 1) != 1)
				return;
			if (request == 'v')
				must(write(clients[i].fd, &request, 1), "write");
			while (request == 'm' && from < (off_t)LENGTH)
				if (sendfile(clients[i].fd, file, &from, LENGTH - from) <= 0)
					return;
		}
	}
}

static void download(void *unused)
{
	static char piece[32 * 1024];
	int fd = connected();

	(void)unused;
	actor_enter(modem, "modem");
	for (;;) {
		sleep_for(30 * MS);
		must(write(fd, "m", 1), "write");
		for (size_t got = 0; got < LENGTH;) {
			ssize_t length = must(recv(fd, piece, sizeof(piece), MSG_WAITALL), "recv");

			if (length == 0)
				return;
			got += length;
			window_begin(modem);
			if (fault)
				sleep_for(5 * MS);
			window_end(modem);
		}
	}
}

static void visit(void *unused)
{
	int fd = connected();
	uint64_t end = now() + 1800 * MS;
	char byte = 'v';

	(void)unused;
	actor_enter(visitor, "visitor");
	while (now() < end) {
		window_begin(visitor);
		must(write(fd, &byte, 1), "write");
		must(read(fd, &byte, 1), "read");
		window_end(visitor);
		sleep_for(5 * MS);
	}
}

int main(int argc, char **argv)
{
	struct truth truth = { .cause = "sleep-on-purpose" };
	socklen_t length = sizeof(address);
	pid_t others[2];

	fault = truth_begin(argc, argv);
	disk_folder();
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	listener = must(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
	/* Short packets: one of 64 KiB would have to wait until the window is that wide. */
	must(setsockopt(listener, IPPROTO_TCP, TCP_MAXSEG, &(int){ 1448 }, sizeof(int)), "TCP_MAXSEG");
	must(setsockopt(listener, SOL_SOCKET, SO_SNDBUF, &(int){ 64 * 1024 }, sizeof(int)), "SO_SNDBUF");
	must(bind(listener, (struct sockaddr *)&address, sizeof(address)), "bind");
	must(listen(listener, 8), "listen");
	must(getsockname(listener, (struct sockaddr *)&address, &length), "getsockname");
	visitor = truth.victims[0] = truth.chain[0] = actor_new();
	web = truth.chain[1] = actor_new();
	modem = truth.culprits[0] = truth.chain[2] = actor_new();
	others[0] = child(serve, NULL);
	others[1] = child(download, NULL);
	look_for_end(child(visit, NULL));
	kill_and_wait(others[1]);
	kill_and_wait(others[0]);
	truth.cause_ns = overlap(visitor, modem);
	return truth_end(&truth);
}

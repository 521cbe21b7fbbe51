// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * (t) A key-value store that forks to save: `store` has 1 GiB of memory, of which each fork copies the page tables; meanwhile it answers
 * nobody. `client` has it save with each second request, by TCP. Off: it does not save.
 */
#include "../programs/truth.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>

static struct actor *client, *store;
static uint32_t *ready;
static int ends[2];
static bool fault;

static void be_store(void *unused)
{
	size_t size = fault ? 1024 * MIB : MIB;
	char *data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char command;

	(void)unused;
	actor_enter(store, "store");
	if (data == MAP_FAILED)
		skip("no memory: %s", strerror(errno));
	madvise(data, size, MADV_NOHUGEPAGE);
	memset(data, 1, size);
	signal(SIGCHLD, SIG_IGN);
	post(ready);
	while (must(read(ends[1], &command, 1), "read") == 1) {
		if (command == 's') {
			window_begin(store);
			if (fault && must(fork(), "fork") == 0) {
				/* Who saves ends while the client sleeps: that takes 10 ms of a CPU. */
				sleep_for(3 * MS);
				_exit(0);
			}
			window_end(store);
		}
		must(write(ends[1], &command, 1), "write");
	}
}

static void ask(void *unused)
{
	(void)unused;
	actor_enter(client, "client");
	await(ready);
	for (int i = 0; i < 80; i++) {
		char command = i % 2 ? 's' : 'g';

		window_begin(client);
		must(write(ends[0], &command, 1), "write");
		must(read(ends[0], &command, 1), "read");
		window_end(client);
		sleep_for((command == 's' ? 25 : 4) * MS);
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
	ends[0] = must(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
	must(connect(ends[0], (struct sockaddr *)&address, length), "connect");
	ends[1] = must(accept(listener, NULL, NULL), "accept");
	for (int i = 0; i < 2; i++)
		setsockopt(ends[i], IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	close(listener);
}

int main(int argc, char **argv)
{
	struct truth truth = { .cause = "server" };
	pid_t stores;

	fault = truth_begin(argc, argv);
	connect_tcp();
	ready = shared(4);
	client = truth.victims[0] = truth.chain[0] = actor_new();
	store = truth.culprits[0] = truth.chain[1] = actor_new();
	stores = child(be_store, NULL);
	look_for_end(child(ask, NULL));
	kill_and_wait(stores);
	truth.cause_ns = overlap(client, store);
	return truth_end(&truth);
}

// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * (j) Client, server, disk: `client` asks `server` by a Unix socket; the server appends 4 KiB and calls fsync before it
 * answers; `writer` keeps the disk busy. What a request takes without the writer is measured first and is no part of the
 * cause, nor is the time in which client or server waited for a CPU: the writer takes one, too. Off: the writer sleeps.
 */
#include "truth.h"

#include <sys/socket.h>

static struct actor *client, *server, *writer;
static uint64_t *usual;
static uint32_t *go;
static bool fault;
static int ends[2];

static void write_on(void *unused)
{
	int fd = must(open(in_folder("much"), O_CREAT | O_WRONLY | O_CLOEXEC, 0600), "much");

	(void)unused;
	actor_enter(writer, "writer");
	await(go);
	if (!fault)
		sleep_for(10000 * MS);
	for (;;) {
		/* The disk discards what is cut off: that is the writer's, too. */
		window_begin(writer);
		must(ftruncate(fd, 0), "ftruncate");
		must(lseek(fd, 0, SEEK_SET), "lseek");
		write_whole(fd, 96 * MIB);
		must(fdatasync(fd), "fdatasync");
		window_end(writer);
	}
}

static void serve(void *unused)
{
	int fd = must(open(in_folder("log"), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600), "log");
	char request;

	(void)unused;
	actor_enter(server, "server");
	while (must(read(ends[1], &request, 1), "read") == 1) {
		write_whole(fd, 4096);
		window_begin(server);
		must(fsync(fd), "fsync");
		window_end(server);
		must(write(ends[1], &request, 1), "write");
	}
}

static void ask(void)
{
	char byte = 'x';

	window_begin(client);
	must(write(ends[0], &byte, 1), "write");
	must(read(ends[0], &byte, 1), "read");
	window_end(client);
	sleep_for(5 * MS);
}

static void be_client(void *unused)
{
	uint64_t end;

	(void)unused;
	actor_enter(client, "client");
	for (int i = 0; i < 11; i++)
		ask();
	*usual = usual_length(client);
	post(go);
	end = now() + 2000 * MS;
	while (now() < end)
		ask();
}

int main(int argc, char **argv)
{
	struct truth truth = { .cause = "fsync", .outside = "disk" };
	pid_t others[2];

	fault = truth_begin(argc, argv);
	disk_folder();
	usual = shared(sizeof(*usual));
	go = shared(sizeof(*go));
	must(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), "socketpair");
	client = truth.victims[0] = truth.chain[0] = actor_new();
	server = truth.chain[1] = actor_new();
	writer = truth.culprits[0] = truth.chain[2] = actor_new();
	others[0] = child(serve, NULL);
	others[1] = child(write_on, NULL);
	look_for_end(child(be_client, NULL));
	kill_and_wait(others[0]);
	kill_and_wait(others[1]);
	truth.cause_ns = without(overlap_beyond(client, writer, *usual), queued(client) + queued(server) + queued_between(server));
	return truth_end(&truth);
}

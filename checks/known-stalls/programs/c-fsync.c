// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * (c) fsync behind another process's writes: `writer` writes 96 MiB and waits until they are on disk, again and again;
 * `logger` appends 4 KiB to another file and calls fsync. What fsync takes without the writer is measured first and is no
 * part of the cause, nor is the time in which the logger waited for a CPU: the writer takes one, too. Off: the writer sleeps.
 */
#include "truth.h"

static struct actor *logger, *writer;
static uint64_t *usual;
static uint32_t *go;
static bool fault;

static void write_on(void *unused)
{
	int fd = must(open(in_folder("much"), O_CREAT | O_WRONLY | O_CLOEXEC, 0600), "much");

	(void)unused;
	actor_enter(writer, "writer");
	await(go);
	if (!fault)
		sleep_for(10000 * MS);
	for (;;) {
		/* New blocks each time, so that the journal has to tell of them. */
		/* The disk discards what is cut off: that is the writer's, too. */
		window_begin(writer);
		must(ftruncate(fd, 0), "ftruncate");
		must(lseek(fd, 0, SEEK_SET), "lseek");
		write_whole(fd, 96 * MIB);
		must(fdatasync(fd), "fdatasync");
		window_end(writer);
	}
}

static void append(int fd)
{
	write_whole(fd, 4096);
	window_begin(logger);
	must(fsync(fd), "fsync");
	window_end(logger);
	sleep_for(5 * MS);
}

static void log_on(void *unused)
{
	int fd = must(open(in_folder("log"), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600), "log");
	uint64_t end;

	(void)unused;
	actor_enter(logger, "logger");
	for (int i = 0; i < 11; i++)
		append(fd);
	*usual = usual_length(logger);
	post(go);
	end = now() + 2000 * MS;
	while (now() < end)
		append(fd);
}

int main(int argc, char **argv)
{
	struct truth truth = { .cause = "fsync", .outside = "disk" };
	pid_t other;

	fault = truth_begin(argc, argv);
	disk_folder();
	usual = shared(sizeof(*usual));
	go = shared(sizeof(*go));
	logger = truth.victims[0] = truth.chain[0] = actor_new();
	writer = truth.culprits[0] = truth.chain[1] = actor_new();
	other = child(write_on, NULL);
	look_for_end(child(log_on, NULL));
	kill_and_wait(other);
	truth.cause_ns = without(overlap_beyond(logger, writer, *usual), queued(logger));
	return truth_end(&truth);
}

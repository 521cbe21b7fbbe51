// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * (6) A pipe whose reader does not get the CPU: `feeder` writes 64 KiB at a time; `parser` reads them and computes for 2 ms,
 * at nice 10 on a CPU that `hog` computes on. The cause is the parser's time on the run queue, as far as the feeder waited
 * meanwhile. Off: the hog sleeps.
 */
#include "../programs/truth.h"

#include <sys/resource.h>

#define PIECE 65536
#define PIECES 60

static struct actor *feeder, *parser, *hog;
static int ends[2];
static bool fault;

static void be_hog(void *unused)
{
	(void)unused;
	actor_enter(hog, "hog");
	pin(0);
	if (!fault)
		sleep_for(20000 * MS);
	burn(20000 * MS);
}

static void parse(void *unused)
{
	static char data[PIECE];

	(void)unused;
	close(ends[1]);
	actor_enter(parser, "parser");
	pin(0);
	must(setpriority(PRIO_PROCESS, 0, 10), "setpriority");
	for (int piece = 0; piece < PIECES; piece++) {
		window_begin(parser);
		for (size_t have = 0; have < PIECE;) {
			ssize_t got = must(read(ends[0], data, PIECE - have), "read");

			if (got == 0)
				fail("the pipe ended early");
			have += got;
		}
		burn(2 * MS);
		window_end(parser);
	}
}

static void feed(void *unused)
{
	static char data[PIECE];
	uint64_t end = now() + 1800 * MS;

	(void)unused;
	close(ends[0]);
	actor_enter(feeder, "feeder");
	pin(1);
	for (int piece = 0; piece < PIECES && now() < end; piece++) {
		window_begin(feeder);
		must(write(ends[1], data, PIECE), "write");
		window_end(feeder);
	}
	/* The parser's end is not waited for. */
	sleep_for(5 * MS);
}

int main(int argc, char **argv)
{
	struct truth truth = { .cause = "run-queue" };
	uint64_t both, waited;
	pid_t others[2];

	fault = truth_begin(argc, argv);
	must(pipe2(ends, O_CLOEXEC), "pipe");
	feeder = truth.victims[0] = truth.chain[0] = actor_new();
	parser = truth.chain[1] = actor_new();
	hog = truth.culprits[0] = truth.chain[2] = actor_new();
	others[0] = child(be_hog, NULL);
	others[1] = child(parse, NULL);
	sleep_for(30 * MS);
	look_for_end(child(feed, NULL));
	kill_and_wait(others[0]);
	kill_and_wait(others[1]);
	both = overlap(feeder, parser);
	waited = queued(parser);
	truth.cause_ns = both < waited ? both : waited;
	return truth_end(&truth);
}

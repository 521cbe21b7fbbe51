// SPDX-License-Identifier: MIT OR Apache-2.0
/* A storm of waits: two processes on one CPU wake each other by pipes, as often as they can: storm CPU. Ends with its parent. */
#include "../known-stalls/programs/truth.h"

#include <signal.h>
#include <sys/prctl.h>

static int ends[2][2];

static void play(int own)
{
	char ball;

	while (read(ends[own][0], &ball, 1) == 1 && write(ends[!own][1], &ball, 1) == 1)
		;
}

static void other(void *unused)
{
	(void)unused;
	play(1);
}

int main(int argc, char **argv)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	pin(argc > 1 ? atoi(argv[1]) : 0);
	must(pipe(ends[0]), "pipe");
	must(pipe(ends[1]), "pipe");
	child(other, NULL);
	must(write(ends[1][1], "b", 1), "write");
	play(0);
	return 0;
}

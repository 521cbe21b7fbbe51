// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * (q) The job server of make: who wants to compile takes a token out of a pipe and puts it back afterwards. `lto` keeps the only one
 * for 120 ms of link-time optimisation; `cc-0` and `cc-1` wait in read. Off: it optimises before it takes the token.
 */
#include "../programs/truth.h"

static struct actor *lto, *compilers[2];
static int tokens[2];
static uint32_t *done;
static bool fault;

static char take(void)
{
	char token;

	if (must(read(tokens[0], &token, 1), "read") != 1)
		fail("the pipe of tokens ended");
	return token;
}

static void give_back(char token)
{
	must(write(tokens[1], &token, 1), "write");
}

static void optimise(void *unused)
{
	(void)unused;
	actor_enter(lto, "lto");
	for (int i = 0; i < 9; i++) {
		char token;

		if (!fault)
			burn(120 * MS);
		token = take();
		window_begin(lto);
		if (fault)
			burn(120 * MS);
		window_end(lto);
		give_back(token);
		sleep_for(25 * MS);
	}
	__atomic_store_n(done, 1, __ATOMIC_RELAXED);
}

static void compile(void *number)
{
	struct actor *self = compilers[(intptr_t)number];

	actor_enter(self, number ? "cc-1" : "cc-0");
	while (!__atomic_load_n(done, __ATOMIC_RELAXED)) {
		char token;

		window_begin(self);
		token = take();
		window_end(self);
		burn(2 * MS);
		give_back(token);
		/* Reads its next source file, say. */
		sleep_for((number ? 11 : 7) * MS);
	}
}

int main(int argc, char **argv)
{
	struct truth truth = { .cause = "server" };
	pid_t optimises, compiles[2];

	fault = truth_begin(argc, argv);
	must(pipe2(tokens, O_CLOEXEC), "pipe");
	give_back('+');
	done = shared(4);
	lto = truth.culprits[0] = truth.chain[1] = actor_new();
	for (int i = 0; i < 2; i++)
		compilers[i] = truth.victims[i] = actor_new();
	truth.chain[0] = compilers[0];
	optimises = child(optimise, NULL);
	for (intptr_t i = 0; i < 2; i++)
		compiles[i] = child(compile, (void *)i);
	look_for_end(optimises);
	for (int i = 0; i < 2; i++) {
		look_for_end(compiles[i]);
		truth.cause_ns += overlap(compilers[i], lto);
	}
	return truth_end(&truth);
}

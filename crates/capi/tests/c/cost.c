/* What a call from C costs: best of some rounds, in nanoseconds. Prints; judges nothing. */
#define _GNU_SOURCE
#include <time.h>

#include "test.h"

#define ROUNDS 9
#define CALLS 200000

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

#define COST(what, ...)                                                                                               \
	do {                                                                                                          \
		double best = 1e18;                                                                                   \
		int round, call;                                                                                      \
		for (round = 0; round < ROUNDS; round++) {                                                            \
			double begun = now(), took;                                                                   \
			for (call = 0; call < CALLS; call++) {                                                        \
				__VA_ARGS__;                                                                          \
			}                                                                                             \
			took = (now() - begun) / CALLS;                                                               \
			best = took < best ? took : best;                                                             \
		}                                                                                                     \
		printf("%-64s %8.1f ns\n", what, best);                                                               \
	} while (0)

int main(void)
{
	stopgap_arena *arena = stopgap_arena_new(NULL);
	void *buffer = stopgap_arena_alloc(arena, 4096, 0), *other;

	CHECK(arena != NULL && buffer != NULL);
	COST("stopgap_arena_contains", CHECK(stopgap_arena_contains(arena, buffer) == 1));
	COST("stopgap_arena_alloc_uninit and stopgap_arena_free, one page",
	     other = stopgap_arena_alloc_uninit(arena, 4096, 0);
	     CHECK(stopgap_arena_free(arena, other, 4096) == 0));
	COST("stopgap_arena_alloc and stopgap_arena_free, one page", other = stopgap_arena_alloc(arena, 4096, 0);
	     CHECK(stopgap_arena_free(arena, other, 4096) == 0));
	COST("malloc and free, 4096 bytes", other = malloc(4096); CHECK(other != NULL); free(other));
	CHECK(stopgap_arena_close(arena) == 0);
	puts("done");
	return 0;
}

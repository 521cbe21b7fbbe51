/* stopgap_arena(3): buffers, files, descriptors, threads, forks, signals, and what is refused. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

#include "test.h"

#define WINDOW ((size_t)1 << 30)

static struct stopgap_arena_statistics of(stopgap_arena *arena)
{
	struct stopgap_arena_statistics statistics;

	memset(&statistics, 0xff, sizeof statistics);
	statistics.size = sizeof statistics;
	CHECK(stopgap_arena_stat(arena, &statistics) == 0);
	return statistics;
}

static stopgap_arena *make(uint64_t backing)
{
	struct stopgap_arena_options options;
	stopgap_arena *arena;

	memset(&options, 0, sizeof options);
	options.size = sizeof options;
	options.window = WINDOW;
	options.backing = backing;
	WORKS((arena = stopgap_arena_new(&options)) != NULL);
	return arena;
}

static void buffers(uint64_t backing)
{
	stopgap_arena *arena = make(backing);
	struct stopgap_arena_statistics statistics;
	uint64_t offset = 0, back = 0;
	size_t length = 0, i;
	void *start = NULL;
	char *one, *two, *other;
	int fd;

	WORKS(stopgap_arena_window(arena, &start, &length) == 0 && start != NULL && length == WINDOW);
	WORKS(stopgap_arena_window(arena, NULL, NULL) == 0);
	WORKS((one = stopgap_arena_alloc(arena, 5000, 0)) != NULL);
	WORKS((two = stopgap_arena_alloc_uninit(arena, 5000, 1 << 21)) != NULL);
	CHECK((uintptr_t)two % (1 << 21) == 0 && (uintptr_t)one % 4096 == 0);
	for (i = 0; i < 5000; i++)
		CHECK(one[i] == 0);
	memset(one, 1, 5000);
	memset(two, 2, 5000);
	CHECK(one[4999] == 1);
	WORKS(stopgap_arena_contains(arena, one) == 1);
	WORKS(stopgap_arena_contains(arena, &arena) == 0);
	WORKS(stopgap_arena_contains(arena, NULL) == 0);
	statistics = of(arena);
	CHECK(statistics.buffers == 2 && statistics.window == WINDOW && statistics.given == 2);

	/* What makes no sense changes nothing. */
	REFUSES(stopgap_arena_alloc(arena, 0, 0), EINVAL);
	REFUSES(stopgap_arena_alloc(arena, 1, 3), EINVAL);
	REFUSES(stopgap_arena_alloc(arena, WINDOW + 1, 0), ENOMEM);
	REFUSES(stopgap_arena_alloc(arena, (size_t)-1, 0), ENOMEM);
	FAILS(stopgap_arena_free(arena, one + 4096, 904), EINVAL);
	FAILS(stopgap_arena_free(arena, one, 4096), EINVAL);
	FAILS(stopgap_arena_free(arena, one, (size_t)-1), EINVAL);
	FAILS(stopgap_arena_free(arena, &length, 8), EINVAL);
	FAILS(stopgap_arena_free(arena, NULL, 8), EINVAL);
	FAILS(stopgap_arena_free(arena, (void *)~(uintptr_t)0, 8), EINVAL);
	CHECK(of(arena).buffers == 2 && one[4999] == 1 && two[4999] == 2);

	if (backing == STOPGAP_BACKING_MEMFD) {
		fd = stopgap_arena_export(arena, one, &offset);
		CHECK(fd >= 0);
		other = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);
		CHECK(other != MAP_FAILED && close(fd) == 0);
		CHECK(other[4999] == 1);
		other[0] = 77;
		CHECK(one[0] == 77);
		munmap(other, 8192);
		FAILS(stopgap_arena_export(arena, one + 4096, &offset), EINVAL);
	} else {
		FAILS(stopgap_arena_export(arena, one, &offset), ENOTSUP);
	}

	WORKS(stopgap_arena_free(arena, one, 5000) == 0);
	FAILS(stopgap_arena_free(arena, one, 5000), EINVAL);
	WORKS((other = stopgap_arena_alloc(arena, 5000, 0)) != NULL);
	for (i = 0; i < 8192; i++)
		CHECK(other[i] == 0);
	WORKS(stopgap_arena_free(arena, other, 5000) == 0);
	WORKS(stopgap_arena_free(arena, two, 5000) == 0);
	WORKS(stopgap_arena_trim(arena, &back) == 0);
	WORKS(stopgap_arena_trim(arena, NULL) == 0);
	statistics = of(arena);
	CHECK(statistics.buffers == 0 && statistics.kept == 0 && back == statistics.given_back);
	WORKS(stopgap_arena_decay(arena, &back) == 0);
	CHECK(back == 0);
	WORKS(stopgap_arena_decay(arena, NULL) == 0);

	FAILS(stopgap_arena_stat(arena, NULL), EFAULT);
	WORKS(stopgap_arena_close(arena) == 0);
	FAILS(stopgap_arena_close(arena), EBADF);
	REFUSES(stopgap_arena_alloc(arena, 1, 0), EBADF);
	FAILS(stopgap_arena_free(arena, one, 5000), EBADF);
	REFUSES(stopgap_arena_alloc((stopgap_arena *)(void *)&arena, 1, 0), EBADF);
}

static stopgap_arena *common;

/* Each thread writes its own bytes into what it has, looks at them, and frees what its neighbour made. */
static void *busy(void *argument)
{
	static char *given[4];
	const long me = (long)argument;
	unsigned random = (unsigned)me * 2654435761U + 1;
	int round;

	for (round = 0; round < 20000; round++) {
		size_t length = 1 + (random = random * 1664525 + 1013904223) % 40000, i;
		char *mine = stopgap_arena_alloc(common, length, 0), *theirs;

		CHECK(mine != NULL && mine[0] == 0 && mine[length - 1] == 0);
		memset(mine, (int)me + 1, length);
		for (i = 0; i < length; i += 511)
			CHECK(mine[i] == me + 1);
		*(size_t *)(void *)mine = length;
		theirs = __atomic_exchange_n(&given[random % 4], length < 8 ? NULL : mine, __ATOMIC_ACQ_REL);
		if (length < 8)
			CHECK(stopgap_arena_free(common, mine, length) == 0);
		if (theirs != NULL)
			CHECK(stopgap_arena_free(common, theirs, *(size_t *)(void *)theirs) == 0);
	}
	return NULL;
}

static void threads(void)
{
	pthread_t all[4];
	long i;

	common = make(STOPGAP_BACKING_ANONYMOUS);
	for (i = 0; i < 4; i++)
		CHECK(pthread_create(&all[i], NULL, busy, (void *)i) == 0);
	for (i = 0; i < 4; i++)
		CHECK(pthread_join(all[i], NULL) == 0);
	CHECK(of(common).buffers <= 4);
	WORKS(stopgap_arena_close(common) == 0);
}

static void forks(void)
{
	stopgap_arena *arena = make(STOPGAP_BACKING_ANONYMOUS);
	stopgap_arena *file = make(STOPGAP_BACKING_MEMFD);
	char *before = stopgap_arena_alloc(arena, 4096, 0), *both = stopgap_arena_alloc(file, 4096, 0), *after;
	int status;
	pid_t child;

	CHECK(before != NULL && both != NULL);
	before[0] = 'p';
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		before[0] = 'c';
		both[0] = 'c';
		CHECK((after = stopgap_arena_alloc(arena, 4096, 0)) != NULL && after[0] == 0);
		CHECK(stopgap_arena_free(arena, before, 4096) == 0 && stopgap_arena_free(arena, after, 4096) == 0);
		REFUSES(stopgap_arena_alloc(file, 4096, 0), ENOTSUP);
		CHECK(stopgap_arena_close(arena) == 0 && stopgap_arena_close(file) == 0);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(before[0] == 'p' && both[0] == 'c');
	CHECK(stopgap_arena_free(arena, before, 4096) == 0);
	WORKS(stopgap_arena_close(arena) == 0);
	WORKS(stopgap_arena_close(file) == 0);
}

static volatile sig_atomic_t handled;

static void handler(int number)
{
	int before = errno;
	char *mine;

	(void)number;
	errno = 99;
	mine = stopgap_arena_alloc(common, 4096, 0);
	if (mine == NULL || mine[0] != 0 || errno != 99)
		_exit(41);
	mine[0] = 1;
	if (stopgap_arena_free(common, mine, 4096) != 0 || errno != 99)
		_exit(42);
	handled++;
	errno = before;
}

static void signals(void)
{
	timer_t timer;
	struct itimerspec often = {{0, 100000}, {0, 100000}};
	struct sigaction action;
	int round;

	common = make(STOPGAP_BACKING_ANONYMOUS);
	memset(&action, 0, sizeof action);
	action.sa_handler = handler;
	CHECK(sigaction(SIGALRM, &action, NULL) == 0);
	CHECK(timer_create(CLOCK_MONOTONIC, NULL, &timer) == 0);
	CHECK(timer_settime(timer, 0, &often, NULL) == 0);
	for (round = 0; handled < 500 && round < 20000000; round++) {
		char *mine = stopgap_arena_alloc_uninit(common, 4096, 0);

		CHECK(mine != NULL && stopgap_arena_free(common, mine, 4096) == 0);
	}
	CHECK(timer_delete(timer) == 0);
	CHECK(handled > 0);
	CHECK(of(common).buffers == 0);
	WORKS(stopgap_arena_close(common) == 0);
}

static void options(void)
{
	struct stopgap_arena_options options;
	stopgap_arena *arena;

	memset(&options, 0, sizeof options);
	options.size = sizeof options;
	options.window = (size_t)1 << 62;
	CHECK(stopgap_arena_new(&options) == NULL && (errno == EINVAL || errno == ENOMEM));
	options.window = 1 << 20;
	options.backing = 2;
	REFUSES(stopgap_arena_new(&options), EINVAL);
	options.backing = 0;
	options.decay_ns = 1;
	options.guard = 2;
	REFUSES(stopgap_arena_new(&options), EINVAL);
	options.guard = 1;
	WORKS((arena = stopgap_arena_new(&options)) != NULL);
	{
		char *one = stopgap_arena_alloc(arena, 4096, 0);
		int status;
		pid_t child;

		CHECK(one != NULL);
		one[4095] = 1;
		child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			one[4096] = 1; /* the guard */
			_exit(0);
		}
		CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	}
	WORKS(stopgap_arena_close(arena) == 0);
}

/* ulimit -v below the usual window. */
static void limits(void)
{
	int status;
	pid_t child = fork();

	CHECK(child >= 0);
	if (child == 0) {
		const struct rlimit limit = {(rlim_t)3 << 30, (rlim_t)3 << 30};
		stopgap_arena *arena;
		void *one;

		CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
		REFUSES(stopgap_arena_new(NULL), ENOMEM);
		arena = make(STOPGAP_BACKING_ANONYMOUS);
		CHECK((one = stopgap_arena_alloc(arena, 1 << 20, 0)) != NULL);
		CHECK(stopgap_arena_free(arena, one, 1 << 20) == 0 && stopgap_arena_close(arena) == 0);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(void)
{
	buffers(STOPGAP_BACKING_ANONYMOUS);
	buffers(STOPGAP_BACKING_MEMFD);
	threads();
	forks();
	signals();
	options();
	limits();
	puts("done");
	return 0;
}

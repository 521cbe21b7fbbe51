// SPDX-License-Identifier: MIT OR Apache-2.0
#include "truth.h"

#include <dirent.h>
#include <limits.h>
#include <linux/futex.h>
#include <linux/magic.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/swap.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>

static const char *program = "?";
static const char *argument;
static bool fault = true;

/* Things to put back, in shared memory: the guardian reads them when everybody else is gone. */
struct undo {
	enum { FOLDER, GROUP, SWAP } kind;
	char path[PATH_MAX];
};
static struct undo *undos;
static uint32_t *undo_count;
static int guard_pipe = -1;
static pid_t guardian, owner;
/* Children that have not been waited for. */
static pid_t children[64];

uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000ull + time.tv_nsec;
}

uint64_t without(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

static uint64_t cpu_time(void)
{
	struct timespec time;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
	return time.tv_sec * 1000000000ull + time.tv_nsec;
}

/*
 * Putting back.
 */

/* Removes a folder and what is in it: files, and folders that mounts are on in other namespaces. */
static void remove_folder(const char *path)
{
	DIR *folder = opendir(path);
	struct dirent *entry;

	while (folder && (entry = readdir(folder)))
		if (unlinkat(dirfd(folder), entry->d_name, 0) < 0)
			unlinkat(dirfd(folder), entry->d_name, AT_REMOVEDIR);
	if (folder)
		closedir(folder);
	rmdir(path);
}

static void undo_all(void)
{
	for (uint32_t i = *undo_count; i-- > 0;) {
		struct undo *undo = &undos[i];

		/* What is in use by a process that is about to end is tried again for 5 s. */
		for (int tries = 0; tries < 500; tries++) {
			if (undo->kind == FOLDER)
				remove_folder(undo->path);
			else if (undo->kind == GROUP)
				rmdir(undo->path);
			else if (swapoff(undo->path) == 0)
				break;
			if (undo->kind == SWAP ? errno != EBUSY && errno != EINTR : access(undo->path, F_OK) != 0)
				break;
			usleep(10000);
		}
	}
}

/*
 * Starts the process that puts back when all others have ended, whatever ended them: it sees the end of a pipe whose other
 * end everybody else holds.
 */
static void guard(void)
{
	/* Of two descriptors, one of which is none: whoever waits for several waits for nobody's answer, and is no part of what is planted. */
	struct pollfd ended[2] = { { .fd = 0, .events = POLLIN }, { .fd = -1 } };
	int ends[2];

	if (guardian)
		return;
	must(pipe2(ends, O_CLOEXEC), "pipe");
	guardian = must(fork(), "fork");
	if (guardian == 0) {
		prctl(PR_SET_NAME, "guardian");
		setsid();
		for (int signal_number = 1; signal_number < 32; signal_number++)
			signal(signal_number, SIG_IGN);
		alarm(0);
		/* It outlives who reads the program's output. */
		dup2(ends[0], 0);
		for (int fd = 1; fd < 64; fd++)
			close(fd);
		while (poll(ended, 2, -1) < 0 && errno == EINTR)
			;
		undo_all();
		_exit(0);
	}
	close(ends[0]);
	guard_pipe = ends[1];
}

static void put_back_later(int kind, const char *path)
{
	if (*undo_count == 8)
		fail("more to put back than there is room for");
	undos[*undo_count].kind = kind;
	snprintf(undos[*undo_count].path, PATH_MAX, "%s", path);
	++*undo_count;
	guard();
}

/* Called by the first process alone, when its children have ended. */
static void put_back(void)
{
	if (!guardian || getpid() != owner)
		return;
	/* A child that goes on holds the pipe, too. */
	for (int i = 0; i < 64; i++)
		if (children[i])
			kill_and_wait(children[i]);
	close(guard_pipe);
	waitpid(guardian, NULL, 0);
}

static void leave(int status, const char *word, const char *format, va_list arguments)
{
	fprintf(stderr, "%s: %s", program, word);
	vfprintf(stderr, format, arguments);
	fputc('\n', stderr);
	if (getpid() != owner) {
		kill(owner, status == SKIPPED ? SIGUSR1 : SIGTERM);
		_exit(status);
	}
	put_back();
	_exit(status);
}

void skip(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	leave(SKIPPED, "skipped: ", format, arguments);
	__builtin_unreachable();
}

void fail(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	leave(1, "failed: ", format, arguments);
	__builtin_unreachable();
}

long must(long result, const char *what)
{
	if (result < 0)
		fail("%s: %s", what, strerror(errno));
	return result;
}

/* A child found that the fault cannot be planted, or failed: it has said why. Children die with this process. */
static void child_left(int signal_number)
{
	_exit(signal_number == SIGUSR1 ? SKIPPED : 1);
}

/*
 * Begin, actors, windows.
 */

/*
 * Other work of the machine shall not be the cause of a wait. Where sessions share the CPU (autogroup), the session's weight
 * counts, not the process's. Without root all stays as it is.
 */
static void prefer(void)
{
	int fd;

	setpriority(PRIO_PROCESS, 0, -15);
	if (setsid() < 0)
		return;
	fd = open("/proc/self/autogroup", O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	if (write(fd, "-15", 3) < 0)
		fprintf(stderr, "%s: other work may get the CPU first: /proc/self/autogroup: %s\n", program, strerror(errno));
	close(fd);
}

bool truth_begin(int argc, char **argv)
{
	const char *slash = strrchr(argv[0], '/');

	program = slash ? slash + 1 : argv[0];
	owner = getpid();
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--off") == 0)
			fault = false;
		else if (argv[i][0] != '-' && !argument)
			argument = argv[i];
		else
			fail("usage: %s [--off]", program);
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGUSR1, child_left);
	signal(SIGTERM, child_left);
	alarm(60);
	prefer();
	undos = shared(8 * sizeof(struct undo));
	undo_count = shared(sizeof(uint32_t));
	return fault;
}

const char *truth_argument(void)
{
	return argument;
}

void *shared(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		fail("mmap of %zu bytes: %s", bytes, strerror(errno));
	return memory;
}

struct actor *actor_new(void)
{
	return shared(sizeof(struct actor));
}

void actor_enter(struct actor *actor, const char *comm)
{
	actor->pid = getpid();
	actor->tid = gettid();
	snprintf(actor->comm, sizeof(actor->comm), "%s", comm);
	prctl(PR_SET_NAME, actor->comm);
	actor->schedstat = must(open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC), "/proc/thread-self/schedstat");
	actor->first_queued = actor->last_queued = run_delay(actor);
}

/* The second number of schedstat: nanoseconds on a run queue. */
uint64_t run_delay(const struct actor *actor)
{
	char text[96];
	ssize_t length = pread(actor->schedstat, text, sizeof(text) - 1, 0);
	char *space;

	if (length <= 0)
		return 0;
	text[length] = 0;
	space = strchr(text, ' ');
	return space ? strtoull(space + 1, NULL, 10) : 0;
}

void window_begin(struct actor *actor)
{
	if (actor->count == WINDOWS)
		fail("%s has more than %d windows", actor->comm, WINDOWS);
	actor->queued = run_delay(actor);
	actor->ran = cpu_time();
	actor->window[actor->count].begin = now();
}

uint64_t window_end(struct actor *actor)
{
	struct window *window = &actor->window[actor->count];

	window->end = now();
	window->ran = cpu_time() - actor->ran;
	actor->last_queued = run_delay(actor);
	window->queued = actor->last_queued - actor->queued;
	/* Others may read the window once it counts. */
	__atomic_store_n(&actor->count, actor->count + 1, __ATOMIC_RELEASE);
	return window->end - window->begin;
}

#define SUM(name, expression)                                     \
	uint64_t name(const struct actor *actor)                  \
	{                                                         \
		uint64_t sum = 0;                                 \
		for (uint32_t i = 0; i < actor->count; i++) {     \
			const struct window *w = &actor->window[i]; \
			sum += expression;                        \
		}                                                 \
		return sum;                                       \
	}

SUM(lost, w->end - w->begin)
SUM(ran, w->ran)
SUM(queued, w->queued)
SUM(slept, without(w->end - w->begin, w->ran + w->queued))

uint64_t queued_between(const struct actor *actor)
{
	return without(actor->last_queued - actor->first_queued, queued(actor));
}

uint64_t overlap_beyond(const struct actor *victim, const struct actor *culprit, uint64_t usual)
{
	uint64_t sum = 0;
	uint32_t first = 0;

	for (uint32_t i = 0; i < victim->count; i++) {
		const struct window *v = &victim->window[i];
		uint64_t both = 0;

		while (first < culprit->count && culprit->window[first].end <= v->begin)
			first++;
		for (uint32_t j = first; j < culprit->count && culprit->window[j].begin < v->end; j++) {
			const struct window *c = &culprit->window[j];

			both += (c->end < v->end ? c->end : v->end) - (c->begin > v->begin ? c->begin : v->begin);
		}
		sum += both < without(v->end - v->begin, usual) ? both : without(v->end - v->begin, usual);
	}
	return sum;
}

uint64_t overlap(const struct actor *victim, const struct actor *culprit)
{
	return overlap_beyond(victim, culprit, 0);
}

static int by_length(const void *a, const void *b)
{
	const struct window *left = a, *right = b;
	uint64_t one = left->end - left->begin, other = right->end - right->begin;

	return one < other ? -1 : one > other;
}

uint64_t usual_length(struct actor *actor)
{
	struct window *middle = &actor->window[actor->count / 2];

	if (actor->count == 0)
		return 0;
	qsort(actor->window, actor->count, sizeof(struct window), by_length);
	actor->count = 0;
	return middle->end - middle->begin;
}

/*
 * Processes, threads, time.
 */

pid_t child(void (*body)(void *), void *its_argument)
{
	pid_t parent = getpid();
	pid_t pid = must(fork(), "fork");

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		/* The parent may have died before the call. */
		if (getppid() != parent)
			_exit(1);
		alarm(60);
		body(its_argument);
		_exit(0);
	}
	for (int i = 0; i < 64; i++) {
		if (!children[i]) {
			children[i] = pid;
			return pid;
		}
	}
	fail("more children than there is room for");
}

static void forget(pid_t pid)
{
	for (int i = 0; i < 64; i++)
		if (children[i] == pid)
			children[i] = 0;
}

pthread_t thread(void *(*body)(void *), void *its_argument)
{
	pthread_t handle;
	int error = pthread_create(&handle, NULL, body, its_argument);

	if (error)
		fail("pthread_create: %s", strerror(error));
	return handle;
}

static void ended(pid_t pid, int status)
{
	forget(pid);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		fail("child %d ended with status %#x", pid, status);
}

void wait_for(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			fail("waitpid: %s", strerror(errno));
	ended(pid, status);
}

void look_for_end(pid_t pid)
{
	int status;

	while (must(waitpid(pid, &status, WNOHANG), "waitpid") == 0)
		sleep_for(20 * MS);
	ended(pid, status);
}

void join(pthread_t handle)
{
	while (pthread_tryjoin_np(handle, NULL) == EBUSY)
		sleep_for(20 * MS);
}

void kill_and_wait(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	forget(pid);
}

void __attribute__((noinline)) burn(uint64_t ns)
{
	uint64_t end = cpu_time() + ns;

	while (cpu_time() < end)
		for (volatile int i = 0; i < 2000; i++)
			;
}

void sleep_for(uint64_t ns)
{
	struct timespec time = { ns / 1000000000, ns % 1000000000 };

	while (clock_nanosleep(CLOCK_MONOTONIC, 0, &time, &time) == EINTR)
		;
}

void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	must(sched_setaffinity(0, sizeof(set), &set), "sched_setaffinity");
}

void post(uint32_t *word)
{
	__atomic_add_fetch(word, 1, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void await(uint32_t *word)
{
	for (;;) {
		uint32_t value = __atomic_load_n(word, __ATOMIC_SEQ_CST);

		if (value && __atomic_compare_exchange_n(word, &value, value - 1, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
			return;
		if (!value)
			syscall(SYS_futex, word, FUTEX_WAIT, 0, NULL, NULL, 0);
	}
}

/*
 * Files, control groups, swap, mounts.
 */

static char folder[PATH_MAX - 64];

const char *disk_folder(void)
{
	const char *parent = getenv("TMPDIR");
	struct statfs filesystem;

	if (folder[0])
		return folder;
	if (!parent || statfs(parent, &filesystem) < 0 || filesystem.f_type == TMPFS_MAGIC)
		parent = "/var/tmp";
	if (statfs(parent, &filesystem) < 0 || filesystem.f_type == TMPFS_MAGIC || filesystem.f_type == OVERLAYFS_SUPER_MAGIC)
		skip("%s is not on a disk of its own: set TMPDIR to a folder on one", parent);
	snprintf(folder, sizeof(folder), "%s/known-stalls.%d", parent, getpid());
	put_back_later(FOLDER, folder);
	must(mkdir(folder, 0700), folder);
	return folder;
}

const char *in_folder(const char *name)
{
	static __thread char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", disk_folder(), name);
	return path;
}

void write_whole(int fd, size_t bytes)
{
	static char piece[MIB];

	/* Compressible or not is one to a plain disk; zeros may be left out by some. */
	memset(piece, 'x', sizeof(piece));
	while (bytes > 0) {
		ssize_t written = write(fd, piece, bytes < sizeof(piece) ? bytes : sizeof(piece));

		if (written <= 0)
			fail("write: %s", strerror(errno));
		bytes -= written;
	}
}

const char *prepared_file(const char *name, size_t bytes)
{
	static char path[PATH_MAX];
	const char *prepared = getenv("STALLS_PREPARED");
	struct stat found;
	int fd;

	if (prepared)
		snprintf(path, sizeof(path), "%s/%s", prepared, name);
	else
		snprintf(path, sizeof(path), "%s", in_folder(name));
	if (stat(path, &found) == 0 && found.st_size == (off_t)bytes)
		return path;
	fd = must(open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600), path);
	write_whole(fd, bytes);
	must(fsync(fd), "fsync");
	close(fd);
	return path;
}

struct group group_new(const char *controller)
{
	struct group group = { .unified = false };
	char file[160], list[256] = "";
	int fd;

	fd = open("/sys/fs/cgroup/cgroup.controllers", O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		ssize_t length = read(fd, list, sizeof(list) - 1);

		close(fd);
		list[length > 0 ? length : 0] = 0;
		if (!strstr(list, controller))
			skip("the machine's control groups have no controller %s", controller);
		group.unified = true;
		snprintf(group.path, sizeof(group.path), "/sys/fs/cgroup/known-stalls.%d", getpid());
		/* On for all groups of the top, as systemd has it; refused where it is on already or not ours to say. */
		fd = open("/sys/fs/cgroup/cgroup.subtree_control", O_WRONLY | O_CLOEXEC);
		snprintf(file, sizeof(file), "+%s", controller);
		if (fd >= 0 && write(fd, file, strlen(file)) < 0)
			skip("cannot switch the controller %s on: %s", controller, strerror(errno));
		close(fd);
	} else {
		snprintf(group.path, sizeof(group.path), "/sys/fs/cgroup/%s/known-stalls.%d", controller, getpid());
	}
	put_back_later(GROUP, group.path);
	if (mkdir(group.path, 0755) < 0)
		skip("cannot make a control group %s: %s", group.path, strerror(errno));
	return group;
}

struct group group_plain(void)
{
	static const char *const tops[] = { "/sys/fs/cgroup", "/sys/fs/cgroup/unified" };
	struct group group = { .unified = true };
	struct statfs filesystem;

	for (int i = 0; i < 2; i++) {
		if (statfs(tops[i], &filesystem) < 0 || filesystem.f_type != CGROUP2_SUPER_MAGIC)
			continue;
		snprintf(group.path, sizeof(group.path), "%s/known-stalls.%d", tops[i], getpid());
		put_back_later(GROUP, group.path);
		if (mkdir(group.path, 0755) < 0)
			skip("cannot make a control group %s: %s", group.path, strerror(errno));
		return group;
	}
	skip("no control groups of version 2 are mounted");
}

void group_write(const struct group *group, const char *file, const char *format, ...)
{
	char path[256], text[64];
	va_list arguments;
	int fd;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	snprintf(path, sizeof(path), "%s/%s", group->path, file);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		skip("cannot write %s into %s: %s", text, path, strerror(errno));
	close(fd);
}

uint64_t group_read(const struct group *group, const char *file, const char *key)
{
	char path[256], text[4096], *found;
	ssize_t length;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", group->path, file);
	fd = must(open(path, O_RDONLY | O_CLOEXEC), path);
	length = must(read(fd, text, sizeof(text) - 1), path);
	close(fd);
	text[length] = 0;
	found = strstr(text, key);
	if (!found)
		fail("%s has no %s", path, key);
	return strtoull(found + strlen(key), NULL, 10);
}

void group_join(const struct group *group)
{
	group_write(group, "cgroup.procs", "%d", getpid());
}

void memory_limit(const struct group *group, uint64_t bytes)
{
	group_write(group, group->unified ? "memory.max" : "memory.limit_in_bytes", "%llu", (unsigned long long)bytes);
}

/* What mkswap(8) writes: version 1, the last page, and the magic at the end of the first page. */
void swap_on(uint64_t bytes)
{
	long page = sysconf(_SC_PAGESIZE);
	uint32_t header[2] = { 1, bytes / page - 1 };
	const char *path = prepared_file("swap", bytes);
	int fd = must(open(path, O_RDWR | O_CLOEXEC), path);

	must(pwrite(fd, (char[1024 + 512]){ 0 }, 1024 + 512, 0), path);
	must(pwrite(fd, header, sizeof(header), 1024), path);
	must(pwrite(fd, "SWAPSPACE2", 10, page - 10), path);
	close(fd);
	put_back_later(SWAP, path);
	if (swapon(path, 0) < 0)
		skip("cannot swap to a file on this disk: %s", strerror(errno));
}

void own_mounts(void)
{
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		skip("cannot make a mount namespace: %s", strerror(errno));
}

/*
 * The line of JSON.
 */

/* `without_running`: of its windows the CPU time is no loss. */
static void print_actor(const struct actor *actor, bool windows, bool without_running)
{
	uint32_t printed = 0;

	printf("{\"pid\":%d,\"tid\":%d,\"comm\":\"%s\",\"ns\":%llu", actor->pid, actor->tid, actor->comm,
	       (unsigned long long)lost(actor));
	if (windows) {
		printf(",\"windows\":[");
		/* Those that lost a millisecond or more, the first 300: begin, end, CPU time. */
		for (uint32_t i = 0; i < actor->count && printed < 300; i++) {
			const struct window *w = &actor->window[i];

			if (without(w->end - w->begin, without_running ? w->ran : 0) >= MS)
				printf("%s[%llu,%llu,%llu]", printed++ ? "," : "", (unsigned long long)w->begin,
				       (unsigned long long)w->end, (unsigned long long)w->ran);
		}
		printf("]");
	}
	printf("}");
}

static void print_actors(const char *key, struct actor *const *actors, bool windows, bool without_running)
{
	printf(",\"%s\":[", key);
	for (int i = 0; actors[i]; i++) {
		if (i)
			printf(",");
		print_actor(actors[i], windows, without_running);
	}
	printf("]");
}

int truth_end(struct truth *truth)
{
	uint64_t total = 0, running = 0, queue = 0, between = 0, rest;

	for (int i = 0; truth->victims[i]; i++) {
		total += lost(truth->victims[i]);
		running += ran(truth->victims[i]);
		queue += queued(truth->victims[i]);
		between += queued_between(truth->victims[i]);
	}
	if (truth->without_running) {
		total = without(total, running);
		running = 0;
	}
	total = without(total, truth->wanted_ns);
	running = without(running, truth->wanted_ns);
	if (truth->cause_ns > total)
		truth->cause_ns = total;
	total += between;
	queue += between;
	/* The cause may be what the thread ran or queued for; no time counts twice. */
	rest = total - truth->cause_ns;
	if (queue > rest)
		queue = rest;
	rest -= queue;
	if (running > rest)
		running = rest;
	rest -= running;
	printf("{\"program\":\"%s%s%s\",\"fault\":%s,\"cause\":\"%s\",\"expect\":\"%s\"", program, argument ? "-" : "",
	       argument ? argument : "", fault ? "true" : "false", truth->cause,
	       fault && !truth->expect ? "stalls" : "clean");
	printf(",\"lost_ns\":%llu,\"cause_ns\":%llu,\"share\":%.4f", (unsigned long long)total,
	       (unsigned long long)truth->cause_ns, total ? (double)truth->cause_ns / total : 0.0);
	printf(",\"parts\":{\"%s\":%llu,\"run-queue, besides\":%llu,\"running, besides\":%llu,\"other\":%llu}", truth->cause,
	       (unsigned long long)truth->cause_ns, (unsigned long long)queue, (unsigned long long)running,
	       (unsigned long long)rest);
	print_actors("victims", truth->victims, true, truth->without_running);
	print_actors("culprits", truth->culprits, true, false);
	print_actors("chain", truth->chain, false, false);
	printf(",\"culprit_comm\":%s%s%s", truth->culprit_comm ? "\"" : "", truth->culprit_comm ? truth->culprit_comm : "null",
	       truth->culprit_comm ? "\"" : "");
	printf(",\"outside\":%s%s%s}\n", truth->outside ? "\"" : "", truth->outside ? truth->outside : "null",
	       truth->outside ? "\"" : "");
	fflush(stdout);
	put_back();
	return 0;
}

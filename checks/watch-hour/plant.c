// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Plants one stall: plant KIND:MS. Its victim, a thread of the name plant-KIND, loses about MS milliseconds and times them by its own
 * clock. Prints the truth as the programs of known-stalls do.
 *
 *     fsync      fsync of a file into which another process has written
 *     server     an answer of another process, which syncs a file before it answers
 *     lock       a mutex whose holder sleeps
 *     run-queue  a CPU on which another thread computes under SCHED_FIFO
 *     cpu-quota  a cgroup that may run 10 ms of each 100 ms
 *     vfork      a vfork child that sleeps: state D
 *     reclaim    memory is filled in a cgroup that is too small, beside a swap file
 */
#include "../known-stalls/programs/truth.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

static struct actor *victim, *culprit;
static uint64_t length;
static uint32_t *go;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct group group;

/* Before and after the stall the victim computes for some milliseconds, so that the stall has an edge on both sides. */
static void enter(const char *comm)
{
	actor_enter(victim, comm);
	burn(2 * MS);
}

/* How much the disk needs for the time, where `mib` took `took`: a third more than by that. */
static size_t enough(size_t mib, uint64_t took)
{
	size_t want = mib * (length + length / 3) / (took ? took : 1);

	want = want < 3 * mib / 2 ? 3 * mib / 2 : want > 8 * mib ? 8 * mib : want;
	return want < 2048 ? want : 2048;
}

static void fsync_on(void *unused)
{
	const char *path = in_folder("shared");
	size_t mib = 64;
	int fd = must(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600), path);

	(void)unused;
	enter("plant-fsync");
	for (int i = 0; i < 6; i++) {
		uint64_t took;

		victim->count = 0;
		must(ftruncate(fd, 0), "ftruncate");
		lseek(fd, 0, SEEK_SET);
		write_whole(fd, mib * MIB);
		window_begin(victim);
		must(fsync(fd), "fsync");
		took = window_end(victim);
		if (took >= length)
			break;
		mib = enough(mib, took);
	}
}

static int ends[2];

/* Answers each question when as much is on the disk as takes this disk the time. */
static void serve(void *unused)
{
	const char *path = in_folder("served");
	int fd = must(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600), path);
	char question;

	(void)unused;
	actor_enter(culprit, "sync-server");
	close(ends[1]);
	for (size_t mib = 64; read(ends[0], &question, 1) == 1;) {
		if (question == 's') {
			uint64_t begin = now();

			must(fsync(fd), "fsync");
			mib = enough(mib, now() - begin);
		} else {
			must(ftruncate(fd, 0), "ftruncate");
			lseek(fd, 0, SEEK_SET);
			write_whole(fd, mib * MIB);
		}
		must(write(ends[0], "a", 1), "write");
	}
}

static void ask(char question)
{
	char answer;

	must(write(ends[1], &question, 1), "write");
	if (must(read(ends[1], &answer, 1), "read") != 1)
		fail("the server is gone");
}

static void server_on(void *unused)
{
	(void)unused;
	enter("plant-server");
	close(ends[0]);
	/* Its server waits for questions by then. */
	sleep_for(50 * MS);
	for (int i = 0; i < 6; i++) {
		victim->count = 0;
		ask('w');
		window_begin(victim);
		ask('s');
		if (window_end(victim) >= length)
			break;
	}
	close(ends[1]);
}

static void *hold(void *unused)
{
	actor_enter(culprit, "holder");
	pthread_mutex_lock(&mutex);
	post(go);
	sleep_for(length);
	pthread_mutex_unlock(&mutex);
	return unused;
}

static void lock_on(void *unused)
{
	pthread_t holder = thread(hold, NULL);

	(void)unused;
	enter("plant-lock");
	await(go);
	window_begin(victim);
	pthread_mutex_lock(&mutex);
	window_end(victim);
	pthread_mutex_unlock(&mutex);
	join(holder);
}

/* The kernel gives real-time threads 950 ms of each second. */
static void hog(void *unused)
{
	struct sched_param parameters = { .sched_priority = 20 };

	(void)unused;
	actor_enter(culprit, "hog");
	pin(0);
	await(go);
	/* The victim's window has begun by then. */
	sleep_for(5 * MS);
	if (sched_setscheduler(0, SCHED_FIFO, &parameters) < 0)
		skip("SCHED_FIFO is refused: %s", strerror(errno));
	burn(length);
	parameters.sched_priority = 0;
	sched_setscheduler(0, SCHED_OTHER, &parameters);
}

static void queue_on(void *unused)
{
	(void)unused;
	enter("plant-run-queue");
	pin(0);
	post(go);
	for (uint64_t end = now() + length; now() < end;) {
		victim->count = 0;
		window_begin(victim);
		while (now() - victim->window[0].begin < 10 * MS)
			burn(MS / 10);
		if (window_end(victim) >= length)
			return;
	}
	/* The hog came later than the loop ended. */
	victim->count = 0;
}

static void quota_on(void *unused)
{
	(void)unused;
	enter("plant-cpu-quota");
	pin(0);
	group_join(&group);
	window_begin(victim);
	burn(length / 10);
	window_end(victim);
}

static void vfork_on(void *unused)
{
	pid_t pid;

	(void)unused;
	enter("plant-vfork");
	window_begin(victim);
	pid = vfork();
	if (pid == 0) {
		sleep_for(length);
		_exit(0);
	}
	window_end(victim);
	must(pid, "vfork");
	waitpid(pid, NULL, 0);
}

static void reclaim_on(void *unused)
{
	int zero = must(open("/dev/zero", O_RDONLY | O_CLOEXEC), "/dev/zero");
	char *held[16] = { NULL };

	(void)unused;
	enter("plant-reclaim");
	group_join(&group);
	for (int i = 0; i < 400 && lost(victim) < length; i++) {
		char **piece = &held[i % 16];

		if (*piece)
			munmap(*piece, 16 * MIB);
		*piece = mmap(NULL, 16 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (*piece == MAP_FAILED)
			fail("mmap");
		/* Until here the memory fits. */
		if (i == 3)
			victim->count = 0;
		window_begin(victim);
		if (must(read(zero, *piece, 16 * MIB), "read") != 16 * (long)MIB)
			fail("a short read of /dev/zero");
		window_end(victim);
	}
}

static const struct {
	const char *word;
	void (*body)(void *);
} kinds[] = {
	{ "fsync", fsync_on },		{ "lock", lock_on },   { "run-queue", queue_on },
	{ "cpu-quota", quota_on },	{ "vfork", vfork_on }, { "reclaim", reclaim_on },
	{ "server", server_on },
};

int main(int argc, char **argv)
{
	struct truth truth = { .cause = "" };
	const char *argument, *colon;
	void (*body)(void *) = NULL;
	pid_t other = 0, pid;

	truth_begin(argc, argv);
	argument = truth_argument();
	colon = argument ? strchr(argument, ':') : NULL;
	for (size_t i = 0; colon && i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (strlen(kinds[i].word) == (size_t)(colon - argument) && !strncmp(kinds[i].word, argument, colon - argument)) {
			body = kinds[i].body;
			truth.cause = kinds[i].word;
		}
	}
	if (!body)
		fail("the argument is KIND:MS");
	length = strtoull(colon + 1, NULL, 10) * MS;
	go = shared(4);
	victim = truth.victims[0] = actor_new();
	if (body == fsync_on || body == server_on)
		disk_folder();
	if (body == server_on || body == lock_on || body == queue_on)
		culprit = truth.culprits[0] = actor_new();
	if (body == server_on) {
		must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), "socketpair");
		other = child(serve, NULL);
	}
	if (body == queue_on)
		other = child(hog, NULL);
	if (body == quota_on) {
		group = group_new("cpu");
		group_write(&group, group.unified ? "cpu.weight" : "cpu.shares", group.unified ? "10000" : "262144");
		if (group.unified) {
			group_write(&group, "cpu.max", "10000 100000");
		} else {
			group_write(&group, "cpu.cfs_period_us", "100000");
			group_write(&group, "cpu.cfs_quota_us", "10000");
		}
	}
	if (body == reclaim_on) {
		group = group_new("memory");
		swap_on(384 * MIB);
		memory_limit(&group, 64 * MIB);
	}
	pid = child(body, NULL);
	if (body == server_on) {
		close(ends[0]);
		close(ends[1]);
	}
	look_for_end(pid);
	if (other)
		kill_and_wait(other);
	truth.cause_ns = lost(victim);
	return truth_end(&truth);
}

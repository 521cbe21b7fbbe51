// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * (l) A file server's lease: `smbd` has a write lease on a file (F_SETLEASE), as Samba has for its clients. `opener`, a program on the
 * server, opens the file and waits until the lease is given back; before that smbd asks its `pc`, which computes for 30 ms. Off: the
 * pc answers at once.
 */
#include "../programs/truth.h"

#include <signal.h>
#include <sys/socket.h>

static struct actor *opener, *smbd, *pc;
static const char *file;
static uint32_t *ready;
static bool fault;
static int ends[2];

static void be_pc(void *unused)
{
	char byte;

	(void)unused;
	actor_enter(pc, "pc");
	while (must(read(ends[1], &byte, 1), "read") == 1) {
		window_begin(pc);
		if (fault)
			burn(30 * MS);
		window_end(pc);
		must(write(ends[1], &byte, 1), "write");
	}
}

static void be_smbd(void *unused)
{
	sigset_t breaks;
	char byte = 'b';
	int fd;

	(void)unused;
	actor_enter(smbd, "smbd");
	sigemptyset(&breaks);
	sigaddset(&breaks, SIGRTMIN);
	sigprocmask(SIG_BLOCK, &breaks, NULL);
	fd = must(open(file, O_RDWR | O_CLOEXEC), file);
	for (bool first = true;; first = false) {
		/* Giving back a lease forgets its signal. Who was let in must have closed the file before the next. */
		must(fcntl(fd, F_SETSIG, SIGRTMIN), "F_SETSIG");
		while (fcntl(fd, F_SETLEASE, F_WRLCK) < 0) {
			if (errno != EAGAIN && errno != EBUSY)
				skip("no leases on this file system: %s", strerror(errno));
			sleep_for(1 * MS);
		}
		if (first)
			post(ready);
		while (sigwaitinfo(&breaks, NULL) < 0)
			if (errno != EINTR)
				fail("sigwaitinfo: %s", strerror(errno));
		window_begin(smbd);
		must(write(ends[0], &byte, 1), "write");
		must(read(ends[0], &byte, 1), "read");
		window_end(smbd);
		must(fcntl(fd, F_SETLEASE, F_UNLCK), "F_SETLEASE");
	}
}

static void be_opener(void *unused)
{
	(void)unused;
	actor_enter(opener, "opener");
	await(ready);
	for (int i = 0; i < 30; i++) {
		int fd;

		window_begin(opener);
		fd = must(open(file, O_RDONLY | O_CLOEXEC), file);
		window_end(opener);
		close(fd);
		sleep_for(12 * MS);
	}
}

int main(int argc, char **argv)
{
	struct truth truth = { .cause = "file-lock" };
	pid_t others[2];

	fault = truth_begin(argc, argv);
	file = in_folder("document");
	close(must(open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0600), file));
	must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), "socketpair");
	ready = shared(4);
	opener = truth.victims[0] = truth.chain[0] = actor_new();
	smbd = truth.culprits[1] = truth.chain[1] = actor_new();
	pc = truth.culprits[0] = truth.chain[2] = actor_new();
	others[0] = child(be_pc, NULL);
	others[1] = child(be_smbd, NULL);
	look_for_end(child(be_opener, NULL));
	for (int i = 0; i < 2; i++)
		kill_and_wait(others[i]);
	truth.cause_ns = overlap(opener, pc);
	return truth_end(&truth);
}

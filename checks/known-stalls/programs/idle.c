// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Twins of the idle rules: `idle CALL` waits in CALL for an answer that it has asked for, while `answerer` computes for 80 ms
 * (a stall). `idle CALL --off` waits in the same call for work that comes every 80 ms by a timer of `source` (idle).
 *
 *     poll epoll_wait select nanosleep futex accept pipe socket wait4 sigtimedwait mq_receive io_getevents several timeout eventfd cond sem semop msgrcv datagram sigsuspend io_uring io_uring-worker join pidfd eof first-word attempts
 *
 * In `timeout` the wait ends every 20 ms. In wait4, join, pidfd, eof and first-word a child or thread a round computes, or sleeps on purpose. In
 * `attempts` the waiter tries every 5 ms to lock a file that `answerer` holds, and without the fault it is free.
 */
#include "truth.h"

#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <mqueue.h>
#include <poll.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

#define ROUNDS 14

static struct actor *waiter, *other;
static bool fault;

/* The waiter's end and the other's. */
static int sockets[2], question[2], answer[2];
static uint32_t *ask_word, *answer_word;
static int epoll_set, listener;
static struct sockaddr_un address = { .sun_family = AF_UNIX };
static pid_t waiter_pid, *other_pid;
static mqd_t ask_queue, answer_queue;
static aio_context_t aio;

static void write_one(int fd)
{
	must(write(fd, "x", 1), "write");
}

static void read_one(int fd)
{
	char byte;

	if (must(read(fd, &byte, 1), "read") != 1)
		_exit(0);
}

/* A socket pair: what is asked and what is answered are a byte each. */
static void socket_make(void)
{
	must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), "socketpair");
}
static void socket_ask(void)
{
	write_one(sockets[0]);
}
static void socket_hear(void)
{
	read_one(sockets[1]);
}
static void socket_answer(void)
{
	write_one(sockets[1]);
}
static void socket_wait(void)
{
	read_one(sockets[0]);
}

static void poll_wait(void)
{
	struct pollfd fd = { sockets[0], POLLIN, 0 };

	must(poll(&fd, 1, -1), "poll");
	read_one(sockets[0]);
}

static void epoll_make(void)
{
	struct epoll_event event = { .events = EPOLLIN };

	socket_make();
	epoll_set = must(epoll_create1(EPOLL_CLOEXEC), "epoll_create1");
	must(epoll_ctl(epoll_set, EPOLL_CTL_ADD, sockets[0], &event), "epoll_ctl");
}
static void epoll_wait_one(void)
{
	struct epoll_event event;

	must(epoll_wait(epoll_set, &event, 1, -1), "epoll_wait");
	read_one(sockets[0]);
}

static void select_wait(void)
{
	fd_set set;

	FD_ZERO(&set);
	FD_SET(sockets[0], &set);
	must(select(sockets[0] + 1, &set, NULL, NULL, NULL), "select");
	read_one(sockets[0]);
}

/* A completion queue of io_submit: the poll is submitted, then waited for. */
static void aio_make(void)
{
	socket_make();
	must(syscall(SYS_io_setup, 1, &aio), "io_setup");
}
static void aio_wait(void)
{
	struct iocb poll_it = { .aio_lio_opcode = IOCB_CMD_POLL, .aio_fildes = sockets[0], .aio_buf = POLLIN };
	struct iocb *list[] = { &poll_it };
	struct io_event event;

	must(syscall(SYS_io_submit, aio, 1, list), "io_submit");
	must(syscall(SYS_io_getevents, aio, 1, 1, &event, NULL), "io_getevents");
	read_one(sockets[0]);
}

static void pipe_make(void)
{
	must(pipe2(question, O_CLOEXEC), "pipe");
	must(pipe2(answer, O_CLOEXEC), "pipe");
}
static void pipe_ask(void)
{
	write_one(question[1]);
}
static void pipe_hear(void)
{
	read_one(question[0]);
}
static void pipe_answer(void)
{
	write_one(answer[1]);
}
static void pipe_wait(void)
{
	read_one(answer[0]);
}

static void futex_make(void)
{
	ask_word = shared(4);
	answer_word = shared(4);
}
static void futex_ask(void)
{
	post(ask_word);
}
static void futex_hear(void)
{
	await(ask_word);
}
static void futex_answer(void)
{
	post(answer_word);
}
static void futex_wait(void)
{
	await(answer_word);
}

/* Asked: looks every 5 ms whether the answer is there. Idle: sleeps for 80 ms, which nothing can end earlier. */
static void nap_wait(void)
{
	if (!fault)
		sleep_for(80 * MS);
	while (fault && !__atomic_exchange_n(answer_word, 0, __ATOMIC_SEQ_CST))
		sleep_for(5 * MS);
}

/* The answer is a connection. */
static void accept_make(void)
{
	socket_make();
	/* An abstract name: nothing in the filesystem. */
	snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "known-stalls.%d", getpid());
	listener = must(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
	must(bind(listener, (struct sockaddr *)&address, sizeof(address)), "bind");
	must(listen(listener, 8), "listen");
}
static void accept_answer(void)
{
	int fd = must(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");

	must(connect(fd, (struct sockaddr *)&address, sizeof(address)), "connect");
	close(fd);
}
static void accept_wait(void)
{
	close(must(accept(listener, NULL, NULL), "accept"));
}

static void signal_make(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	sigprocmask(SIG_BLOCK, &set, NULL);
	other_pid = shared(sizeof(*other_pid));
}
static void signal_take(void)
{
	struct timespec limit = { 30, 0 };
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	while (sigtimedwait(&set, NULL, &limit) < 0)
		if (errno != EINTR)
			fail("sigtimedwait: %s", strerror(errno));
}
static void signal_ask(void)
{
	must(kill(*other_pid, SIGUSR2), "kill");
}
static void signal_answer(void)
{
	must(kill(waiter_pid, SIGUSR2), "kill");
}

static mqd_t queue_open(const char *what)
{
	struct mq_attr attributes = { .mq_maxmsg = 4, .mq_msgsize = 8 };
	char name[64];
	mqd_t queue;

	snprintf(name, sizeof(name), "/known-stalls.%s.%d", what, getpid());
	queue = mq_open(name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600, &attributes);
	if (queue < 0)
		skip("mq_open: %s", strerror(errno));
	/* The queue lives as long as its descriptors. */
	mq_unlink(name);
	return queue;
}
static void queue_make(void)
{
	ask_queue = queue_open("ask");
	answer_queue = queue_open("answer");
}
static void queue_ask(void)
{
	must(mq_send(ask_queue, "x", 1, 0), "mq_send");
}
static void queue_hear(void)
{
	char message[8];

	must(mq_receive(ask_queue, message, sizeof(message), NULL), "mq_receive");
}
static void queue_answer(void)
{
	must(mq_send(answer_queue, "x", 1, 0), "mq_send");
}
static void queue_wait(void)
{
	char message[8];

	must(mq_receive(answer_queue, message, sizeof(message), NULL), "mq_receive");
}

/* One of two sockets, of which the other says nothing. */
static void several_wait(void)
{
	struct pollfd fds[] = { { sockets[0], POLLIN, 0 }, { question[0], POLLIN, 0 } };

	must(poll(fds, 2, -1), "poll");
	read_one(sockets[0]);
}
static void several_make(void)
{
	socket_make();
	must(pipe2(question, O_CLOEXEC), "pipe");
}

static void timeout_wait(void)
{
	struct pollfd fd = { sockets[0], POLLIN, 0 };

	while (!must(poll(&fd, 1, 20), "poll"))
		;
	read_one(sockets[0]);
}

static void eventfd_make(void)
{
	socket_make();
	answer[0] = must(eventfd(0, EFD_CLOEXEC), "eventfd");
}
static void eventfd_answer(void)
{
	uint64_t one = 1;

	must(write(answer[0], &one, 8), "write");
}
static void eventfd_wait(void)
{
	uint64_t count;

	must(read(answer[0], &count, 8), "read");
}

/* Words that processes share. */
static struct both {
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	bool there;
	sem_t sem;
} *both;
static void both_make(void)
{
	pthread_mutexattr_t mutex;
	pthread_condattr_t cond;

	socket_make();
	both = shared(sizeof(*both));
	pthread_mutexattr_init(&mutex);
	pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&both->mutex, &mutex);
	pthread_condattr_init(&cond);
	pthread_condattr_setpshared(&cond, PTHREAD_PROCESS_SHARED);
	pthread_cond_init(&both->cond, &cond);
	must(sem_init(&both->sem, 1, 0), "sem_init");
}
static void cond_answer(void)
{
	pthread_mutex_lock(&both->mutex);
	both->there = true;
	pthread_cond_signal(&both->cond);
	pthread_mutex_unlock(&both->mutex);
}
static void cond_wait(void)
{
	pthread_mutex_lock(&both->mutex);
	while (!both->there)
		pthread_cond_wait(&both->cond, &both->mutex);
	both->there = false;
	pthread_mutex_unlock(&both->mutex);
}
static void sem_answer(void)
{
	must(sem_post(&both->sem), "sem_post");
}
static void sem_wait_one(void)
{
	while (sem_wait(&both->sem) < 0)
		if (errno != EINTR)
			fail("sem_wait: %s", strerror(errno));
}

static int semaphores, messages;
/* They go with the last process that sees them. */
static void ipc_make(void)
{
	socket_make();
	must(unshare(CLONE_NEWIPC), "unshare");
}
static void semop_make(void)
{
	ipc_make();
	semaphores = must(semget(IPC_PRIVATE, 1, 0600), "semget");
}
static void semop_by(short by)
{
	struct sembuf one = { 0, by, 0 };

	must(semop(semaphores, &one, 1), "semop");
}
static void semop_answer(void)
{
	semop_by(1);
}
static void semop_wait(void)
{
	semop_by(-1);
}

static void msg_make(void)
{
	ipc_make();
	messages = must(msgget(IPC_PRIVATE, 0600), "msgget");
}
static void msg_answer(void)
{
	struct { long type; char text[1]; } message = { 1, "x" };

	must(msgsnd(messages, &message, 1, 0), "msgsnd");
}
static void msg_wait(void)
{
	struct { long type; char text[1]; } message;

	must(msgrcv(messages, &message, 1, 0, 0), "msgrcv");
}

static void datagram_make(void)
{
	must(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, sockets), "socketpair");
}
static void datagram_wait(void)
{
	char byte;
	struct iovec part = { &byte, 1 };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };

	must(recvmsg(sockets[0], &message, 0), "recvmsg");
}

static volatile sig_atomic_t signalled;
static void note(int number)
{
	(void)number;
	signalled = 1;
}
static void suspend_make(void)
{
	struct sigaction action = { .sa_handler = note };

	signal_make();
	sigaction(SIGUSR2, &action, NULL);
}
static void suspend_wait(void)
{
	sigset_t none;

	sigemptyset(&none);
	while (!signalled)
		sigsuspend(&none);
	signalled = 0;
}

/* A ring of one request: to be told of what comes on a socket. */
static struct {
	int fd;
	uint32_t *tail, *array, *head_of_done;
	struct io_uring_sqe *entries;
} ring;
static void ring_make(void)
{
	struct io_uring_params given = { 0 };
	char *asked, *done;

	socket_make();
	ring.fd = syscall(SYS_io_uring_setup, 1, &given);
	if (ring.fd < 0)
		skip("io_uring_setup: %s", strerror(errno));
	asked = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, ring.fd, IORING_OFF_SQ_RING);
	done = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, ring.fd, IORING_OFF_CQ_RING);
	ring.entries = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, ring.fd, IORING_OFF_SQES);
	if (asked == MAP_FAILED || done == MAP_FAILED || ring.entries == MAP_FAILED)
		fail("mmap");
	ring.tail = (uint32_t *)(asked + given.sq_off.tail);
	ring.array = (uint32_t *)(asked + given.sq_off.array);
	ring.head_of_done = (uint32_t *)(done + given.cq_off.head);
}
static void ring_does(struct io_uring_sqe entry)
{
	ring.entries[0] = entry;
	ring.array[0] = 0;
	__atomic_fetch_add(ring.tail, 1, __ATOMIC_RELEASE);
	must(syscall(SYS_io_uring_enter, ring.fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0), "io_uring_enter");
	__atomic_fetch_add(ring.head_of_done, 1, __ATOMIC_RELEASE);
}
static void ring_wait(void)
{
	ring_does((struct io_uring_sqe){ .opcode = IORING_OP_POLL_ADD, .fd = sockets[0], .poll32_events = POLLIN });
	read_one(sockets[0]);
}
/* By a worker of the ring. */
static void ring_work(void)
{
	char byte;

	ring_does((struct io_uring_sqe){ .opcode = IORING_OP_READ, .flags = IOSQE_ASYNC, .fd = sockets[0], .addr = (uintptr_t)&byte, .len = 1 });
}

/* A file that `answerer` locks when it is asked, and gives up when it has computed. */
static int file, held[2];
static void attempts_make(void)
{
	socket_make();
	must(pipe2(held, O_CLOEXEC), "pipe");
	file = must(open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600), "O_TMPFILE");
}
static void attempts_ask(void)
{
	socket_ask();
	read_one(held[0]);
}
static void attempts_hear(void)
{
	struct flock all = { .l_type = F_WRLCK };

	socket_hear();
	must(fcntl(file, F_SETLK, &all), "F_SETLK");
	write_one(held[1]);
}
static void attempts_answer(void)
{
	struct flock all = { .l_type = F_UNLCK };

	must(fcntl(file, F_SETLK, &all), "F_SETLK");
}
static void attempts_wait(void)
{
	struct flock all = { .l_type = F_WRLCK };

	if (!fault)
		sleep_for(80 * MS);
	while (fcntl(file, F_SETLK, &all) < 0)
		sleep_for(5 * MS);
	all.l_type = F_UNLCK;
	must(fcntl(file, F_SETLK, &all), "F_SETLK");
}

/*
 * `ask` and `hear` are the two ends of the question, `answer` and `wait` those of the answer or the work. wait4 has a process
 * a round in place of them.
 */
static const struct call {
	const char *name;
	void (*make)(void), (*ask)(void), (*hear)(void), (*answer)(void), (*wait)(void);
} calls[] = {
	{ "poll", socket_make, socket_ask, socket_hear, socket_answer, poll_wait },
	{ "epoll_wait", epoll_make, socket_ask, socket_hear, socket_answer, epoll_wait_one },
	{ "select", socket_make, socket_ask, socket_hear, socket_answer, select_wait },
	{ "nanosleep", futex_make, futex_ask, futex_hear, futex_answer, nap_wait },
	{ "futex", futex_make, futex_ask, futex_hear, futex_answer, futex_wait },
	{ "accept", accept_make, socket_ask, socket_hear, accept_answer, accept_wait },
	{ "pipe", pipe_make, pipe_ask, pipe_hear, pipe_answer, pipe_wait },
	{ "socket", socket_make, socket_ask, socket_hear, socket_answer, socket_wait },
	{ "sigtimedwait", signal_make, signal_ask, signal_take, signal_answer, signal_take },
	{ "mq_receive", queue_make, queue_ask, queue_hear, queue_answer, queue_wait },
	{ "io_getevents", aio_make, socket_ask, socket_hear, socket_answer, aio_wait },
	{ "several", several_make, socket_ask, socket_hear, socket_answer, several_wait },
	{ "timeout", socket_make, socket_ask, socket_hear, socket_answer, timeout_wait },
	{ "eventfd", eventfd_make, socket_ask, socket_hear, eventfd_answer, eventfd_wait },
	{ "cond", both_make, socket_ask, socket_hear, cond_answer, cond_wait },
	{ "sem", both_make, socket_ask, socket_hear, sem_answer, sem_wait_one },
	{ "semop", semop_make, socket_ask, socket_hear, semop_answer, semop_wait },
	{ "msgrcv", msg_make, socket_ask, socket_hear, msg_answer, msg_wait },
	{ "datagram", datagram_make, socket_ask, socket_hear, socket_answer, datagram_wait },
	{ "sigsuspend", suspend_make, signal_ask, suspend_wait, signal_answer, suspend_wait },
	{ "io_uring", ring_make, socket_ask, socket_hear, socket_answer, ring_wait },
	{ "io_uring-worker", ring_make, socket_ask, socket_hear, socket_answer, ring_work },
	{ "attempts", attempts_make, attempts_ask, attempts_hear, attempts_answer, attempts_wait },
};
static const struct call *call;

/* Computes for an answer, or lets time pass until work comes. */
static void take_80_ms(void)
{
	if (!fault) {
		sleep_for(80 * MS);
		return;
	}
	window_begin(other);
	burn(80 * MS);
	window_end(other);
}

static void be_other(void *unused)
{
	(void)unused;
	actor_enter(other, fault ? "answerer" : "source");
	if (other_pid)
		*other_pid = getpid();
	for (;;) {
		if (fault)
			call->hear();
		take_80_ms();
		call->answer();
	}
}

/* A child or a thread a round. `eof`: the last writer of a pipe ends; `first-word`: it writes before it ends. */
static void be_made(void *tell)
{
	actor_enter(other, fault ? "answerer" : "source");
	take_80_ms();
	if (tell) {
		write_one(answer[1]);
		sleep_for(20 * MS);
	}
}
static void *be_thread(void *tell)
{
	be_made(tell);
	return NULL;
}

/* Makes one, and waits for its end or its word in the way of this name. */
static void make_and_wait(const char *how)
{
	struct pollfd fd = { .events = POLLIN };
	bool word = strcmp(how, "first-word") == 0;
	pthread_t made;
	pid_t pid;
	char byte;

	if (word || strcmp(how, "join") == 0) {
		if (word)
			pipe_make();
		made = thread(be_thread, word ? answer : NULL);
		window_begin(waiter);
		if (word)
			read_one(answer[0]);
		else
			pthread_join(made, NULL);
		window_end(waiter);
		if (word)
			pthread_join(made, NULL), close(answer[0]), close(answer[1]), close(question[0]), close(question[1]);
		return;
	}
	must(pipe2(question, O_CLOEXEC), "pipe");
	pid = child(be_made, NULL);
	close(question[1]);
	fd.fd = must(syscall(SYS_pidfd_open, pid, 0), "pidfd_open");
	window_begin(waiter);
	if (strcmp(how, "pidfd") == 0)
		must(poll(&fd, 1, -1), "poll");
	else if (strcmp(how, "eof") == 0)
		must(read(question[0], &byte, 1), "read");
	else
		wait_for(pid);
	window_end(waiter);
	if (strcmp(how, "wait4") != 0)
		wait_for(pid);
	close(question[0]);
	close(fd.fd);
}

int main(int argc, char **argv)
{
	static const char *const made[] = { "wait4", "join", "pidfd", "eof", "first-word" };
	struct truth truth = { .cause = "server" };
	const char *how = NULL;
	pid_t pid = 0;

	fault = truth_begin(argc, argv);
	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++)
		if (truth_argument() && strcmp(calls[i].name, truth_argument()) == 0)
			call = &calls[i];
	for (size_t i = 0; truth_argument() && i < sizeof(made) / sizeof(*made); i++)
		if (strcmp(made[i], truth_argument()) == 0)
			how = made[i];
	if (!call && !how)
		fail("usage: idle CALL [--off]; the calls are in idle.c");
	waiter_pid = getpid();
	waiter = truth.victims[0] = truth.chain[0] = actor_new();
	other = truth.culprits[0] = truth.chain[1] = actor_new();
	if (call) {
		call->make();
		pid = child(be_other, NULL);
		/* The other waits by then. */
		sleep_for(50 * MS);
	} else {
		truth.cause = "child";
	}
	actor_enter(waiter, "waiter");
	for (int round = 0; round < ROUNDS; round++) {
		if (call && fault)
			call->ask();
		if (how) {
			make_and_wait(how);
		} else {
			window_begin(waiter);
			call->wait();
			window_end(waiter);
		}
		burn(1 * MS);
	}
	if (call)
		kill_and_wait(pid);
	truth.cause_ns = overlap(waiter, other);
	return truth_end(&truth);
}

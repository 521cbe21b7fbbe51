// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Twins of the idle rules: `idle CALL` waits in CALL for an answer that it has asked for, while `answerer` computes for 80 ms
 * (a stall). `idle CALL --off` waits in the same call for work that comes every 80 ms by a timer of `source` (idle).
 *
 *     poll epoll_wait select nanosleep futex accept pipe socket wait4 sigtimedwait mq_receive io_getevents
 */
#include "truth.h"

#include <linux/aio_abi.h>
#include <mqueue.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
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

static void one_child(void *unused)
{
	(void)unused;
	actor_enter(other, fault ? "answerer" : "source");
	take_80_ms();
}

int main(int argc, char **argv)
{
	struct truth truth = { .cause = "server" };
	pid_t pid = 0;

	fault = truth_begin(argc, argv);
	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++)
		if (truth_argument() && strcmp(calls[i].name, truth_argument()) == 0)
			call = &calls[i];
	if (!call && (!truth_argument() || strcmp(truth_argument(), "wait4") != 0))
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
		if (!call)
			pid = child(one_child, NULL);
		window_begin(waiter);
		if (call)
			call->wait();
		else
			wait_for(pid);
		window_end(waiter);
		burn(1 * MS);
	}
	if (call)
		kill_and_wait(pid);
	truth.cause_ns = overlap(waiter, other);
	return truth_end(&truth);
}

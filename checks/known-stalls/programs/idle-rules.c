// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * More twins of the idle rules, of those that have more to them than a question, an answer and a call: see idle.c.
 *
 *     mutex rwlock barrier pace vfork sigchld handler busy pool reconnect unanswered full-pipe full-socket sendfile mq_send msgsnd connect linger
 *
 * With the fault `answerer` computes for 80 ms while the waiter waits for it: for a lock or at a barrier, for room (full-pipe to linger), for
 * an answer. Without it the waiter waits for work of `source`: for locks by a condition variable, for room by reading the same kind of pipe,
 * socket or queue.
 */
#include "truth.h"

#include <arpa/inet.h>
#include <mqueue.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

#define ROUNDS 14
#define PIECE 4096

static struct actor *waiter, *other, *second;
static bool fault;
static pid_t waiter_pid;
static int question[2], answer[2], sockets[2], round_number;
static char piece[PIECE];

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

static void compute(struct actor *actor)
{
	window_begin(actor);
	burn(80 * MS);
	window_end(actor);
}

static void pipes_make(void)
{
	must(pipe2(question, O_CLOEXEC), "pipe");
	must(pipe2(answer, O_CLOEXEC), "pipe");
}
static void ask(void)
{
	write_one(question[1]);
}

/* Locks, which all processes share. `held` tells that the answerer has the lock. */
static struct both {
	pthread_mutex_t mutex, queue;
	pthread_rwlock_t rwlock;
	pthread_barrier_t barrier;
	pthread_cond_t cond;
	bool there;
	uint32_t held, word, go;
} *both;

static void locks_make(void)
{
	pthread_mutexattr_t mutex;
	pthread_rwlockattr_t rwlock;
	pthread_barrierattr_t barrier;
	pthread_condattr_t cond;

	pipes_make();
	both = shared(sizeof(*both));
	pthread_mutexattr_init(&mutex);
	pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&both->mutex, &mutex);
	pthread_mutex_init(&both->queue, &mutex);
	pthread_rwlockattr_init(&rwlock);
	pthread_rwlockattr_setpshared(&rwlock, PTHREAD_PROCESS_SHARED);
	pthread_rwlock_init(&both->rwlock, &rwlock);
	pthread_barrierattr_init(&barrier);
	pthread_barrierattr_setpshared(&barrier, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&both->barrier, &barrier, 2);
	pthread_condattr_init(&cond);
	pthread_condattr_setpshared(&cond, PTHREAD_PROCESS_SHARED);
	pthread_cond_init(&both->cond, &cond);
}
static void lock_ask(void)
{
	ask();
	await(&both->held);
}
static void cond_tell(void)
{
	sleep_for(80 * MS);
	pthread_mutex_lock(&both->queue);
	both->there = true;
	pthread_cond_signal(&both->cond);
	pthread_mutex_unlock(&both->queue);
}
static void cond_wait(void)
{
	pthread_mutex_lock(&both->queue);
	while (!both->there)
		pthread_cond_wait(&both->cond, &both->queue);
	both->there = false;
	pthread_mutex_unlock(&both->queue);
}

static void mutex_hold(void)
{
	read_one(question[0]);
	pthread_mutex_lock(&both->mutex);
	post(&both->held);
	compute(other);
	pthread_mutex_unlock(&both->mutex);
}
static void mutex_wait(void)
{
	pthread_mutex_lock(&both->mutex);
	pthread_mutex_unlock(&both->mutex);
}

static void rwlock_hold(void)
{
	read_one(question[0]);
	pthread_rwlock_wrlock(&both->rwlock);
	post(&both->held);
	compute(other);
	pthread_rwlock_unlock(&both->rwlock);
}
static void rwlock_wait(void)
{
	pthread_rwlock_rdlock(&both->rwlock);
	pthread_rwlock_unlock(&both->rwlock);
}

static void barrier_late(void)
{
	compute(other);
	pthread_barrier_wait(&both->barrier);
}
static void barrier_wait(void)
{
	pthread_barrier_wait(&both->barrier);
}

/* Short sleeps: between looks whether the answer is there, or to keep a pace. */
static void pace_ask(void)
{
	post(&both->go);
}
static void pace_answer(void)
{
	await(&both->go);
	compute(other);
	post(&both->word);
}
static void pace_look(void)
{
	while (!__atomic_exchange_n(&both->word, 0, __ATOMIC_SEQ_CST))
		sleep_for(5 * MS);
}
static void pace_keep(void)
{
	for (int i = 0; i < 16; i++)
		sleep_for(5 * MS);
}
static void sleep_on(void)
{
	sleep_for(80 * MS);
}

/* A process a round, which computes or sleeps on purpose. */
static void be_made(void *unused)
{
	(void)unused;
	actor_enter(other, fault ? "answerer" : "source");
	if (fault)
		compute(other);
	else
		sleep_on();
}
static void vfork_wait(void)
{
	/* As in vfork, it waits until the child ends; the child has a memory of its own, because it calls functions. */
	pid_t pid = must(syscall(SYS_clone, CLONE_VFORK | SIGCHLD, 0, 0, 0, 0), "clone");

	if (pid == 0) {
		be_made(NULL);
		_exit(0);
	}
	must(waitpid(pid, NULL, 0), "waitpid");
}

static void sigchld_make(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, NULL);
}
static void sigchld_wait(void)
{
	pid_t pid = child(be_made, NULL);
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	while (sigwaitinfo(&set, NULL) < 0)
		if (errno != EINTR)
			fail("sigwaitinfo: %s", strerror(errno));
	wait_for(pid);
}

/* The answerer stops the waiter, which computes, by a signal whose handler waits; nobody has asked for that. */
static volatile sig_atomic_t stopped; /* so often: the next signal may come before the last one has been seen */
static void stop(int number)
{
	(void)number;
	await(&both->word);
	stopped = stopped + 1;
}
static void handler_make(void)
{
	struct sigaction action = { .sa_handler = stop };

	locks_make();
	sigaction(SIGUSR2, &action, NULL);
}
static void handler_stop(void)
{
	sleep_for(2 * MS);
	must(kill(waiter_pid, SIGUSR2), "kill");
	compute(other);
	post(&both->word);
}
static void handler_wait(void)
{
	static sig_atomic_t seen;

	sig_atomic_t now_seen;

	while ((now_seen = stopped) == seen)
		burn(MS / 10);
	seen = now_seen;
}
static void word_tell(void)
{
	sleep_for(80 * MS);
	post(&both->word);
}
static void word_wait(void)
{
	await(&both->word);
}

/*
 * Of a thread that is busy when it is asked, but for each fourth time. Without the fault it is as busy, after its first word, and tells what
 * nobody asked for.
 */
static void busy_make(void)
{
	pipes_make();
	must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), "socketpair");
}
static void busy_ask(void)
{
	if (round_number % 4 == 0)
		sleep_for(20 * MS);
	write_one(sockets[0]);
}
static void busy_answer(void)
{
	read_one(sockets[1]);
	compute(other);
	write_one(sockets[1]);
	burn(8 * MS);
}
static void busy_tell(void)
{
	static bool told;

	/* The first word of a process that the waiter made is what it made it for, perhaps. */
	if (told)
		burn(80 * MS);
	else
		sleep_on();
	told = true;
	write_one(sockets[1]);
}
static void busy_wait(void)
{
	struct pollfd fds[] = { { sockets[0], POLLIN, 0 }, { answer[0], POLLIN, 0 } };

	must(poll(fds, 2, -1), "poll");
	read_one(sockets[0]);
}

/* A dispatcher and two workers, which take turns and answer by themselves. */
static int work[2][2];
static void be_worker(void *number)
{
	bool is_second = number;
	struct actor *actor = is_second ? second : other;

	actor_enter(actor, fault ? "answerer" : "source");
	for (;;) {
		read_one(work[is_second][0]);
		if (fault)
			compute(actor);
		write_one(answer[1]);
	}
}
static void pool_make(void)
{
	pipes_make();
	must(pipe2(work[0], O_CLOEXEC), "pipe");
	must(pipe2(work[1], O_CLOEXEC), "pipe");
	second = actor_new();
	child(be_worker, NULL);
	child(be_worker, work);
}
static void dispatch(void)
{
	static int turn;

	if (fault)
		read_one(question[0]);
	else
		sleep_on();
	write_one(work[turn++ % 2][1]);
}
static void answer_wait(void)
{
	read_one(answer[0]);
}

/* A connection a round, made while the answerer is busy, or one that lasts. */
static struct sockaddr_un address = { .sun_family = AF_UNIX };
static int listener, connection = -1, accepted = -1;
static int connected(void)
{
	int fd = must(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");

	must(connect(fd, (struct sockaddr *)&address, sizeof(address)), "connect");
	return fd;
}
static void listen_for(int backlog)
{
	/* An abstract name: nothing in the filesystem. */
	snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "known-stalls.%d", getpid());
	listener = must(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
	must(bind(listener, (struct sockaddr *)&address, sizeof(address)), "bind");
	must(listen(listener, backlog), "listen");
}
static void reconnect_make(void)
{
	listen_for(8);
	if (!fault)
		connection = connected();
}
static void reconnect_ask(void)
{
	sleep_for(2 * MS);
	connection = connected();
}
static void reconnect_answer(void)
{
	int fd = must(accept(listener, NULL, NULL), "accept");

	compute(other);
	write_one(fd);
	close(fd);
	burn(8 * MS);
}
static void reconnect_tell(void)
{
	if (accepted < 0)
		accepted = must(accept(listener, NULL, NULL), "accept");
	sleep_on();
	write_one(accepted);
}
static void reconnect_wait(void)
{
	read_one(connection);
	if (fault)
		close(connection);
}

/* The answerer is too late for three of four questions, and says nothing then. Without the fault no news came in time. */
static void unanswered_make(void)
{
	struct timeval limit = { 0, 80000 };

	must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), "socketpair");
	must(setsockopt(sockets[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), "SO_RCVTIMEO");
}
static void unanswered_ask(void)
{
	sleep_for(60 * MS);
	write_one(sockets[0]);
}
static void unanswered_answer(void)
{
	static int questions;
	bool in_time = questions++ % 4 == 0;

	read_one(sockets[1]);
	window_begin(other);
	burn(in_time ? 2 * MS : 110 * MS);
	window_end(other);
	if (in_time)
		write_one(sockets[1]);
}
static void unanswered_tell(void)
{
	sleep_for(200 * MS);
	write_one(sockets[1]);
}
static void unanswered_wait(void)
{
	char byte;

	if (recv(sockets[0], &byte, 1, 0) < 0 && errno != EAGAIN)
		fail("recv: %s", strerror(errno));
}

/* Room in a pipe. */
static void full_pipe_make(void)
{
	pipes_make();
	must(fcntl(answer[1], F_SETPIPE_SZ, PIECE), "F_SETPIPE_SZ");
	if (fault)
		must(write(answer[1], piece, PIECE), "write");
}
static void pipe_drain(void)
{
	char there[PIECE];

	compute(other);
	must(read(answer[0], there, PIECE), "read");
}
static void pipe_fill(void)
{
	must(write(answer[1], piece, PIECE), "write");
}
static void pipe_tell(void)
{
	sleep_on();
	write_one(answer[1]);
}

/* Room in a socket, for bytes or a file. */
static int file;
static void full_socket_make(void)
{
	must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), "socketpair");
	file = must(open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600), "O_TMPFILE");
	must(write(file, piece, PIECE), "write");
}
static void socket_full(void)
{
	while (send(sockets[0], piece, PIECE, MSG_DONTWAIT) >= 0)
		;
}
static void socket_drain(void)
{
	char there[PIECE];

	compute(other);
	while (recv(sockets[1], there, PIECE, MSG_DONTWAIT) > 0)
		;
}
static void socket_fill(void)
{
	must(send(sockets[0], piece, PIECE, 0), "send");
}
static void file_fill(void)
{
	off_t from = 0;

	must(sendfile(sockets[0], file, &from, PIECE), "sendfile");
}
static void socket_tell(void)
{
	sleep_on();
	write_one(sockets[1]);
}
static void socket_wait(void)
{
	read_one(sockets[0]);
}

/* Room in message queues. */
static mqd_t queue;
static int messages;
static struct message {
	long type;
	char text[PIECE];
} message = { .type = 1 };

static void mq_make(void)
{
	struct mq_attr attributes = { .mq_maxmsg = 1, .mq_msgsize = 8 };
	char name[64];

	snprintf(name, sizeof(name), "/known-stalls.room.%d", getpid());
	queue = mq_open(name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600, &attributes);
	if (queue < 0)
		skip("mq_open: %s", strerror(errno));
	/* The queue lives as long as its descriptors. */
	mq_unlink(name);
	if (fault)
		must(mq_send(queue, "x", 1, 0), "mq_send");
}
static void mq_put(void)
{
	must(mq_send(queue, "x", 1, 0), "mq_send");
}
static void mq_take(void)
{
	char bytes[8];

	must(mq_receive(queue, bytes, sizeof(bytes), NULL), "mq_receive");
}
static void mq_drain(void)
{
	compute(other);
	mq_take();
}
static void mq_tell(void)
{
	sleep_on();
	mq_put();
}

static void msg_make(void)
{
	/* The queue goes with the last process that sees it. */
	must(unshare(CLONE_NEWIPC), "unshare");
	messages = must(msgget(IPC_PRIVATE, 0600), "msgget");
	while (fault && msgsnd(messages, &message, PIECE, IPC_NOWAIT) == 0)
		;
}
static void msg_put(void)
{
	must(msgsnd(messages, &message, PIECE, 0), "msgsnd");
}
static void msg_take(void)
{
	struct message taken;

	must(msgrcv(messages, &taken, PIECE, 0, 0), "msgrcv");
}
static void msg_drain(void)
{
	compute(other);
	msg_take();
}
static void msg_tell(void)
{
	sleep_on();
	msg_put();
}

/* Room in the queue of a listening socket, which has one connection already. */
static void connect_make(void)
{
	listen_for(0);
	if (fault)
		connected();
}
static void connect_drain(void)
{
	compute(other);
	close(must(accept(listener, NULL, NULL), "accept"));
}
static void connect_wait(void)
{
	close(connected());
}
static void connect_tell(void)
{
	sleep_on();
	close(connected());
}
static void accept_wait(void)
{
	close(must(accept(listener, NULL, NULL), "accept"));
}

/* close() of a TCP connection whose last bytes the answerer has no room for yet. */
static struct sockaddr_in here = { .sin_family = AF_INET };
static int tcp_connected(void)
{
	int fd = must(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");

	must(connect(fd, (struct sockaddr *)&here, sizeof(here)), "connect");
	return fd;
}
static void linger_make(void)
{
	socklen_t length = sizeof(here);
	int room = 2 * PIECE;

	here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	listener = must(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
	must(setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room)), "SO_RCVBUF");
	must(bind(listener, (struct sockaddr *)&here, sizeof(here)), "bind");
	must(listen(listener, 8), "listen");
	must(getsockname(listener, (struct sockaddr *)&here, &length), "getsockname");
	if (!fault)
		connection = tcp_connected();
}
static void linger_fill(void)
{
	struct linger linger = { 1, 10 };

	connection = tcp_connected();
	must(setsockopt(connection, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)), "SO_LINGER");
	while (send(connection, piece, PIECE, MSG_DONTWAIT) > 0)
		;
}
static void linger_drain(void)
{
	char there[PIECE];
	int fd = must(accept(listener, NULL, NULL), "accept");

	/* To take what is there needs time, too. */
	window_begin(other);
	burn(80 * MS);
	while (must(read(fd, there, PIECE), "read") > 0)
		;
	window_end(other);
	close(fd);
}
static void linger_wait(void)
{
	close(connection);
}

/*
 * `before` is what the waiter does outside of its window: it asks, or fills what it then wants room in. `does` is a round of the answerer,
 * `waits` what the waiter waits in; `tells` and `idles` are the same without the fault. Without `does` the waiter makes a process a round.
 */
static const struct call {
	const char *name, *cause;
	void (*make)(void), (*before)(void), (*does)(void), (*waits)(void), (*tells)(void), (*idles)(void);
} calls[] = {
	{ "mutex", "lock", locks_make, lock_ask, mutex_hold, mutex_wait, cond_tell, cond_wait },
	{ "rwlock", "lock", locks_make, lock_ask, rwlock_hold, rwlock_wait, cond_tell, cond_wait },
	{ "barrier", "lock", locks_make, NULL, barrier_late, barrier_wait, cond_tell, cond_wait },
	{ "pace", "server", locks_make, pace_ask, pace_answer, pace_look, sleep_on, pace_keep },
	{ "vfork", "child", NULL, NULL, NULL, vfork_wait, NULL, vfork_wait },
	{ "sigchld", "child", sigchld_make, NULL, NULL, sigchld_wait, NULL, sigchld_wait },
	{ "handler", "server", handler_make, NULL, handler_stop, handler_wait, word_tell, word_wait },
	{ "busy", "server", busy_make, busy_ask, busy_answer, busy_wait, busy_tell, busy_wait },
	{ "pool", "server", pool_make, ask, dispatch, answer_wait, dispatch, answer_wait },
	{ "reconnect", "server", reconnect_make, reconnect_ask, reconnect_answer, reconnect_wait, reconnect_tell, reconnect_wait },
	{ "unanswered", "server", unanswered_make, unanswered_ask, unanswered_answer, unanswered_wait, unanswered_tell, unanswered_wait },
	{ "full-pipe", "server", full_pipe_make, NULL, pipe_drain, pipe_fill, pipe_tell, answer_wait },
	{ "full-socket", "server", full_socket_make, socket_full, socket_drain, socket_fill, socket_tell, socket_wait },
	{ "sendfile", "server", full_socket_make, socket_full, socket_drain, file_fill, socket_tell, socket_wait },
	{ "mq_send", "server", mq_make, NULL, mq_drain, mq_put, mq_tell, mq_take },
	{ "msgsnd", "server", msg_make, NULL, msg_drain, msg_put, msg_tell, msg_take },
	{ "connect", "server", connect_make, NULL, connect_drain, connect_wait, connect_tell, accept_wait },
	{ "linger", "server", linger_make, linger_fill, linger_drain, linger_wait, reconnect_tell, reconnect_wait },
};
static const struct call *call;

static void be_other(void *unused)
{
	(void)unused;
	/* Workers compute in the dispatcher's place. */
	if (second)
		prctl(PR_SET_NAME, "dispatcher");
	else
		actor_enter(other, fault ? "answerer" : "source");
	for (;;)
		fault ? call->does() : call->tells();
}

int main(int argc, char **argv)
{
	struct truth truth = { 0 };
	pid_t pid = 0;

	fault = truth_begin(argc, argv);
	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++)
		if (truth_argument() && strcmp(calls[i].name, truth_argument()) == 0)
			call = &calls[i];
	if (!call)
		fail("usage: idle-rules CALL [--off]; the calls are in idle-rules.c");
	truth.cause = call->cause;
	waiter_pid = getpid();
	waiter = truth.victims[0] = truth.chain[0] = actor_new();
	other = truth.culprits[0] = truth.chain[1] = actor_new();
	if (call->make)
		call->make();
	actor_enter(waiter, "waiter");
	if (call->does) {
		pid = child(be_other, NULL);
		/* The other waits by then, or computes. */
		sleep_for(50 * MS);
	}
	for (round_number = 0; round_number < ROUNDS; round_number++) {
		if (fault && call->before)
			call->before();
		window_begin(waiter);
		(fault ? call->waits : call->idles)();
		window_end(waiter);
		burn(1 * MS);
	}
	/* A late answerer has ended its window by then. */
	sleep_for(40 * MS);
	if (pid)
		kill_and_wait(pid);
	truth.culprits[1] = second;
	truth.cause_ns = overlap(waiter, other) + (second ? overlap(waiter, second) : 0);
	return truth_end(&truth);
}

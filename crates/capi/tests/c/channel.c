/* stopgap_channel(3): a server and a client process, an event loop, descriptors, and what is refused. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "test.h"

#define SECOND INT64_C(1000000000)

/* Answers with the request reversed, until the client goes. Nothing of it may fail. */
static int serve(stopgap_channel *channel)
{
	char request[300], reply[300];
	ptrdiff_t length, i;

	for (;;) {
		length = stopgap_channel_recv(channel, request, sizeof request, -1);
		if (length < 0)
			return errno == EPIPE && stopgap_channel_close(channel) == 0 ? 0 : 2;
		for (i = 0; i < length; i++)
			reply[i] = request[length - 1 - i];
		if (stopgap_channel_send(channel, reply, (size_t)length, -1) != 0)
			return 3;
	}
}

static void two_processes(const char *path)
{
	struct stopgap_channel_statistics statistics;
	stopgap_channel *channel;
	stopgap_listener *listener;
	char reply[300];
	size_t length;
	pid_t child;
	int status, i;

	listener = stopgap_channel_listen(path);
	CHECK(listener != NULL);
	CHECK(stopgap_listener_fd(listener) >= 0);
	REFUSES(stopgap_channel_listen(path), EADDRINUSE);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		channel = stopgap_channel_accept(listener, NULL);
		_exit(channel == NULL ? 1 : serve(channel));
	}
	WORKS((channel = stopgap_channel_connect(path, NULL)) != NULL);
	WORKS(stopgap_channel_call(channel, "stop", 4, reply, sizeof reply, 5 * SECOND) == 4);
	CHECK(memcmp(reply, "pots", 4) == 0);
	/* The same bytes for the request and the reply. */
	WORKS(stopgap_channel_call(channel, reply, 4, reply, 4, 5 * SECOND) == 4);
	CHECK(memcmp(reply, "stop", 4) == 0);
	for (i = 0; i < 32; i++)
		WORKS(stopgap_channel_send(channel, "ab", 2, SECOND) == 0);
	for (i = 0; i < 32; i++)
		WORKS(stopgap_channel_recv(channel, reply, sizeof reply, 5 * SECOND) == 2 && reply[0] == 'b');
	memset(&statistics, 0xff, sizeof statistics);
	statistics.size = sizeof statistics;
	WORKS(stopgap_channel_stat(channel, &statistics) == 0);
	CHECK(statistics.size == sizeof statistics && statistics.sent == 34 && statistics.received == 34);
	CHECK(statistics.wakes <= 34);

	/* Too short for the message: it stays. */
	WORKS(stopgap_channel_send(channel, "longer", 6, SECOND) == 0);
	FAILS(stopgap_channel_recv(channel, reply, 5, 5 * SECOND), EMSGSIZE);
	WORKS(stopgap_channel_next(channel, &length) == 1 && length == 6);
	WORKS(stopgap_channel_recv(channel, reply, 6, 0) == 6);
	WORKS(stopgap_channel_next(channel, &length) == 0);
	FAILS(stopgap_channel_recv(channel, reply, sizeof reply, SECOND / 100), ETIMEDOUT);
	FAILS(stopgap_channel_recv(channel, reply, sizeof reply, 0), ETIMEDOUT);
	length = (size_t)stopgap_channel_longest(channel);
	CHECK(length > 60000);
	{
		char *long_one = calloc(1, length + 1);
		FAILS(stopgap_channel_send(channel, long_one, length + 1, SECOND), EMSGSIZE);
		free(long_one);
	}
	/* An event loop of one's own. */
	{
		struct pollfd poll_for = {stopgap_channel_fd(channel), POLLIN, 0};

		WORKS(stopgap_channel_send(channel, "x", 1, SECOND) == 0);
		while ((i = stopgap_channel_arm(channel)) == 1)
			CHECK(poll(&poll_for, 1, 5000) == 1);
		CHECK(i == 0);
		WORKS(stopgap_channel_recv(channel, reply, sizeof reply, 0) == 1);
	}
	WORKS(stopgap_channel_check_peer(channel) == 0);
	WORKS(stopgap_channel_close(channel) == 0);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	FAILS(stopgap_channel_call(channel, "x", 1, reply, sizeof reply, SECOND), EBADF);
	FAILS(stopgap_channel_close(channel), EBADF);
	/* A listener is no channel. */
	FAILS(stopgap_channel_close((stopgap_channel *)listener), EBADF);
	WORKS(stopgap_listener_close(listener) == 0);
	REFUSES(stopgap_channel_accept(listener, NULL), EBADF);
	REFUSES(stopgap_channel_connect(path, NULL), ECONNREFUSED);
}

/* Descriptors over a socket that was there before a fork; then the other side is killed in its sleep. */
static void descriptors_and_death(void)
{
	stopgap_channel *channel;
	int ends[2], fds[4], back[2], status;
	char text[20];
	pid_t child;

	CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		close(ends[0]);
		channel = stopgap_channel_over(ends[1], 1, NULL);
		if (channel == NULL || stopgap_channel_recv(channel, text, sizeof text, -1) != 4)
			_exit(1);
		if (stopgap_channel_take_fds(channel, fds, 4) != 1 || write(fds[0], text, 4) != 4)
			_exit(2);
		close(fds[0]);
		stopgap_channel_recv(channel, text, sizeof text, -1); /* until it is killed */
		_exit(3);
	}
	close(ends[1]);
	channel = stopgap_channel_over(ends[0], 0, NULL);
	CHECK(channel != NULL);
	CHECK(fcntl(ends[0], F_GETFD) == -1); /* it is the channel's now */
	CHECK(pipe(back) == 0);
	WORKS(stopgap_channel_send_fds(channel, "here", 4, &back[1], 1, SECOND) == 0);
	WORKS(stopgap_channel_flush(channel) == 0);
	close(back[1]);
	CHECK(read(back[0], text, sizeof text) == 4 && memcmp(text, "here", 4) == 0);
	close(back[0]);
	fds[0] = -1;
	FAILS(stopgap_channel_send_fds(channel, "x", 1, fds, 1, SECOND), EBADF);
	FAILS(stopgap_channel_send_fds(channel, "x", 1, fds, 17, SECOND), EINVAL);
	FAILS(stopgap_channel_send_fds(channel, "x", 1, NULL, 1, SECOND), EFAULT);
	CHECK(kill(child, SIGKILL) == 0);
	FAILS(stopgap_channel_recv(channel, text, sizeof text, 5 * SECOND), EPIPE);
	FAILS(stopgap_channel_check_peer(channel), EPIPE);
	WORKS(stopgap_channel_close(channel) == 0);
	CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));

	/* Another kind of socket stays the caller's. */
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
	REFUSES(stopgap_channel_over(ends[0], 0, NULL), EINVAL);
	REFUSES(stopgap_channel_over(ends[0], 2, NULL), EINVAL);
	CHECK(fcntl(ends[0], F_GETFD) != -1);
	close(ends[0]);
	close(ends[1]);
	REFUSES(stopgap_channel_over(-1, 0, NULL), EBADF);
	REFUSES(stopgap_channel_connect(NULL, NULL), EFAULT);
}

static volatile int waiter;

static void *waits(void *listener)
{
	stopgap_channel *channel;

	waiter = (int)syscall(SYS_gettid);
	channel = stopgap_channel_accept(listener, NULL);

	CHECK(channel != NULL && stopgap_channel_close(channel) == 0);
	return NULL;
}

/* While a thread is in a call the handle is busy; in the child of a fork that thread is not there, and it is not. */
static void busy(const char *path)
{
	stopgap_listener *listener = stopgap_channel_listen(path);
	stopgap_channel *channel;
	pthread_t thread;
	int status, tries;
	pid_t child;

	CHECK(listener != NULL && pthread_create(&thread, NULL, waits, listener) == 0);
	/* Until it sleeps, which it does in accept alone. */
	for (tries = 0; tries < 5000; tries++) {
		struct timespec pause = {0, 1000000};
		char state[512], name[64];
		FILE *file;

		nanosleep(&pause, NULL);
		snprintf(name, sizeof name, "/proc/self/task/%d/stat", waiter);
		file = fopen(name, "r");
		if (file == NULL)
			continue;
		status = fscanf(file, "%*d %*s %500s", state);
		fclose(file);
		if (status == 1 && state[0] == 'S')
			break;
	}
	FAILS(stopgap_listener_close(listener), EBUSY);
	child = fork();
	CHECK(child >= 0);
	if (child == 0)
		_exit(stopgap_listener_close(listener) == 0 ? 0 : 1);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	FAILS(stopgap_listener_close(listener), EBUSY);
	CHECK((channel = stopgap_channel_connect(path, NULL)) != NULL);
	CHECK(pthread_join(thread, NULL) == 0);
	WORKS(stopgap_channel_close(channel) == 0);
	WORKS(stopgap_listener_close(listener) == 0);
	CHECK(unlink(path) == 0);
}

int main(int argc, char **argv)
{
	char folder[] = "/tmp/stopgap-capi-XXXXXX", path[100];

	(void)argc;
	(void)argv;
	CHECK(mkdtemp(folder) != NULL);
	snprintf(path, sizeof path, "%s/socket", folder);
	two_processes(path);
	CHECK(unlink(path) == 0);
	busy(path);
	descriptors_and_death();
	CHECK(rmdir(folder) == 0);
	puts("done");
	return 0;
}

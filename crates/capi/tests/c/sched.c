/* stopgap_sched(3): SCHED_BATCH, and the writer. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>

#include "test.h"

static void batch(void)
{
	FAILS(stopgap_batch_client_end(), EINVAL);
	CHECK(sched_getscheduler(0) == SCHED_OTHER);
	WORKS(stopgap_batch_client() == 0);
	CHECK(sched_getscheduler(0) == SCHED_BATCH);
	WORKS(stopgap_batch_client() == 0);
	WORKS(stopgap_batch_client_end() == 0);
	CHECK(sched_getscheduler(0) == SCHED_OTHER);
	FAILS(stopgap_batch_client_end(), EINVAL);
}

static void writer(void)
{
	struct stopgap_writer_options options;
	stopgap_writer *writer;
	char buffer[100];
	int ends[2], flags;
	int64_t due;
	size_t pending;

	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
	memset(&options, 0, sizeof options);
	options.size = sizeof options;
	options.longest_ns = UINT64_C(3600000000000);
	options.most_pending = 1000000;
	writer = stopgap_writer_open(ends[0], &options);
	CHECK(writer != NULL);

	WORKS(stopgap_writer_due(writer, &due, &pending) == 0 && due == -1 && pending == 0);
	WORKS(stopgap_writer_push(writer, "one", 3) == STOPGAP_GATHERING);
	WORKS(stopgap_writer_push(writer, "two", 3) == STOPGAP_GATHERING);
	WORKS(stopgap_writer_due(writer, &due, &pending) == 0 && due > 0 && pending == 6);
	WORKS(stopgap_writer_due(writer, NULL, NULL) == 0);
	/* Requests are there: nothing goes out before they are read. None are there: it does. */
	CHECK(write(ends[1], "ask", 3) == 3);
	WORKS(stopgap_writer_read(writer, ends[0], buffer, sizeof buffer) == 3 && memcmp(buffer, "ask", 3) == 0);
	CHECK(recv(ends[1], buffer, sizeof buffer, MSG_DONTWAIT) == -1 && errno == EAGAIN);
	flags = fcntl(ends[0], F_GETFL);
	CHECK(fcntl(ends[0], F_SETFL, flags | O_NONBLOCK) == 0);
	FAILS(stopgap_writer_read(writer, ends[0], buffer, sizeof buffer), EAGAIN);
	CHECK(recv(ends[1], buffer, sizeof buffer, MSG_DONTWAIT) == 6 && memcmp(buffer, "onetwo", 6) == 0);

	/* Nobody reads: it says so, and refuses what would be too much, whole. */
	{
		static char much[400000];
		int said = 0, i;

		for (i = 0; i < 2; i++)
			CHECK((said = stopgap_writer_push(writer, much, sizeof much)) == STOPGAP_BLOCKED);
		while ((said = stopgap_writer_push(writer, much, sizeof much)) == STOPGAP_BLOCKED)
			;
		CHECK(said == -1 && errno == ENOMEM);
	}
	WORKS(stopgap_writer_flush(writer) == STOPGAP_BLOCKED);

	/* Nobody is there: EPIPE and no SIGPIPE. */
	CHECK(signal(SIGPIPE, SIG_DFL) != SIG_ERR);
	close(ends[1]);
	FAILS(stopgap_writer_flush(writer), EPIPE);
	FAILS(stopgap_writer_push(writer, "x", 1), EPIPE);
	close(ends[0]);
	FAILS(stopgap_writer_close(writer), EPIPE);
	FAILS(stopgap_writer_close(writer), EBADF);
	FAILS(stopgap_writer_push(writer, "x", 1), EBADF);

	/* It has a descriptor of its own: what is closed outside, and opened again as something else, is not written
	 * to. */
	CHECK(pipe(ends) == 0);
	writer = stopgap_writer_open(ends[1], NULL);
	CHECK(writer != NULL);
	close(ends[1]);
	WORKS(stopgap_writer_push(writer, "pipe", 4) == STOPGAP_GATHERING);
	WORKS(stopgap_writer_close(writer) == 0);
	CHECK(read(ends[0], buffer, sizeof buffer) == 4 && memcmp(buffer, "pipe", 4) == 0);
	CHECK(read(ends[0], buffer, sizeof buffer) == 0);
	close(ends[0]);

	REFUSES(stopgap_writer_open(-1, NULL), EBADF);
	REFUSES(stopgap_writer_open(12345, NULL), EBADF);
}

/* Sizes of another version. */
static void sizes(void)
{
	struct {
		struct stopgap_writer_options known;
		uint64_t later;
	} longer;
	struct stopgap_writer_options options;
	stopgap_writer *writer;

	memset(&options, 0, sizeof options);
	REFUSES(stopgap_writer_open(1, &options), EINVAL);
	options.size = sizeof options - 1;
	REFUSES(stopgap_writer_open(1, &options), EINVAL);
	options.size = (size_t)-1;
	REFUSES(stopgap_writer_open(1, &options), EINVAL);
	memset(&longer, 0, sizeof longer);
	longer.known.size = sizeof longer;
	WORKS((writer = stopgap_writer_open(1, &longer.known)) != NULL);
	WORKS(stopgap_writer_close(writer) == 0);
	longer.later = 1;
	REFUSES(stopgap_writer_open(1, &longer.known), E2BIG);
}

int main(void)
{
	batch();
	writer();
	sizes();
	puts("done");
	return 0;
}

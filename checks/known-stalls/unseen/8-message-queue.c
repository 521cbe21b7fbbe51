// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * (8) POSIX message queues: `client` asks `broker`, the broker asks `backend`, which computes for 1 ms; `freezer`, another
 * process, stops the backend for 200 ms, five times. Off: it sends signal 0.
 */
#include "../programs/truth.h"

#include <mqueue.h>
#include <signal.h>

static struct actor *client, *broker, *backend, *freezer;
static mqd_t to_broker, to_backend, from_backend, from_broker;
static pid_t frozen;
static bool fault;

static mqd_t queue(void)
{
	struct mq_attr attributes = { .mq_maxmsg = 4, .mq_msgsize = 16 };
	char name[32];
	mqd_t made;

	/* Nobody else opens it: it goes with its last user. */
	snprintf(name, sizeof(name), "/known-stalls.%d", getpid());
	made = mq_open(name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600, &attributes);
	if (made == (mqd_t)-1)
		skip("mq_open: %s", strerror(errno));
	mq_unlink(name);
	return made;
}

static void put(mqd_t to)
{
	must(mq_send(to, "x", 1, 0), "mq_send");
}

static void take(mqd_t from)
{
	char message[16];

	must(mq_receive(from, message, sizeof(message), NULL), "mq_receive");
}

static void be_backend(void *unused)
{
	(void)unused;
	actor_enter(backend, "backend");
	for (;;) {
		take(to_backend);
		burn(1 * MS);
		put(from_backend);
	}
}

static void be_broker(void *unused)
{
	(void)unused;
	actor_enter(broker, "broker");
	for (;;) {
		take(to_broker);
		put(to_backend);
		take(from_backend);
		put(from_broker);
	}
}

static void freeze(void *unused)
{
	(void)unused;
	actor_enter(freezer, "freezer");
	for (int i = 0; i < 5; i++) {
		sleep_for(100 * MS);
		window_begin(freezer);
		must(kill(frozen, fault ? SIGSTOP : 0), "kill");
		if (fault)
			sleep_for(200 * MS);
		must(kill(frozen, fault ? SIGCONT : 0), "kill");
		window_end(freezer);
	}
}

static void ask(void *unused)
{
	uint64_t end = now() + 1700 * MS;

	(void)unused;
	actor_enter(client, "client");
	while (now() < end) {
		window_begin(client);
		put(to_broker);
		take(from_broker);
		window_end(client);
		sleep_for(5 * MS);
	}
}

int main(int argc, char **argv)
{
	struct truth truth = { .cause = "stopped" };
	pid_t others[3];

	fault = truth_begin(argc, argv);
	to_broker = queue();
	to_backend = queue();
	from_backend = queue();
	from_broker = queue();
	client = truth.victims[0] = truth.chain[0] = actor_new();
	broker = truth.chain[1] = actor_new();
	backend = truth.chain[2] = actor_new();
	freezer = truth.culprits[0] = truth.chain[3] = actor_new();
	frozen = others[0] = child(be_backend, NULL);
	others[1] = child(be_broker, NULL);
	others[2] = child(freeze, NULL);
	look_for_end(child(ask, NULL));
	look_for_end(others[2]);
	kill_and_wait(others[0]);
	kill_and_wait(others[1]);
	truth.cause_ns = overlap(client, freezer);
	return truth_end(&truth);
}

// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * (d) The control group's freezer: `app` asks `service` by a Unix socket; `manager` freezes the service's group for 150 ms,
 * 7 times, as phones do to save power. Off: it writes 0 instead of 1.
 */
#include "../programs/truth.h"

#include <sys/socket.h>

static struct actor *app, *service, *manager;
static struct group group;
static bool fault;
static int ends[2];

static void serve(void *unused)
{
	char byte;

	(void)unused;
	group_join(&group);
	actor_enter(service, "service");
	while (must(read(ends[1], &byte, 1), "read") == 1)
		must(write(ends[1], &byte, 1), "write");
}

static void ask(void *unused)
{
	uint64_t end;
	char byte = 'x';

	(void)unused;
	actor_enter(app, "app");
	/* The service has joined its group. */
	must(write(ends[0], &byte, 1), "write");
	must(read(ends[0], &byte, 1), "read");
	end = now() + 1900 * MS;
	while (now() < end) {
		window_begin(app);
		must(write(ends[0], &byte, 1), "write");
		must(read(ends[0], &byte, 1), "read");
		window_end(app);
		sleep_for(5 * MS);
	}
}

static void manage(void *unused)
{
	(void)unused;
	actor_enter(manager, "manager");
	sleep_for(100 * MS);
	for (int i = 0; i < 7; i++) {
		window_begin(manager);
		group_write(&group, "cgroup.freeze", fault ? "1" : "0");
		if (fault)
			sleep_for(150 * MS);
		group_write(&group, "cgroup.freeze", "0");
		window_end(manager);
		sleep_for(100 * MS);
	}
}

int main(int argc, char **argv)
{
	struct truth truth = { .cause = "stopped" };
	pid_t others[2];

	fault = truth_begin(argc, argv);
	must(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), "socketpair");
	group = group_plain();
	app = truth.victims[0] = truth.chain[0] = actor_new();
	service = truth.chain[1] = actor_new();
	manager = truth.culprits[0] = truth.chain[2] = actor_new();
	others[0] = child(serve, NULL);
	others[1] = child(manage, NULL);
	look_for_end(child(ask, NULL));
	look_for_end(others[1]);
	kill_and_wait(others[0]);
	truth.cause_ns = overlap(app, manager);
	return truth_end(&truth);
}

// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * (e) Major faults: `toucher`, in a memory cgroup, has 64 MiB swapped out to a file and touches them out of order,
 * until 600 ms have been lost asleep. Off: nothing is swapped out. Of a fault of 30 us, the wake-up of a CPU that is idle takes a
 * fifth on some hosts, by no fault of the disk: no CPU is idle, because threads of the lowest policy compute on each.
 */
#include "truth.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif
#define BYTES (64 * MIB)
#define PAGES (BYTES / 4096)

static struct actor *toucher;
static struct group group;
static uint32_t *squeeze, *squeezed;
static bool fault;

/* Has all pages written to swap, and then, by the first process, given up. */
static void swap_out(char *memory)
{
	if (madvise(memory, BYTES, MADV_PAGEOUT) < 0)
		skip("MADV_PAGEOUT: %s", strerror(errno));
	/* Pages are clean when they have been written. */
	sleep_for(200 * MS);
	post(squeeze);
	await(squeezed);
}

static void touch(void *unused)
{
	char *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)unused;
	group_join(&group);
	if (memory == MAP_FAILED)
		fail("mmap");
	must(madvise(memory, BYTES, MADV_NOHUGEPAGE), "MADV_NOHUGEPAGE");
	for (uint64_t i = 0; i < BYTES; i++)
		memory[i] = i * 2654435761u >> 24;
	actor_enter(toucher, "toucher");
	for (int pass = 0; pass < (fault ? 8 : 1) && slept(toucher) < 600 * MS; pass++) {
		if (fault)
			swap_out(memory);
		/* 12289 has no factor in common with the number of pages: each page once, never two neighbours. 256 a window. */
		for (uint64_t i = 0; i < PAGES; i += 256) {
			window_begin(toucher);
			for (uint64_t j = i; j < i + 256; j++)
				++*(volatile char *)(memory + j * 12289 % PAGES * 4096);
			window_end(toucher);
		}
	}
}

/* Outside of the cgroup: lowers its limit, which gives pages up, and raises it again. */
static void squeeze_on(void *unused)
{
	(void)unused;
	for (;;) {
		await(squeeze);
		if (group.unified)
			group_write(&group, "memory.reclaim", "%llu", BYTES);
		else
			memory_limit(&group, 8 * MIB);
		memory_limit(&group, 128 * MIB);
		post(squeezed);
	}
}

/* Gives its CPU up to any other at once. */
static void keep_busy(void *cpu)
{
	const struct sched_param none = { 0 };

	pin(*(int *)cpu);
	/* The judge knows this name: what it is waited behind so shortly is a CPU's wake-up. */
	must(prctl(PR_SET_NAME, "keeps-awake"), "PR_SET_NAME");
	must(sched_setscheduler(0, SCHED_IDLE, &none), "SCHED_IDLE");
	for (;;)
		;
}

int main(int argc, char **argv)
{
	struct truth truth = { .cause = "swap-in", .outside = "disk", .without_running = true };
	int cpus = sysconf(_SC_NPROCESSORS_ONLN);
	pid_t other, busy[cpus];

	fault = truth_begin(argc, argv);
	toucher = truth.victims[0] = truth.chain[0] = actor_new();
	group = group_new("memory");
	memory_limit(&group, 128 * MIB);
	swap_on(384 * MIB);
	squeeze = shared(4), squeezed = shared(4);
	other = child(squeeze_on, NULL);
	for (int cpu = 0; cpu < cpus; cpu++)
		busy[cpu] = child(keep_busy, &cpu);
	look_for_end(child(touch, NULL));
	for (int cpu = 0; cpu < cpus; cpu++)
		kill_and_wait(busy[cpu]);
	kill_and_wait(other);
	truth.cause_ns = slept(toucher);
	return truth_end(&truth);
}

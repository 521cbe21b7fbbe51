// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * (e) Major faults: `toucher`, in a memory cgroup, has 64 MiB swapped out to a file and touches them out of order,
 * until 600 ms have been lost asleep. Off: nothing is swapped out. A fault takes 30 us. The program cannot measure how long a CPU takes to wake
 * a thread, so that must be short: a thread of the lowest policy keeps each CPU from being idle, and `toucher` runs on the CPU that takes the
 * disk's interrupts. On the other CPU of a guest its wake-up took 16 us.
 */
#include "truth.h"

#include <sched.h>
#include <sys/mman.h>

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif
#define BYTES (64 * MIB)
#define PAGES (BYTES / 4096)
#define WINDOW_PAGES 256

static struct actor *toucher;
static struct group group;
static uint32_t *squeeze, *squeezed;
static bool fault;

/* Adds what each CPU has taken of the interrupts with a number, which are those of devices. */
static void add_interrupts(long *taken, int cpus, int sign)
{
	FILE *file = fopen("/proc/interrupts", "re");
	char *line = NULL, *word;
	size_t room = 0;

	while (file && getline(&line, &room, file) > 0) {
		word = line + strspn(line, " ");
		if (*word < '0' || *word > '9' || !(word = strchr(word, ':')))
			continue;
		word++;
		for (int cpu = 0; cpu < cpus; cpu++)
			taken[cpu] += sign * strtol(word, &word, 10);
	}
	free(line);
	if (file)
		fclose(file);
}

/* Touches pages from the `first` one. 12289 has no factor in common with the number of pages: each page once, never two neighbours. */
static void touch_pages(char *memory, uint64_t first)
{
	for (uint64_t i = first; i < first + WINDOW_PAGES; i++)
		++*(volatile char *)(memory + i * 12289 % PAGES * 4096);
}

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

/* Moves the thread to the CPU that takes most interrupts while a few pages are read. */
static void go_to_the_disk(char *memory)
{
	int cpus = sysconf(_SC_NPROCESSORS_ONLN), most = 0;
	long taken[cpus];

	memset(taken, 0, sizeof(taken));
	swap_out(memory);
	add_interrupts(taken, cpus, -1);
	touch_pages(memory, 0);
	add_interrupts(taken, cpus, 1);
	for (int cpu = 1; cpu < cpus; cpu++)
		if (taken[cpu] > taken[most])
			most = cpu;
	pin(most);
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
	if (fault)
		go_to_the_disk(memory);
	actor_enter(toucher, "toucher");
	for (int pass = 0; pass < (fault ? 8 : 1) && slept(toucher) < 600 * MS; pass++) {
		if (fault)
			swap_out(memory);
		for (uint64_t i = 0; i < PAGES; i += WINDOW_PAGES) {
			window_begin(toucher);
			touch_pages(memory, i);
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

// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * (h) O_DIRECT reads behind another process's: `lookup` reads 4 KiB anywhere in a file, `scanner` keeps 32 reads of 1 MiB in
 * flight by io_submit. What a read takes without the scanner is measured first and is no part of the cause. Off: it sleeps.
 */
#include "../programs/truth.h"

#include <linux/aio_abi.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define FILE_BYTES (256 * MIB)
#define FLIGHT 32

static struct actor *lookup, *scanner;
static uint64_t *usual;
static uint32_t *go;
static bool fault;
static char path[4096];

static void *buffer(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (memory == MAP_FAILED)
		fail("mmap: %s", strerror(errno));
	return memory;
}

static int direct(void)
{
	int fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);

	if (fd < 0 && errno == EINVAL)
		skip("the file system has no O_DIRECT");
	return must(fd, path);
}

static void scan(void *unused)
{
	int fd = direct();
	aio_context_t context = 0;
	char *memory = buffer(FLIGHT * MIB);
	struct iocb reads[FLIGHT], *one;
	struct io_event events[FLIGHT];
	uint64_t next = 0;
	long done = FLIGHT;

	(void)unused;
	actor_enter(scanner, "scanner");
	must(syscall(SYS_io_setup, FLIGHT, &context), "io_setup");
	for (int i = 0; i < FLIGHT; i++) {
		reads[i] = (struct iocb){ .aio_fildes = fd, .aio_lio_opcode = IOCB_CMD_PREAD, .aio_nbytes = MIB };
		reads[i].aio_buf = (uintptr_t)memory + i * MIB;
		reads[i].aio_data = i;
		events[i].data = i;
	}
	await(go);
	if (!fault)
		sleep_for(20000 * MS);
	for (;;) {
		window_begin(scanner);
		for (long i = 0; i < done; i++) {
			one = &reads[events[i].data];
			one->aio_offset = next++ * MIB % FILE_BYTES;
			must(syscall(SYS_io_submit, context, 1, &one), "io_submit");
		}
		done = must(syscall(SYS_io_getevents, context, 1, FLIGHT, events, NULL), "io_getevents");
		window_end(scanner);
	}
}

static void look_up(int fd, char *memory)
{
	static uint64_t state = 1;

	state = state * 6364136223846793005 + 1442695040888963407;
	window_begin(lookup);
	must(pread(fd, memory, 4096, (state >> 33) % (FILE_BYTES / 4096) * 4096), "pread");
	window_end(lookup);
	sleep_for(1 * MS);
}

static void look(void *unused)
{
	int fd = direct();
	char *memory = buffer(4096);
	uint64_t end;

	(void)unused;
	actor_enter(lookup, "lookup");
	for (int i = 0; i < 101; i++)
		look_up(fd, memory);
	*usual = usual_length(lookup);
	post(go);
	end = now() + 1500 * MS;
	while (now() < end)
		look_up(fd, memory);
}

int main(int argc, char **argv)
{
	struct truth truth = { .cause = "disk-read", .outside = "disk" };
	pid_t other;

	fault = truth_begin(argc, argv);
	snprintf(path, sizeof(path), "%s", prepared_file("scanned", FILE_BYTES));
	usual = shared(sizeof(*usual));
	go = shared(sizeof(*go));
	lookup = truth.victims[0] = truth.chain[0] = actor_new();
	scanner = truth.culprits[0] = truth.chain[1] = actor_new();
	other = child(scan, NULL);
	look_for_end(child(look, NULL));
	kill_and_wait(other);
	truth.cause_ns = without(overlap_beyond(lookup, scanner, *usual), queued(lookup) + ran(lookup));
	return truth_end(&truth);
}

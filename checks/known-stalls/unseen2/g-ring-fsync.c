// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * (g) fsync by io_uring: `store` appends 4 KiB and asks its ring for an fsync, which a worker of the kernel does, while `writer`
 * writes 96 MiB and waits until they are on disk, again and again. What it takes without the writer is measured first and is
 * no part of the cause. Off: the writer sleeps.
 */
#include "../programs/truth.h"

#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>

static struct actor *store, *writer;
static uint64_t *usual;
static uint32_t *go;
static bool fault;

struct ring {
	int fd;
	char *submissions, *completions;
	struct io_uring_sqe *entries;
	struct io_uring_params params;
};

static void *mapped(const struct ring *ring, size_t bytes, uint64_t what)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring->fd, what);

	if (memory == MAP_FAILED)
		fail("mmap of a ring: %s", strerror(errno));
	return memory;
}

static struct ring ring_new(void)
{
	struct ring ring = { .fd = -1 };

	ring.fd = syscall(SYS_io_uring_setup, 4, &ring.params);
	if (ring.fd < 0)
		skip("no io_uring: %s", strerror(errno));
	ring.submissions = mapped(&ring, ring.params.sq_off.array + ring.params.sq_entries * 4, IORING_OFF_SQ_RING);
	ring.completions = mapped(&ring, ring.params.cq_off.cqes + ring.params.cq_entries * sizeof(struct io_uring_cqe),
				  IORING_OFF_CQ_RING);
	ring.entries = mapped(&ring, ring.params.sq_entries * sizeof(struct io_uring_sqe), IORING_OFF_SQES);
	return ring;
}

static uint32_t *word(char *memory, uint32_t offset)
{
	return (uint32_t *)(memory + offset);
}

static void ring_fsync(struct ring *ring, int fd)
{
	uint32_t *tail = word(ring->submissions, ring->params.sq_off.tail);
	uint32_t mask = *word(ring->submissions, ring->params.sq_off.ring_mask);
	uint32_t *done = word(ring->completions, ring->params.cq_off.head);
	struct io_uring_cqe *results = (struct io_uring_cqe *)(ring->completions + ring->params.cq_off.cqes);

	ring->entries[*tail & mask] = (struct io_uring_sqe){ .opcode = IORING_OP_FSYNC, .fd = fd };
	word(ring->submissions, ring->params.sq_off.array)[*tail & mask] = *tail & mask;
	__atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
	must(syscall(SYS_io_uring_enter, ring->fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0), "io_uring_enter");
	if (__atomic_load_n(word(ring->completions, ring->params.cq_off.tail), __ATOMIC_ACQUIRE) == *done)
		fail("the ring has no completion");
	errno = -results[*done & *word(ring->completions, ring->params.cq_off.ring_mask)].res;
	must(-errno, "fsync of a ring");
	__atomic_store_n(done, *done + 1, __ATOMIC_RELEASE);
}

static void write_on(void *unused)
{
	int fd = must(open(in_folder("much"), O_CREAT | O_WRONLY | O_CLOEXEC, 0600), "much");

	(void)unused;
	actor_enter(writer, "writer");
	await(go);
	if (!fault)
		sleep_for(10000 * MS);
	for (;;) {
		window_begin(writer);
		must(ftruncate(fd, 0), "ftruncate");
		must(lseek(fd, 0, SEEK_SET), "lseek");
		write_whole(fd, 96 * MIB);
		must(fdatasync(fd), "fdatasync");
		window_end(writer);
	}
}

static void append(struct ring *ring, int fd)
{
	write_whole(fd, 4096);
	window_begin(store);
	ring_fsync(ring, fd);
	window_end(store);
	sleep_for(5 * MS);
}

static void keep(void *unused)
{
	int fd = must(open(in_folder("log"), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600), "log");
	struct ring ring = ring_new();
	uint64_t end;

	(void)unused;
	actor_enter(store, "store");
	for (int i = 0; i < 11; i++)
		append(&ring, fd);
	*usual = usual_length(store);
	post(go);
	end = now() + 2000 * MS;
	while (now() < end)
		append(&ring, fd);
}

int main(int argc, char **argv)
{
	struct truth truth = { .cause = "fsync", .outside = "disk" };
	pid_t other;

	fault = truth_begin(argc, argv);
	disk_folder();
	usual = shared(sizeof(*usual));
	go = shared(sizeof(*go));
	store = truth.victims[0] = truth.chain[0] = actor_new();
	writer = truth.culprits[0] = truth.chain[1] = actor_new();
	other = child(write_on, NULL);
	look_for_end(child(keep, NULL));
	kill_and_wait(other);
	truth.cause_ns = overlap_beyond(store, writer, *usual);
	return truth_end(&truth);
}

/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * stopgap: the fixes, as a library for C and C++.
 *
 * Link with `pkg-config --cflags --libs stopgap`. A manual page per group of functions: stopgap_arena(3),
 * stopgap_chunked(3), stopgap_locked(3), stopgap_channel(3), stopgap_sched(3), stopgap_error(3).
 *
 * What holds for every function, unless it says otherwise:
 *
 * Errors      Returns NULL or -1 and sets errno; stopgap_error_text() says more. Nothing was changed then. Where a
 *             function succeeds, errno is as it was before. No function calls back. None ends the program, but for
 *             one case: where malloc(3) has no memory for what the library keeps itself, it aborts, as everything in
 *             Rust does. Buffers of stopgap_arena(3) never need malloc once the arena is made.
 * Handles     A stopgap_... * that a function returns is a name, not an address: nothing lies there. One that was never
 *             given out, was closed, or is of another kind is refused with EBADF, NULL too. Closing one that another
 *             thread is in a call with fails with EBUSY. After a defect in the library itself (ENOTRECOVERABLE) a
 *             handle can only be closed; what it held is let be.
 * Structs     Zero the struct, set its `size` to sizeof of it, then set what should not be usual: 0 is always the usual
 *             value. Later versions add fields at the end. A program that was built with another version's header is
 *             understood; one that asks for a field which this library does not know gets E2BIG. NULL for options
 *             means all usual. A size of no version: EINVAL.
 * Pointers    NULL where something is read or written: EFAULT. Strings end with a NUL. Lengths and offsets are in
 *             bytes.
 * Time        In nanoseconds, of the monotonic clock. A time to wait that is negative has no end.
 * Threads     Any thread may call any function. Which handles several threads may use at once, each group says.
 * Signals     What a signal handler may call, each group says. Functions go on after EINTR.
 * fork(2)     The child has the parent's handles. What it may do with them, each group says.
 * dlclose(3)  The library stays loaded.
 *
 * Any function may also fail with: EINVAL; ENOMEM; EMFILE, too many handles; ENOTRECOVERABLE, a defect in
 * the library, whose message went to standard error.
 */
#ifndef STOPGAP_H
#define STOPGAP_H

#include <stddef.h>
#include <stdint.h>

/* The version of this header; stopgap_version() is the library's. */
#define STOPGAP_VERSION "0.2.0"
#define STOPGAP_VERSION_MAJOR 0
#define STOPGAP_VERSION_MINOR 2

#if defined(__GNUC__) || defined(__clang__)
#define STOPGAP_MUST_CHECK __attribute__((warn_unused_result))
#else
#define STOPGAP_MUST_CHECK
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Errors: stopgap_error(3). Any thread, signal handlers, after fork. ---- */

/* The library's version, as "0.2.0". Never fails. */
const char *stopgap_version(void);

/*
 * Writes why the last call that failed in this thread did, with the system call or the limit, to `buffer`: at most
 * `size` bytes, a NUL at the end among them. Returns the whole text's length without the NUL, as snprintf(3); a
 * longer one was cut. `size` 0: only the length, and `buffer` may be NULL. errno stays.
 */
int stopgap_error_text(char *buffer, size_t size);

/* ---- Scheduling: stopgap_sched(3). ---- */

/*
 * Puts the calling thread under SCHED_BATCH: woken on a CPU where another thread runs, it does not take that CPU
 * away. For the client of a server that answers one by one: it is then woken once for all answers. It waits longer
 * for the CPU where others run (some milliseconds). Inherited by what the thread starts. Called again it changes
 * nothing. ENOTSUP: the thread is real-time, deadline or idle. Else as sched_setscheduler(2).
 */
int stopgap_batch_client(void);

/* Puts the calling thread back. EINVAL: stopgap_batch_client() was not called in it. */
int stopgap_batch_client_end(void);

/*
 * A writer that gathers replies, for servers that answer one by one: replies wait until the server would wait for the
 * next request, and go out in one call. One thread at a time: a second one gets EBUSY. Not in signal handlers. After
 * a fork one of the two must let it be: both have what waits.
 */
typedef struct stopgap_writer stopgap_writer;

struct stopgap_writer_options {
	size_t size;
	/* Replies go out as soon as so many bytes wait. Usual: 65,536. 1: each by itself. */
	size_t most_bytes;
	/* As soon as one waits for so long, and a function of the writer is called. Usual: 1,000,000 (1 ms). */
	uint64_t longest_ns;
	/* Bytes that may wait where nobody reads. Usual: 16,777,216. */
	size_t most_pending;
};

/* What became of the replies. */
#define STOPGAP_WRITTEN 0   /* none waits */
#define STOPGAP_GATHERING 1 /* some wait for more */
#define STOPGAP_BLOCKED 2   /* the other side does not read: wait until `fd` can be written, then flush */

/*
 * A writer to `fd`, a stream socket or a pipe, blocking or not. It has a descriptor of its own of the same open file:
 * the other side sees the end when that one is closed, too. EBADF; EMFILE. Each write to a socket of datagrams or
 * packets is EINVAL.
 */
STOPGAP_MUST_CHECK
stopgap_writer *stopgap_writer_open(int fd, const struct stopgap_writer_options *options);

/*
 * Takes a reply, whole or not at all, and writes where enough wait. Returns one of the three words above. ENOMEM:
 * more than most_pending would wait. EPIPE: nobody reads any more (there is no SIGPIPE), and what waited is gone.
 * Else as sendmsg(2) and writev(2): the reply was taken then and waits.
 */
int stopgap_writer_push(stopgap_writer *writer, const void *reply, size_t length);

/* Writes what waits. Returns STOPGAP_WRITTEN or STOPGAP_BLOCKED; errors as stopgap_writer_push(). */
int stopgap_writer_flush(stopgap_writer *writer);

/*
 * Reads requests from `fd`; what waits is written first where this would wait. Returns the bytes read, 0 at the end.
 * EAGAIN: `fd` does not block and has none, or replies are stuck. EINTR: a signal. Else as read(2) and
 * stopgap_writer_push().
 */
ptrdiff_t stopgap_writer_read(stopgap_writer *writer, int fd, void *buffer, size_t size);

/*
 * How long the caller may wait before it flushes (-1: nothing waits), and how many bytes wait. Either may be NULL. A
 * writer has no thread and no timer: that is what the caller's poll(2) waits at most.
 */
int stopgap_writer_due(stopgap_writer *writer, int64_t *nanoseconds, size_t *pending);

/*
 * Writes what waits and ends the writer. Where it fails other than with EBADF or EBUSY, the writer is gone and what
 * was not written is lost. EAGAIN: the file does not block and did not take all.
 */
int stopgap_writer_close(stopgap_writer *writer);

/*
 * ---- The arena: stopgap_arena(3). ----
 *
 * Buffers in a window of addresses that is reserved once, in nanoseconds and few mappings. Any thread, several at once,
 * without a lock for what a thread freed before. Signal handlers may allocate and free. In the child of fork(3) all
 * goes on; an arena of a memfd is shared with the parent: the child may use and free the buffers that there were, and
 * stopgap_arena_alloc() is ENOTSUP in it.
 */
typedef struct stopgap_arena stopgap_arena;

/* What stands behind the buffers: private anonymous memory, or one memfd (see stopgap_arena_export()). */
#define STOPGAP_BACKING_ANONYMOUS 0
#define STOPGAP_BACKING_MEMFD 1

struct stopgap_arena_options {
	size_t size;
	/* Bytes of address space, below 2^30 pages. RLIMIT_AS counts them. Usual: 68,719,476,736 (64 GiB). */
	size_t window;
	/* STOPGAP_BACKING_... */
	uint64_t backing;
	/* How long freed memory is kept that nobody needs, and never more than is used, or 64 MiB. Less than 1,000,000
	 * (1 ms): none is. There is no thread: what is due goes at a call that takes a lock, or stopgap_arena_decay().
	 * Usual: 1,000,000,000 (1 s). */
	uint64_t decay_ns;
	/* 1: the page after each buffer faults. */
	uint64_t guard;
};

/*
 * Reserves the window. EINVAL: no pages, or too many. ENOMEM: beyond RLIMIT_FSIZE, or as mmap(2). ENOTSUP: a signal
 * handler interrupted another arena's function.
 */
STOPGAP_MUST_CHECK
stopgap_arena *stopgap_arena_new(const struct stopgap_arena_options *options);

/*
 * `length` bytes, in whole pages, that read as zero, aligned to `align`, a power of two (0: a page's, which is the
 * least). EINVAL: `length` is 0. ENOMEM: the window has no such hole, or as mmap(2). ENOTSUP: in a child, of a memfd.
 */
STOPGAP_MUST_CHECK
void *stopgap_arena_alloc(stopgap_arena *arena, size_t length, size_t align);

/* The same, but it may hold what this process left in buffers that it freed. */
STOPGAP_MUST_CHECK
void *stopgap_arena_alloc_uninit(stopgap_arena *arena, size_t length, size_t align);

/*
 * Takes back what this arena gave out for `length` bytes. The next buffer is the same pages, so nothing may refer to
 * them any more, in this process, in another one or in the kernel: requests of aio, io_uring and O_DIRECT are
 * completed, pages given to pipes (vmsplice) are read, MSG_ZEROCOPY's notifications came, registered buffers are
 * unregistered. Protection, locks, lasting advice, memory policies and mappings put over it are as they were.
 * EINVAL, and nothing changes: never given out, not its start,
 * freed already, a length of more or fewer pages. (What was freed and given out again is another's buffer; nobody can
 * tell.)
 */
int stopgap_arena_free(stopgap_arena *arena, void *address, size_t length);

/*
 * A new descriptor of the memfd behind the buffer that starts at `address`, which is the caller's, and where in it
 * the buffer lies. It is the whole arena's file: who must not see other buffers must not get it. ENOTSUP: the arena
 * is anonymous.
 */
STOPGAP_MUST_CHECK
int stopgap_arena_export(stopgap_arena *arena, const void *address, uint64_t *offset);

/* Whether the address is of the arena's window, given out or not: 1 or 0. */
int stopgap_arena_contains(stopgap_arena *arena, const void *address);

/* Where the window lies. Either may be NULL. */
int stopgap_arena_window(stopgap_arena *arena, void **start, size_t *length);

/* Gives back all free memory but what other threads' caches hold (1 MiB each at most); how many bytes, in
 * `given_back` (or NULL). */
int stopgap_arena_trim(stopgap_arena *arena, uint64_t *given_back);

/* Gives back what is due by now, all where memory is short: for a timer or an event loop of a program that stands still.
 * How many bytes, in `given_back` (or NULL). */
int stopgap_arena_decay(stopgap_arena *arena, uint64_t *given_back);

struct stopgap_arena_statistics {
	size_t size;
	/* Bytes of the window, and of what buffers ever reached. */
	uint64_t window;
	uint64_t accessible;
	/* Buffers given out now, and their bytes. */
	uint64_t buffers;
	uint64_t buffer_bytes;
	/* Bytes of freed memory not given back; of those, in threads' caches. */
	uint64_t kept;
	uint64_t cached;
	/* Ever: buffers given out, bytes given back, mappings outside of the window (for signal handlers). */
	uint64_t given;
	uint64_t given_back;
	uint64_t strays;
};

/* What the arena holds and has done. Set `size` first. */
int stopgap_arena_stat(stopgap_arena *arena, struct stopgap_arena_statistics *statistics);

/* Ends the arena. All of its buffers go with it. */
int stopgap_arena_close(stopgap_arena *arena);

/*
 * ---- Chunked buffers: stopgap_chunked(3). ----
 *
 * Private memory, zeroed and resident, of large pieces of physical memory as far as they are to be had without
 * reclaim or compaction; the rest is base pages. Any thread, several at once. Not in signal handlers. The child of a
 * fork has a copy, made page by page when one of the two writes.
 */
typedef struct stopgap_buffer stopgap_buffer;

#define STOPGAP_BUFFER_SINGLE_PAGES 1 /* the device has no use of large pieces */
#define STOPGAP_BUFFER_NO_HUGETLB 2   /* leave the pool of pages that were set aside alone */

struct stopgap_buffer_options {
	size_t size;
	/* Which sizes are tried, in which order: "list-noreclaim" (usual), "list", "landed", "per-device", "fold",
	 * "start-64k", "sticky", "ttm", "old", "iova-offset", "iommu-dma", "one-page" or "sorted". What each is:
	 * stopgap_chunked(3). */
	const char *policy;
	/* The page sizes of the device's IOMMU, each its own bit: 4096 | 2097152. Usual: not known. */
	uint64_t device_sizes;
	/* From when on no large page is tried any more, counted from the call. Usual: never. */
	uint64_t deadline_ns;
	/* STOPGAP_BUFFER_..., joined by |. */
	uint64_t flags;
};

/*
 * `length` bytes, in whole pages. EINVAL: `length` is 0, no such policy, or the device cannot map a base page.
 * ENOMEM: as mmap(2). Takes as long as its page faults; reads about 25 short files of /proc and /sys.
 */
STOPGAP_MUST_CHECK
stopgap_buffer *stopgap_buffer_new(size_t length, const struct stopgap_buffer_options *options);

/* Its first byte. */
void *stopgap_buffer_address(stopgap_buffer *buffer);

struct stopgap_buffer_statistics {
	size_t size;
	/* Bytes: what was asked for, in whole pages; those of pages that were seen to be larger than a base page. */
	uint64_t bytes;
	uint64_t large_bytes;
	/* How many indexes stopgap_buffer_got() and stopgap_buffer_chunks() have. */
	uint64_t pages;
	uint64_t chunks;
	/* From the first system call to the last. */
	uint64_t took_ns;
};

/* What it got, in sum. Set `size` first. */
int stopgap_buffer_stat(stopgap_buffer *buffer, struct stopgap_buffer_statistics *statistics);

/* Where pages come from. */
#define STOPGAP_PAGES_BASE 0
#define STOPGAP_PAGES_THP 1
#define STOPGAP_PAGES_HUGETLB 2

/* Why a size was not tried. */
#define STOPGAP_WHY_NO_SUCH_SIZE 1   /* the kernel has no pages of this size */
#define STOPGAP_WHY_NO_THP 2         /* the kernel has no transparent huge pages */
#define STOPGAP_WHY_NOT_ENABLED 3    /* a knob allows none */
#define STOPGAP_WHY_WOULD_COMPACT 4  /* `defrag` lets a fault reclaim and compact */
#define STOPGAP_WHY_SWITCHED_OFF 5   /* for this process */
#define STOPGAP_WHY_UNKNOWN 6        /* a knob could not be read */
#define STOPGAP_WHY_ADVICE_REFUSED 7 /* by the kernel */
#define STOPGAP_WHY_UNALIGNED 8      /* the next address is no multiple of the size */
#define STOPGAP_WHY_DEADLINE 9       /* it was over */
#define STOPGAP_WHY_POOL_EMPTY 10    /* no page is set aside */
#define STOPGAP_WHY_POOL_GROWS 11    /* what the pool lacks would be compacted for */
#define STOPGAP_WHY_POOL_REFUSED 12  /* to this process */
#define STOPGAP_WHY_OTHER 255        /* one that has no word here */

struct stopgap_buffer_pages {
	size_t size;
	/* Bytes of one page, and STOPGAP_PAGES_... */
	uint64_t page;
	uint64_t kind;
	/* Bytes of the buffer in such pages; those of them that nobody could look at. */
	uint64_t bytes;
	uint64_t unverified;
	/* How often the kernel was asked, gave something smaller, was not asked at all; why, the last time:
	 * STOPGAP_WHY_..., or 0. */
	uint64_t tries;
	uint64_t failed;
	uint64_t refused;
	uint64_t why;
};

/* What it got of one size, the largest first. 1, or 0 where there is no such index. Set `size` first. */
int stopgap_buffer_got(stopgap_buffer *buffer, size_t index, struct stopgap_buffer_pages *pages);

/*
 * Chunks in the order of their addresses: bytes of each, and how many of the same size follow one another. Each lies
 * in one piece of physical memory, aligned to its size. Either may be NULL. 1, or 0 where there is no such index.
 */
int stopgap_buffer_chunks(stopgap_buffer *buffer, size_t index, uint64_t *bytes, uint64_t *count);

/* What it got, in words, a line a size; as stopgap_error_text() in every other way. */
int stopgap_buffer_text(stopgap_buffer *buffer, char *text, size_t size);

/* Gives the memory back. */
int stopgap_buffer_close(stopgap_buffer *buffer);

/*
 * ---- The locked set: stopgap_locked(3). ----
 *
 * Memory that reclaim leaves alone, within a budget. Locked memory stays in memory; it may still migrate. Any thread
 * may use a set and what it holds, several at once. Not in signal handlers. In the child of a fork every function
 * says EINVAL, but for closing, which does nothing to what the parent holds; the memory itself is shared.
 */
typedef struct stopgap_set stopgap_set;
typedef struct stopgap_held stopgap_held;

struct stopgap_set_options {
	size_t size;
	/* Bytes that may be locked at a time. RLIMIT_MEMLOCK holds beside it, unless the thread has CAP_IPC_LOCK.
	 * Usual: 67,108,864. */
	uint64_t budget;
	/* What is released is unlocked when so many bytes are. Usual: 4,194,304. 1: at once. */
	uint64_t batch;
	/* STOPGAP_WAY_...: by which way stopgap_set_take() locks. Usual: segments. */
	uint64_t way;
	/* Memory is short when tasks waited for it for so long altogether within any such window: 500 ms to 10 s;
	 * without privilege the window becomes a multiple of 2 s. All three 0 or NULL: nobody asks; else usual:
	 * 150,000,000 of 1,000,000,000 in "/proc/pressure/memory". The path may be a cgroup's memory.pressure. */
	uint64_t pressure_stall_ns;
	uint64_t pressure_window_ns;
	const char *pressure_path;
};

/* By which way memory is locked: a System V segment by SHM_LOCK, or a memfd by mlock. */
#define STOPGAP_WAY_SYSV 1
#define STOPGAP_WAY_MEMFD 2

/*
 * A set with nothing in it. ENOTSUP: the kernel keeps no pressure, or there is no such path. EINVAL: the path is
 * another file, which nothing is written to. Else as open(2), write(2) of the pressure's file.
 */
STOPGAP_MUST_CHECK
stopgap_set *stopgap_set_new(const struct stopgap_set_options *options);

/*
 * `length` bytes (rounded up to pages) that read as zero and are locked as soon as they are touched. ENOMEM: beyond
 * the budget or RLIMIT_MEMLOCK, or a memfd beyond RLIMIT_FSIZE. Else as shmget(2), memfd_create(2), mmap(2),
 * mlock(2). Eight system calls, nine where RLIMIT_MEMLOCK is below the budget; no page is touched.
 */
STOPGAP_MUST_CHECK
stopgap_held *stopgap_set_take(stopgap_set *set, size_t length);

/* The same as a memfd, whose descriptor other processes may get: stopgap_held_file(). */
STOPGAP_MUST_CHECK
stopgap_held *stopgap_set_take_shareable(stopgap_set *set, size_t length);

/*
 * Locks `length` bytes (rounded up to pages) from `offset` on of a memfd that is there already; they become
 * resident. The set has a descriptor of its own. EINVAL: it is shorter, or no memfd.
 */
STOPGAP_MUST_CHECK
stopgap_held *stopgap_set_take_file(stopgap_set *set, int fd, uint64_t offset, size_t length);

/* Unlocks all that was released; how many bytes, in `unlocked` (or NULL). As munlock(2), shmctl(2). */
int stopgap_set_flush(stopgap_set *set, uint64_t *unlocked);

struct stopgap_purged {
	size_t size;
	/* Purgeable objects whose contents went, and their bytes. */
	uint64_t objects;
	uint64_t bytes;
	/* Bytes of released objects that were unlocked. */
	uint64_t unlocked;
	/* errno of what failed first, 0: nothing. The rest was still done. */
	uint64_t error;
};

/* For when memory is short: gives back all that is purgeable, unlocks all that was released. `purged` may be NULL. */
int stopgap_set_react(stopgap_set *set, struct stopgap_purged *purged);

/*
 * Asks whether memory got short since this was last asked, and reacts if so. Returns 1 if it reacted, else 0. Never
 * waits. `purged` may be NULL. Of a set without pressure always 0. ENOTSUP: the cgroup is gone.
 */
int stopgap_set_poll_pressure(stopgap_set *set, struct stopgap_purged *purged);

/* The trigger's descriptor, which stays the set's: POLLPRI says that stopgap_set_poll_pressure() will react. */
int stopgap_set_pressure_fd(stopgap_set *set);

/* Starts a thread that reacts by itself; stopgap_set_poll_pressure() finds nothing then. As pthread_create(3). */
int stopgap_set_watch(stopgap_set *set);

/* Ends that thread. EINVAL: there is none. ENOTSUP: it had ended by itself, because the cgroup is gone. */
int stopgap_set_watch_end(stopgap_set *set);

struct stopgap_set_statistics {
	size_t size;
	/* Objects held, their bytes; bytes that are locked; of those, released and purgeable ones. */
	uint64_t objects;
	uint64_t bytes;
	uint64_t locked;
	uint64_t released;
	uint64_t purgeable;
	/* Objects that lost their contents since the set was made. */
	uint64_t purged;
};

/* What the set holds. Set `size` first. */
int stopgap_set_stat(stopgap_set *set, struct stopgap_set_statistics *statistics);

/* Ends the set and its thread. What is held of it stays until it is closed itself. */
int stopgap_set_close(stopgap_set *set);

/* Where it begins. While it is purgeable, its contents may go at any time. */
void *stopgap_held_address(stopgap_held *held);

/* Bytes, whole pages. */
ptrdiff_t stopgap_held_length(stopgap_held *held);

/* STOPGAP_WAY_SYSV or STOPGAP_WAY_MEMFD. */
int stopgap_held_way(stopgap_held *held);

/* 1; 0 where it is a memfd that was sealed against writing. */
int stopgap_held_is_writable(stopgap_held *held);

/* A new descriptor of the memfd, which is the caller's, and where in it the memory begins. ENOTSUP: it is a segment. */
STOPGAP_MUST_CHECK
int stopgap_held_file(stopgap_held *held, uint64_t *offset);

/* It need not be locked any more; its contents stay. It is unlocked with its batch. EINVAL: it is released already. */
int stopgap_held_release(stopgap_held *held);

/* Its contents may go when memory gets short; until then it stays locked. EINVAL: it may not be written. */
int stopgap_held_purgeable(stopgap_held *held);

#define STOPGAP_KEPT 0 /* the contents are as they were left */
#define STOPGAP_LOST 1 /* they went, and it reads as zero */

/* Takes it again after either: locked. Returns one of these two. ENOMEM as stopgap_set_take(): it is as it was then. */
int stopgap_held_keep(stopgap_held *held);

/* Gives the memory back. Its address is nothing then. */
int stopgap_held_close(stopgap_held *held);

/*
 * ---- The channel: stopgap_channel(3). ----
 *
 * Requests and replies between two processes through memory that both map, with at most one wake-up for many.
 * Messages of 0 to stopgap_channel_longest() bytes arrive whole, once, in order. The peer may be hostile: what it
 * writes is never more than bytes. One thread at a time at each end: a second one gets EBUSY. Not in signal handlers.
 * After a fork one of the two must let an end be, and not close it either.
 *
 * Any function of an end: EPIPE, the peer is gone; EPROTO, the peer broke the rules, and the end is dead. ETIMEDOUT,
 * the time was over.
 */
typedef struct stopgap_channel stopgap_channel;
typedef struct stopgap_listener stopgap_listener;

struct stopgap_channel_options {
	size_t size;
	/* Bytes of the ring, each way: up to 1 GiB, made a power of two of 4,096 at least. The server's counts.
	 * Usual: 65,536. */
	size_t ring;
	/* Longest time to spin for a peer on another CPU. Usual: 100,000 (100 us). STOPGAP_NEVER: it never spins. */
	uint64_t spin_ns;
	/* After so long a sleep the socket wakes, and the peer's death is seen at once. Usual: 10,000,000.
	 * STOPGAP_NEVER: always by the socket. */
	uint64_t idle_ns;
	/* How long a client waits for a slow server. Usual: 5,000,000,000 (5 s). */
	uint64_t connect_ns;
};

/* No time at all, where 0 means the usual one. */
#define STOPGAP_NEVER UINT64_C(0xffffffffffffffff)

/*
 * Listens at `path`, a file that must not exist yet and that nobody removes. EADDRINUSE: it exists. EINVAL: longer
 * than 107 bytes. Else as bind(2).
 */
STOPGAP_MUST_CHECK
stopgap_listener *stopgap_channel_listen(const char *path);

/* The listening socket, which stays the library's: poll it for reading. */
int stopgap_listener_fd(stopgap_listener *listener);

/* Stops listening. The file stays. */
int stopgap_listener_close(stopgap_listener *listener);

/*
 * The server's end of the next client's channel; waits for it. ENOMEM: the ring is beyond RLIMIT_FSIZE. Else as
 * accept(2), memfd_create(2), mmap(2).
 */
STOPGAP_MUST_CHECK
stopgap_channel *stopgap_channel_accept(stopgap_listener *listener, const struct stopgap_channel_options *options);

/* The client's end of a channel to the server at `path`. ENOENT; ECONNREFUSED; ETIMEDOUT; EPROTO: another version. */
STOPGAP_MUST_CHECK
stopgap_channel *stopgap_channel_connect(const char *path, const struct stopgap_channel_options *options);

/*
 * The end over a connected Unix socket of type SOCK_SEQPACKET that nothing was sent over, for example one of a
 * socketpair(2) after a fork. `server` is 1 at one side and 0 at the other. Where this succeeds the socket is the
 * channel's, else it stays the caller's. EINVAL: another kind of socket.
 */
STOPGAP_MUST_CHECK
stopgap_channel *stopgap_channel_over(int socket, int server, const struct stopgap_channel_options *options);

/*
 * Puts a message into the ring; waits at most `timeout_ns` for room. It wakes nobody by itself:
 * stopgap_channel_flush() does, and every wait for a message. EMSGSIZE: longer than the longest.
 */
int stopgap_channel_send(stopgap_channel *channel, const void *message, size_t length, int64_t timeout_ns);

/* The same with up to 16 descriptors, of which the peer gets its own. ETOOMANYREFS; EBADF. */
int stopgap_channel_send_fds(stopgap_channel *channel, const void *message, size_t length, const int *fds,
                             size_t count, int64_t timeout_ns);

/* Wakes the peer if it sleeps and there is something for it. One system call at most. */
int stopgap_channel_flush(stopgap_channel *channel);

/*
 * Waits for a message, at most `timeout_ns`, and copies it to `buffer`. Returns its length. Wakes the peer first, if it
 * sleeps and there is something for it. EMSGSIZE: longer than `size`; it stays the next one.
 */
ptrdiff_t stopgap_channel_recv(stopgap_channel *channel, void *buffer, size_t size, int64_t timeout_ns);

/* Sends a request and waits for a message; `timeout_ns` holds for each of the two. After ETIMEDOUT its reply may
 * still come. */
ptrdiff_t stopgap_channel_call(stopgap_channel *channel, const void *request, size_t length, void *reply, size_t size,
                               int64_t timeout_ns);

/* Whether a message is there now: 1 or 0, and its length in `length` (or NULL). */
int stopgap_channel_next(stopgap_channel *channel, size_t *length);

/*
 * The descriptors of the message received last, at most `size` of them, which are the caller's then; the rest is
 * closed. Returns how many.
 */
int stopgap_channel_take_fds(stopgap_channel *channel, int *fds, size_t size);

/*
 * For an event loop: asks to be woken through stopgap_channel_fd(). 1: nothing is there, poll; 0: a message is there
 * now. Whatever is done on the end next takes that back: ask again before each poll.
 */
int stopgap_channel_arm(stopgap_channel *channel);

/* The socket beside the ring, which stays the library's: poll it for reading after stopgap_channel_arm(), nothing
 * else. */
int stopgap_channel_fd(stopgap_channel *channel);

/* Asks the kernel whether the peer is there. EPIPE: no; what it sent before can still be received. */
int stopgap_channel_check_peer(stopgap_channel *channel);

/* Bytes of the longest message. */
ptrdiff_t stopgap_channel_longest(stopgap_channel *channel);

struct stopgap_channel_statistics {
	size_t size;
	/* Messages. */
	uint64_t sent;
	uint64_t received;
	/* System calls that woke the peer, and those of them by the socket. */
	uint64_t wakes;
	uint64_t wakes_by_socket;
	/* Waits that ended spinning; sleeps. */
	uint64_t spun;
	uint64_t sleeps;
};

/* What this end did so far. Set `size` first. */
int stopgap_channel_stat(stopgap_channel *channel, struct stopgap_channel_statistics *statistics);

/* Hangs up. The peer can still receive what was sent. */
int stopgap_channel_close(stopgap_channel *channel);

#ifdef __cplusplus
}
#endif

#endif /* STOPGAP_H */

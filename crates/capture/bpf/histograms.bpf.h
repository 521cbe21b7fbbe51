// Histograms of waits. They are counted here, so they are complete even if the reader does not keep up with the rings.
//
// A *kind* is (process, call, how it waited); each has a histogram per CPU. There are two sets of kinds: the programs fill one for a period
// while the reader reads and clears the other. So nothing is counted twice or lost, and the memory of a period is bounded. A kind without
// room is counted among the others with the same `how`.
#pragma once

// How a thread waited. `src/histogram.rs` has the same list.
enum how {
	QUEUE,           // ready, without a CPU
	QUOTA,           // stopped by its cgroup's CPU quota
	HALTED,          // stopped by a signal or a debugger
	ASLEEP,          // interruptible
	UNINTERRUPTIBLE, // state D
	FOR_IO,          // the kernel counts the sleep as I/O
	FUTEX_LOCK,      // in futex, whose arguments are those of a lock
	IN_MMAP_LOCK,    // for a lock of the kernel, which is the process's mmap_lock
	IN_SPAN,         // + span_kind: in the middle of it
	HOWS = IN_SPAN + SPANS
};
enum { IO_URING_ENTER = 426 }; // on all machines
enum { STATE_ASLEEP = 1, STATE_UNINTERRUPTIBLE = 2, STATE_STOPPED = 4 | 8, STATE_NO_LOAD = 0x400 };

// Four buckets per doubling, from 1.024 us to 2 minutes. The first bucket has all shorter waits, the last one all longer waits.
enum { SHORTEST_BIT = 10, LONGEST_BIT = 36, BUCKETS = 1 + 4 * (LONGEST_BIT - SHORTEST_BIT + 1) };

// The waits of four buckets side by side, so that a wait touches 32 bytes only. Bucket 0 is the last one of the first four.
struct doubling {
	u32 waits[4];
	u64 ns, longest;
};
enum { DOUBLINGS = (BUCKETS + 3) / 4 };
struct sum {
	struct doubling doublings[DOUBLINGS];
	struct doubling spare; // the kernel does not see that the first four bytes of a place are a multiple of four
};
struct process_name {
	u32 set, pad;
	u64 cgroup;
	u8 comm[16];
};
struct kind_of_wait {
	u32 set, process;
	s32 call;
	u32 how;
};
// The set of a period is the period's last bit. Numbers of processes and kinds of each set that have a number.
struct periods {
	u32 period, pad;
	u32 processes[2], kinds[2];
};
// The loader writes this.
volatile struct periods periods;
// The loader sets the sizes of these maps.
MAP(processes, HASH) number(max_entries, 1); of_type(key, struct process_name); of_type(value, u32); } processes SEC(".maps");
MAP(kinds, HASH) number(max_entries, 1); of_type(key, struct kind_of_wait); of_type(value, u32); } kinds SEC(".maps");
// Layout per set: a sum for each `how` of the kinds without a number, then the sums of the numbered kinds.
MAP(sums, PERCPU_ARRAY) number(max_entries, 1); of_type(key, u32); of_type(value, struct sum); } sums SEC(".maps");

enum { NEW_ONLY = 1 }; // BPF_NOEXIST

// Process 0 stands for all others.
SELDOM u32 process_of(u32 set, struct task_struct *task)
{
	struct process_name name = { set };
	name.cgroup = cgroup_of(task);
	struct task_struct *leader = task->group_leader;
	read_kernel(name.comm, sizeof name.comm, leader->comm);
	u32 *known = map_lookup(&processes, &name);
	if (known)
		return *known;
	if (periods.processes[set] >= processes_at_most)
		return 0;
	u32 number = __sync_fetch_and_add(&periods.processes[set], 1) + 1;
	if (number > processes_at_most)
		return 0;
	if (!map_update(&processes, &name, &number, NEW_ONLY))
		return number;
	known = map_lookup(&processes, &name); // another CPU was first
	return known ? *known : 0;
}

SELDOM u32 sum_of(struct thread *thread, u32 how)
{
	u32 set = thread->period & 1;
	struct kind_of_wait kind = { set, thread->process, thread->call, how };
	u32 first = set * (HOWS + kinds_at_most), others = first + how;
	u32 *known = map_lookup(&kinds, &kind);
	if (known)
		return *known;
	if (periods.kinds[set] >= kinds_at_most)
		return others;
	u32 number = __sync_fetch_and_add(&periods.kinds[set], 1);
	if (number >= kinds_at_most)
		return others;
	u32 sum = first + HOWS + number;
	if (!map_update(&kinds, &kind, &sum, NEW_ONLY))
		return sum;
	known = map_lookup(&kinds, &kind);
	return known ? *known : others;
}

/* Where in a sum a wait is counted, by the first bits of its length: what is shorter than 1.024 us, then six doublings of four buckets
 * each. Six doublings further the same bits are at SIX_DOUBLINGS more. */
enum { SIX_DOUBLINGS = 6 * sizeof(struct doubling), FIRST_BITS = 8 };
#define AT(number, bucket) ((number) * sizeof(struct doubling) + (bucket) * sizeof(u32))
#define TIMES2(n) n, n
#define TIMES4(n) TIMES2(n), TIMES2(n)
#define TIMES8(n) TIMES4(n), TIMES4(n)
#define TIMES16(n) TIMES8(n), TIMES8(n)
#define TIMES32(n) TIMES16(n), TIMES16(n)
#define DOUBLING(n, times) times(AT(n, 0)), times(AT(n, 1)), times(AT(n, 2)), times(AT(n, 3))
static const u16 place_by_bits[1 << FIRST_BITS] = {
	TIMES4(AT(0, 3)), AT(1, 0), AT(1, 1), AT(1, 2), AT(1, 3), DOUBLING(2, TIMES2), DOUBLING(3, TIMES4), DOUBLING(4, TIMES8),
	DOUBLING(5, TIMES16), DOUBLING(6, TIMES32),
};

INLINE u64 place_in_sum(u64 ns)
{
	u64 bits = SHORTEST_BIT - 2, above = 0;
	if (ns >> 16) {
		bits += 6;
		above += SIX_DOUBLINGS;
		if (ns >> 22) {
			bits += 6;
			above += SIX_DOUBLINGS;
			if (ns >> 28) {
				bits += 6;
				above += SIX_DOUBLINGS;
				if (ns >> 34) {
					bits += 6;
					above += SIX_DOUBLINGS;
				}
			}
		}
	}
	u64 first = ns >> bits;
	return first >> FIRST_BITS ? AT(DOUBLINGS - 1, 3) : above + place_by_bits[first];
}

INLINE void count(struct thread *thread, u32 which, u32 how, u64 ns)
{
	u64 kind = (u64)how << 32 | (u32)thread->call;
	if (thread->counted[which] != kind) {
		thread->counted[which] = kind;
		thread->sums[which] = sum_of(thread, how);
	}
	char *sum = map_lookup(&sums, &thread->sums[which]);
	if (!sum)
		return;
	u64 place = place_in_sum(ns), whole = place & -sizeof(struct doubling), part = place & AT(0, 3);
	if (place >= DOUBLINGS * sizeof(struct doubling))
		return;
	struct doubling *doubling = (struct doubling *)(sum + whole);
	u32 *waits = (u32 *)(sum + whole + part);
	*waits += 1;
	doubling->ns += ns;
	if (ns > doubling->longest)
		doubling->longest = ns;
}

INLINE bool is_futex_lock(struct thread *thread)
{
	if (thread->call != futex || thread->flags & COMPAT_CALL)
		return 0;
	// Priority inheritance, or the value 2, for which locks of glibc and of Rust wait.
	u32 command = thread->arguments[1] & 0x7f;
	return command == 6 || command == 13 || ((command == 0 || command == 9) && (u32)thread->arguments[2] == 2);
}

// Returns the innermost open span of the thread.
SELDOM u32 innermost(struct thread *thread)
{
	u32 how = 0;
	u64 last = 0;
	for (int what = 0; what < SPANS; what++) {
		u64 begin = thread->begin[what];
		if (begin > last) {
			last = begin;
			how = IN_SPAN + what;
		}
	}
	return how == IN_SPAN + LOCK && thread->lock & LOCK_MMAP ? IN_MMAP_LOCK : how;
}

INLINE u32 how_it_slept(struct thread *thread)
{
	if (thread->state & STATE_STOPPED)
		return HALTED;
	if (thread->open)
		return innermost(thread);
	// The kernel counts each wait for a ring as one for I/O, for any kind of request.
	if (thread->flags & IOWAIT && thread->call != IO_URING_ENTER)
		return FOR_IO;
	if (is_futex_lock(thread))
		return FUTEX_LOCK;
	return thread->state & STATE_UNINTERRUPTIBLE && !(thread->state & STATE_NO_LOAD) ? UNINTERRUPTIBLE : ASLEEP;
}

// Counts the wait that ends now: the sleep until the thread was ready, then the time without a CPU. Kernel threads are not counted.
INLINE void add_up(struct task_struct *task, struct thread *thread, u64 woken, u64 now)
{
	u32 flags = thread->flags;
	if (flags & KTHREAD)
		return;
	u32 period = periods.period;
	if (thread->period != period) {
		thread->process = process_of(period & 1, task);
		thread->counted[0] = thread->counted[1] = -1;
		thread->period = period;
	}
	u64 ready = thread->left;
	u32 queued = QUEUE;
	if (thread->state) {
		ready = woken && woken < now ? woken : now;
		count(thread, 0, how_it_slept(thread), ready - thread->left);
	} else if (flags & THROTTLED) {
		queued = QUOTA;
	}
	if (now > ready)
		count(thread, 1, queued, now - ready);
}

// Histograms of waits: counted here, whether or not the reader keeps up with the rings.
//
// A *kind* is (process, call, how it waited); each has a histogram a CPU. There are two sets of them: the programs fill one, for a period,
// while the reader reads and clears the other. So nothing is counted twice or lost, and what a period brings is bounded. A kind for which
// there is no room is counted among the others of the same `how`.
#pragma once

// How a thread waited; `src/histogram.rs` has the same list.
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
enum { STATE_ASLEEP = 1, STATE_UNINTERRUPTIBLE = 2, STATE_STOPPED = 4 | 8, STATE_NO_LOAD = 0x400 };

// Four buckets for each doubling, from 1.024 us to 2 minutes; the first has all that is shorter, the last all that is longer.
enum { SHORTEST_BIT = 10, LONGEST_BIT = 36, BUCKETS = 1 + 4 * (LONGEST_BIT - SHORTEST_BIT + 1) };

struct sum {
	u64 waits, ns, longest;
	u32 buckets[BUCKETS];
	u32 pad;
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
// The set of a period is its last bit. How many processes and kinds of each set have a number.
struct periods {
	u32 period, pad;
	u32 processes[2], kinds[2];
};
MAP(periods, ARRAY) number(max_entries, 1); of_type(key, u32); of_type(value, struct periods); } periods SEC(".maps");
// The loader sets their sizes.
MAP(processes, HASH) number(max_entries, 1); of_type(key, struct process_name); of_type(value, u32); } processes SEC(".maps");
MAP(kinds, HASH) number(max_entries, 1); of_type(key, struct kind_of_wait); of_type(value, u32); } kinds SEC(".maps");
// Of each set: the others of each `how`, then the kinds.
MAP(sums, PERCPU_ARRAY) number(max_entries, 1); of_type(key, u32); of_type(value, struct sum); } sums SEC(".maps");

enum { NEW_ONLY = 1 }; // BPF_NOEXIST

// Process 0 is the others.
INLINE u32 process_of(struct periods *at, u32 set, struct task_struct *task)
{
	struct process_name name = { set };
	name.cgroup = cgroup_of(task);
	struct task_struct *leader = task->group_leader;
	read_kernel(name.comm, sizeof name.comm, leader->comm);
	u32 *known = map_lookup(&processes, &name);
	if (known)
		return *known;
	if (at->processes[set] >= processes_at_most)
		return 0;
	u32 number = __sync_fetch_and_add(&at->processes[set], 1) + 1;
	if (number > processes_at_most)
		return 0;
	if (!map_update(&processes, &name, &number, NEW_ONLY))
		return number;
	known = map_lookup(&processes, &name); // another CPU was first
	return known ? *known : 0;
}

INLINE u32 sum_of(struct periods *at, u32 set, u32 process, s32 call, u32 how)
{
	struct kind_of_wait kind = { set, process, call, how };
	u32 first = set * (HOWS + kinds_at_most), others = first + how;
	u32 *known = map_lookup(&kinds, &kind);
	if (known)
		return *known;
	if (at->kinds[set] >= kinds_at_most)
		return others;
	u32 number = __sync_fetch_and_add(&at->kinds[set], 1);
	if (number >= kinds_at_most)
		return others;
	u32 sum = first + HOWS + number;
	if (!map_update(&kinds, &kind, &sum, NEW_ONLY))
		return sum;
	known = map_lookup(&kinds, &kind);
	return known ? *known : others;
}

INLINE u32 bucket_of(u64 ns)
{
	u64 rest = ns;
	u32 bit = 0;
	if (rest >> 32) { rest >>= 32; bit += 32; }
	if (rest >> 16) { rest >>= 16; bit += 16; }
	if (rest >> 8) { rest >>= 8; bit += 8; }
	if (rest >> 4) { rest >>= 4; bit += 4; }
	if (rest >> 2) { rest >>= 2; bit += 2; }
	if (rest >> 1)
		bit += 1;
	if (bit < SHORTEST_BIT)
		return 0;
	if (bit > LONGEST_BIT)
		return BUCKETS - 1;
	return 1 + (bit - SHORTEST_BIT) * 4 + (ns >> (bit - 2) & 3);
}

INLINE void count(struct thread *thread, u32 cache, struct periods *at, u32 how, u64 ns)
{
	u32 set = thread->period & 1;
	if (thread->counted[cache].call != thread->call || thread->counted[cache].how != how) {
		thread->counted[cache].sum = sum_of(at, set, thread->process, thread->call, how);
		thread->counted[cache].call = thread->call;
		thread->counted[cache].how = how;
	}
	u32 which = thread->counted[cache].sum, bucket = bucket_of(ns);
	struct sum *sum = map_lookup(&sums, &which);
	if (!sum || bucket >= BUCKETS)
		return;
	sum->waits += 1;
	sum->ns += ns;
	if (ns > sum->longest)
		sum->longest = ns;
	sum->buckets[bucket] += 1;
}

INLINE bool is_futex_lock(struct thread *thread)
{
	if (thread->call != futex || thread->flags & COMPAT_CALL)
		return 0;
	// Priority inheritance, or the value 2, for which locks of glibc and of Rust wait.
	u32 command = thread->arguments[1] & 0x7f;
	return command == 6 || command == 13 || ((command == 0 || command == 9) && (u32)thread->arguments[2] == 2);
}

INLINE u32 how_it_slept(struct thread *thread)
{
	u32 how = 0;
	u64 last = 0;
	if (thread->state & STATE_STOPPED)
		return HALTED;
	// Of what it was in the middle of, the innermost.
	for (int what = 0; what < SPANS; what++) {
		u64 begin = thread->begin[what];
		if (begin > last) {
			last = begin;
			how = IN_SPAN + what;
		}
	}
	if (last)
		return how == IN_SPAN + LOCK && thread->lock & LOCK_MMAP ? IN_MMAP_LOCK : how;
	if (thread->flags & IOWAIT)
		return FOR_IO;
	if (is_futex_lock(thread))
		return FUTEX_LOCK;
	return thread->state & STATE_UNINTERRUPTIBLE && !(thread->state & STATE_NO_LOAD) ? UNINTERRUPTIBLE : ASLEEP;
}

// Counts the wait that ends now: the sleep, then the time without a CPU. Those of kernel threads are not counted.
INLINE void add_up(struct task_struct *task, struct thread *thread, u64 now)
{
	u32 zero = 0;
	struct periods *at = map_lookup(&periods, &zero);
	if (!at || thread->flags & KTHREAD)
		return;
	u32 period = at->period;
	if (thread->period != period) {
		thread->process = process_of(at, period & 1, task);
		thread->counted[0].how = thread->counted[1].how = HOWS;
		thread->period = period;
	}
	u64 left = thread->left, ready = left;
	if (thread->state) {
		ready = thread->woken + ON_ITS_WAY_OUT < left ? now : thread->woken < left ? left : thread->woken;
		if (ready > now)
			ready = now;
		count(thread, 0, at, how_it_slept(thread), ready - left);
	}
	if (now > ready)
		count(thread, 1, at, !thread->state && thread->flags & THROTTLED ? QUOTA : QUEUE, now - ready);
}

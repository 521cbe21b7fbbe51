// One record per interval in which a thread was off its CPU, and for events on the way.
//
// `crates/capture/bpf/build` builds this with the clang that it names; the object is checked in. There is no vmlinux.h: the
// structures below have only the fields that are read, and the loader finds them by name in the running kernel (CO-RE).
//
// A thread with task storage is followed; this is tested before anything else. The storage's `level` says how much of the thread
// is kept. Records go to one ring buffer per CPU without waking the reader; waits go in batches.
#include "bpf.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

// The kernel's structures.

struct kernfs_node {
	u64 id;
} CORE;
struct cgroup_subsys_state {
	struct cgroup_subsys_state *parent;
} CORE;
struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
} CORE;
struct css_set {
	struct cgroup *dfl_cgrp;
	struct cgroup_subsys_state *subsys[14];
} CORE;
struct cgroup_subsys_state___cgroup {
	struct cgroup *cgroup;
} CORE;
struct upid {
	int nr;
} CORE;
struct pid {
	unsigned int level;
	struct upid numbers[1];
} CORE;
struct rq;
struct cfs_rq {
	struct rq *rq;
	int throttle_count;
} CORE;
struct sched_entity {
	struct cfs_rq *cfs_rq;
	u64 sum_exec_runtime;
} CORE;
struct sched_info {
	unsigned long long run_delay;
} CORE;
typedef struct {
	s64 counter;
} CORE atomic64_t;
typedef atomic64_t atomic_long_t;
struct rw_semaphore {
	atomic_long_t owner;
} CORE;
struct mutex {
	atomic_long_t owner;
} CORE;
struct mm_struct {
	int map_count;
	unsigned long exec_vm;
	struct rw_semaphore mmap_lock;
} CORE;
struct thread_info {
	unsigned int status;
} CORE;
struct bpf_local_storage;
struct task_struct {
	struct thread_info thread_info;
	unsigned int __state;
	unsigned int flags;
	int on_cpu, on_rq;
	int prio;
	int pid, tgid;
	struct task_struct *real_parent, *group_leader;
	struct sched_entity se;
	struct sched_info sched_info;
	struct mm_struct *mm;
	struct pid *thread_pid;
	struct css_set *cgroups;
	struct bpf_local_storage *bpf_storage;
	unsigned long nvcsw, nivcsw, min_flt, maj_flt;
	u64 start_time;
	unsigned in_iowait : 1;
	char comm[16];
} CORE;
struct linux_binprm {
	const char *filename;
} CORE;
struct gendisk {
	int major, first_minor;
} CORE;
struct request_queue {
	struct gendisk *disk;
} CORE;
struct request {
	struct request_queue *q;
	unsigned int cmd_flags;
	unsigned int __data_len;
	u64 __sector;
} CORE;
struct block_device {
	struct gendisk *bd_disk;
} CORE;
struct bvec_iter {
	u64 bi_sector;
	unsigned int bi_size;
} CORE;
struct bio {
	struct block_device *bi_bdev;
	struct bvec_iter bi_iter;
} CORE;
struct work_struct {
	void *func;
} CORE;
struct shrinker {
	void *scan_objects;
} CORE;
struct dma_fence {
	u64 context, seqno;
} CORE;
struct list_head {
	struct list_head *next;
} CORE;
struct super_block {
	u32 s_dev;
} CORE;
struct file_lock_context {
	struct list_head flc_flock, flc_posix;
} CORE;
struct inode {
	unsigned long i_ino;
	struct super_block *i_sb;
	struct file_lock_context *i_flctx;
} CORE;
// Linux 6.9 and later.
struct file_lock_core {
	struct list_head flc_list;
	void *flc_owner;
	unsigned int flc_flags;
	unsigned char flc_type;
	int flc_pid;
} CORE;
struct file_lock {
	struct file_lock_core c;
	s64 fl_start, fl_end;
} CORE;
struct file_lock___before_6_9 {
	struct list_head fl_list;
	void *fl_owner;
	unsigned int fl_flags;
	unsigned char fl_type;
	unsigned int fl_pid;
} CORE;
struct seq_file;
struct bpf_iter_meta {
	struct seq_file *seq;
} CORE;
struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
} CORE;

// Fields that differ between architectures: the loader resolves the ones that the kernel has.
struct pt_regs___x86 {
	unsigned long bp, dx, si, di, r10, r8, r9, orig_ax, ip, sp;
} CORE;
struct thread_struct___x86 {
	unsigned long sp;
} CORE;
struct task_struct___x86 {
	struct thread_struct___x86 thread;
} CORE;
struct pt_regs___arm64 {
	u64 regs[31];
	u64 sp, pc;
	u64 orig_x0;
	s32 syscallno;
} CORE;
struct cpu_context___arm64 {
	unsigned long sp;
} CORE;
struct thread_struct___arm64 {
	struct cpu_context___arm64 cpu_context;
} CORE;
struct task_struct___arm64 {
	struct thread_struct___arm64 thread;
} CORE;
struct thread_info___arm64 {
	int preempt_count;
} CORE;
struct task_struct___preempt {
	struct thread_info___arm64 thread_info;
} CORE;

enum { KERNEL_THREAD = 0x00200000, TASK_DEAD = 0x80, COMPAT = 2 };

// Constants that the loader sets before the kernel verifies the programs. The kernel removes code for what is off as dead code.
const volatile u64 long_ns = 100000;       // waits of this length have a kernel stack of their own
const volatile s64 preempt_offset = 0;     // from a CPU's run queue to its preempt count; 0: unknown
const volatile u32 stack_size = 16384;     // of a kernel stack
const volatile u32 ring_mask = 0;          // of a CPU's number: its ring
const volatile u8 whole_machine = 0;       // new threads are followed whoever makes them
const volatile u8 by_name = 0;             // a thread that takes a name of the map `names` is followed
const volatile u8 kernel_stacks = 1;
const volatile u8 user_stacks = 1;
const volatile u32 user_stacks_at_most = 20000;
const volatile u64 interrupt_ns = 1000000; // shorter softirqs, interrupts and work items are not kept
const volatile u8 histograms = 0;          // waits are counted, too
const volatile u32 kinds_at_most = 0;      // of a period
const volatile u32 processes_at_most = 0;  // of a period
const volatile s32 futex = -1;             // the number of the call

// Records. `src/record.rs` describes them for the reader, byte for byte.

enum kind { WAIT = 1, WAIT_STACK, USER, SPAN, TASK, EXEC, BLOCK, SIGNAL, ENTER, LEAVE, BATCH, FILE_LOCK, FENCE_NAMES };
enum { FRAMES = 32, RAW = 8192, PAGE = 4096 };
enum wait_flags { PREEMPTED = 1, THROTTLED = 2, IOWAIT = 4, BEFORE = 8, OPEN = 16, NEW = 32, KTHREAD = 64, COMPAT_CALL = 128 };

struct wait {
	u8 kind, flags;
	u16 cpu;
	u32 tid;
	u64 left, woken, ran;
	s32 call;
	u32 state;
	u64 arguments[3];
	u64 ip, sp;
	u32 next, previous;
	u32 waker;
	u16 waker_context, left_cpu;
	s32 waker_call;
	u32 depth;
	u64 waker_argument;
};
enum { UNKNOWN = 0xffffffff }; // which thread had the CPU before
// Waits on their way into the ring. The ring's lock and cold memory cost more than the rest of a wait, so 32 waits share them.
enum { BATCH_OF = 32, COUNT_BITS = 8, COUNT = (1 << COUNT_BITS) - 1 };
struct batch {
	u8 kind, pad;
	u16 cpu;
	u32 pad2;
	// How many waits are in it, and above these bits the number of the batch on its CPU: the reader takes waits from here, too, and then
	// knows them in the ring. It must never see the count of one batch with the number of the next, so both are one word.
	volatile u64 filled;
	struct wait waits[BATCH_OF];
};
struct wait_stack {
	struct wait wait;
	u32 frames, prio;
	u64 stack[FRAMES];
};
struct user {
	u8 kind, maps; // whether its call added a mapping
	u16 cpu;
	u32 tid;
	u32 tgid, frames;
	u64 time, ip, sp, bp;
	u64 link; // arm64: the return address of a function that has not saved it
	u64 stack[FRAMES];
	u32 bytes, code; // pages of the process that may be executed
	u8 raw[RAW];
};
struct span {
	u8 kind, what;
	u16 cpu;
	u32 tid;
	u64 begin, end, a, b;
};
enum task_why { BEGIN = 1, FORKED, RENAMED, EXITED, END };
struct task {
	u8 kind, why;
	u16 cpu;
	u32 tid;
	u32 tgid, parent;
	u64 time, start, cgroup;
	u64 voluntary, involuntary, exec_ns, run_delay_ns, minor, major;
	u32 level, own_pid;
	s32 prio;
	u32 flags;
	char comm[16];
	u32 maker, maps; // the thread that made a new one; mappings of its process
};
struct exec {
	u8 kind, pad;
	u16 cpu;
	u32 tid;
	u32 tgid, old_tid;
	u64 time;
	char comm[16];
	char filename[128];
};
struct block {
	u8 kind, pad;
	u16 cpu;
	u32 tid;
	u64 inserted, issued, completed, sector;
	u32 bytes, device, flags, status;
	u32 tgid, pad2;
	char comm[16]; // of the thread
};
struct signal {
	u8 kind, number;
	u16 cpu;
	u32 tid;
	u64 time;
	u32 target, target_tgid;
	s32 result;
	u32 group;
	u32 tgid, pad;
	char comm[16]; // of the sender
};
// A failed attempt to lock a file or a range of it, because another thread held the lock.
enum file_lock_how { FOR_WRITING = 1, BY_FLOCK = 2, BY_OPEN_FILE = 4, BLOCKS = 8 };
struct attempt {
	u8 kind, how;
	u16 cpu;
	u32 tid;
	u64 time, inode;
	s64 start, end;
	u32 device;
	u32 holder, holder_process; // 0: unknown
	u32 pad;
};

// The names of the fence for which a thread begins to wait.
struct fence_names {
	u8 kind, pad;
	u16 cpu;
	u32 tid;
	u64 time;
	u32 context, seqno; // their low halves
	u32 submitter, submitter_process; // 0: unknown
	char driver[32], timeline[32];
};

struct enter {
	u8 kind, flags;
	u16 cpu;
	u32 tid;
	u64 time;
	u64 arguments[6];
	u32 call, pad;
};
struct leave {
	u8 kind, flags;
	u16 cpu;
	u32 tid;
	u64 time;
	s64 result;
	u32 call, pad;
};

// State that the programs keep of a followed thread.

enum span_kind {
	DIRECT_RECLAIM, MEMCG_RECLAIM, COMPACTION, SHRINKER, LOCK, MMAP_LOCK, FENCE, SPANS,
	THROTTLED_RECLAIM = SPANS, SOFTIRQ, INTERRUPT, WORK, WRITEBACK, MERGE
};
enum level { NOT_FOLLOWED, WAITS, WHOLE };
// Kinds of locks by the flags of the kernel's events; the last bit is ours.
enum { LOCK_SPIN = 1, LOCK_READ = 2, LOCK_WRITE = 4, LOCK_RT = 8, LOCK_PERCPU = 16, LOCK_MUTEX = 32, LOCK_MMAP = 1 << 16 };
struct thread {
	// Its first 56 bytes share a cache line, and so do the next 64: each switch and each waking writes these, and few others.
	u64 woken, waker_argument;
	u32 waker;
	u16 waker_context, left_cpu;
	s32 waker_call;
	u8 flags, level;
	u8 open; // spans that it is in the middle of: a bit for each span_kind
	u8 pad;
	u64 left;
	s32 call;
	u32 state;
	u32 next;
	u32 period; // of the histograms

	u64 arguments[3], ip, sp;
	u64 counted[2]; // the kind of the last sleep and of the last wait for a CPU: call | how << 32
	u32 sums[2];    // where they were counted

	u64 user_ip, user_sp;
	u64 kernel_ip;
	u32 depth;
	s32 kernel_call;
	u64 ran;     // when it got a CPU last
	u64 exec;    // how long it had run when it left its CPU
	u64 fault;   // address of the last page fault
	u64 faulted; // when it began
	u64 begin[SPANS], detail[SPANS];
	u64 lock;    // flags of the lock that is waited for | its holder << 32
	u32 process; // of the histograms
	u32 attempts; // to lock files that failed since it was woken last, and when the last one of them was told
	u64 attempted;
};
MAP(threads, TASK_STORAGE) number(map_flags, NO_PREALLOC); of_type(key, int); of_type(value, struct thread); } threads SEC(".maps");

// One ring per CPU: CPUs share no lock, so a record of contention cannot itself wait for a ring. The loader creates the rings.
struct ring {
	number(type, RINGBUF);
	number(max_entries, 4096);
};
struct {
	number(type, ARRAY_OF_MAPS);
	number(max_entries, 1024);
	of_type(key, u32);
	struct ring *values[];
} rings SEC(".maps");

struct user_site {
	u64 ip, sp;
	u32 tgid, pad;
};
struct kernel_site {
	u64 ip;
	s32 call;
	u32 depth;
};
// The only ring that wakes the reader. It has processes whose mappings must be read while they live. By process: time of the last entry.
enum { RING_AGAIN_NS = 1000000 };
MAP(bell, RINGBUF) number(max_entries, 65536); } bell SEC(".maps");
MAP(rung, LRU_HASH) number(max_entries, 4096); of_type(key, u32); of_type(value, u64); } rung SEC(".maps");
MAP(user_sites, LRU_HASH) number(max_entries, 16384); of_type(key, struct user_site); of_type(value, u8); } user_sites SEC(".maps");
MAP(kernel_sites, LRU_HASH) number(max_entries, 16384); of_type(key, struct kernel_site); of_type(value, u8); } kernel_sites SEC(".maps");
// Requests under way, by request.
struct in_flight {
	u64 inserted, issued, sector;
	u32 tid, device, bytes, flags;
	u32 tgid, pad;
	char comm[16];
};
MAP(requests, HASH) number(max_entries, 16384); of_type(key, u64); of_type(value, struct in_flight); } requests SEC(".maps");

enum { LOST, USER_STACKS, BEGUN_SOFTIRQ, BEGUN_INTERRUPT, NUMBERS };
MAP(numbers, PERCPU_ARRAY) number(max_entries, NUMBERS); of_type(key, u32); of_type(value, u64); } numbers SEC(".maps");

// Requests of the reader to the iterator: to follow threads, or to flush their open waits.
enum { FOLLOW = 1, FLUSH };
struct request_of_reader {
	u32 what, level;
	u32 tgid;         // 0: of any process
	u32 tid;          // 0: any thread
	u64 cgroup;       // 0: in any cgroup; else in this one or below
	u8 comm[16];      // empty: of any name
};
MAP(asked, ARRAY) number(max_entries, 1); of_type(key, u32); of_type(value, struct request_of_reader); } asked SEC(".maps");

INLINE u64 *counter(u32 which)
{
	return map_lookup(&numbers, &which);
}

INLINE void lose(u64 records)
{
	u64 *lost = counter(LOST);
	if (lost)
		*lost += records;
}

INLINE void *ring_of_cpu(void)
{
	u32 which = this_cpu() & ring_mask;
	return map_lookup(&rings, &which);
}

// Returns space in the ring of this CPU. A full ring counts as one lost record.
INLINE void *reserve(u64 bytes)
{
	void *ring = ring_of_cpu();
	void *space = ring ? ring_reserve(ring, bytes, 0) : 0;
	if (!space)
		lose(1);
	return space;
}

// Returns whether the ring of this CPU has room for records other than waits. A stack of the program takes as much room as 75 waits. If
// the reader is late, stacks must not be the reason why waits are lost.
INLINE bool has_room(void)
{
	void *ring = ring_of_cpu();
	return ring && ring_query(ring, BYTES_HELD) < ring_query(ring, BYTES_IN_ALL) / 2;
}

// Only `on_switch` uses the batch of its CPU, and nothing interrupts it there.
MAP(batches, PERCPU_ARRAY) number(max_entries, 1); of_type(key, u32); of_type(value, struct batch); } batches SEC(".maps");

SELDOM void flush(struct batch *batch)
{
	u64 filled = batch->filled, count = filled & COUNT;
	if (!count || count > BATCH_OF)
		return;
	batch->kind = BATCH;
	batch->cpu = this_cpu();
	void *ring = ring_of_cpu();
	if (!ring || ring_output(ring, batch, __builtin_offsetof(struct batch, waits) + count * sizeof(struct wait), NO_WAKEUP))
		lose(count);
	batch->filled = filled - count + (1 << COUNT_BITS);
}

// For the many threads without storage, this test is cheaper than the lookup.
INLINE struct thread *thread_of(struct task_struct *task)
{
	return task->bpf_storage ? task_storage(&threads, task, 0, 0) : 0;
}

INLINE struct thread *whole(struct task_struct *task)
{
	struct thread *thread = thread_of(task);
	return thread && thread->level >= WHOLE ? thread : 0;
}

INLINE u64 cgroup_of(struct task_struct *task)
{
	struct css_set *set = task->cgroups;
	u64 id = set->dfl_cgrp->kn->id;
	return id;
}

struct place {
	u64 arguments[3], ip, sp, bp, link;
	s32 call;
};

// Reads what a thread does in user mode from the registers that the kernel saved on entry. System call -1 means none.
INLINE void place_of(struct task_struct *task, struct place *at)
{
	void *saved = task_pt_regs(task);
	struct pt_regs___x86 *x86 = saved;
	struct pt_regs___arm64 *arm = saved;
	if (has(x86->orig_ax)) {
		at->arguments[0] = x86->di;
		at->arguments[1] = x86->si;
		at->arguments[2] = x86->dx;
		at->ip = x86->ip;
		at->sp = x86->sp;
		at->bp = x86->bp;
		at->call = x86->orig_ax;
	} else if (has(arm->syscallno)) {
		at->arguments[0] = arm->orig_x0;
		at->arguments[1] = arm->regs[1];
		at->arguments[2] = arm->regs[2];
		at->ip = arm->pc;
		at->sp = arm->sp;
		at->bp = arm->regs[29];
		at->link = arm->regs[30];
		at->call = arm->syscallno;
	}
}

// Returns the depth of a sleeping thread's kernel stack. With the call and the instruction it identifies a place of waiting.
INLINE u32 depth_of(struct task_struct *task)
{
	struct task_struct___x86 *x86 = (void *)task;
	struct task_struct___arm64 *arm = (void *)task;
	unsigned long sp = 0;
	if (has(x86->thread.sp))
		sp = x86->thread.sp;
	else if (has(arm->thread.cpu_context.sp))
		sp = arm->thread.cpu_context.sp;
	return stack_size - (sp & (stack_size - 1));
}

// Context in which this CPU runs: the interrupt bits of its preempt count, and whether they are known.
enum { CONTEXT_KNOWN = 1, CONTEXT_SOFTIRQ = 2, CONTEXT_INTERRUPT = 4 };
INLINE u16 context_of(struct task_struct *me)
{
	struct task_struct___preempt *arm = (void *)me;
	u32 count = 0;
	if (preempt_offset) {
		void *rq = me->se.cfs_rq->rq;
		if (read_kernel(&count, 4, rq + preempt_offset))
			return 0;
	} else if (has(arm->thread_info.preempt_count)) {
		count = arm->thread_info.preempt_count;
	} else {
		return 0;
	}
	return CONTEXT_KNOWN | (count & 0xff0000 ? CONTEXT_INTERRUPT : count & 0x100 ? CONTEXT_SOFTIRQ : 0);
}

INLINE void ring_bell(u32 tgid, u64 now)
{
	u64 *last = map_lookup(&rung, &tgid);
	if (last && now - *last < RING_AGAIN_NS)
		return;
	map_update(&rung, &tgid, &now, 0);
	u64 *space = ring_reserve(&bell, sizeof *space, 0);
	if (space) {
		*space = tgid;
		ring_submit(space, FORCE_WAKEUP);
	}
}

// Writes the frames by frame pointers, and the stack itself for later unwinding.
INLINE bool put_user_stack(void *ctx, struct task_struct *task, struct place *at, u8 maps, u64 now)
{
	struct user *user = reserve(sizeof *user);
	if (!user)
		return 0;
	user->kind = USER;
	user->maps = maps;
	user->cpu = this_cpu();
	user->tid = task->pid;
	user->tgid = task->tgid;
	user->time = now;
	user->ip = at->ip;
	user->sp = at->sp;
	user->bp = at->bp;
	user->link = at->link;
	long bytes = get_stack(ctx, user->stack, sizeof user->stack, USER_STACK);
	user->frames = bytes > 0 ? bytes / 8 : 0;
	// Page by page, because the next one may not be the stack's any more.
	const void *sp = (const void *)at->sp;
	u32 first = PAGE - (at->sp & (PAGE - 1));
	user->bytes = 0;
	if (!read_user(user->raw, first, sp)) {
		user->bytes = first;
		if (!read_user(user->raw + first, PAGE, sp + first))
			user->bytes = first + PAGE;
	}
	struct mm_struct *memory = task->mm;
	user->code = memory ? memory->exec_vm : 0;
	ring_submit(user, NO_WAKEUP);
	return 1;
}

// Keeps the program's stack of a place of waiting, the first time.
SELDOM void keep_user_stack(void *ctx, struct task_struct *task, struct thread *thread, u64 now)
{
	struct place read = {}, *at = &read;
	place_of(task, at);
	struct user_site site = { at->ip, at->sp, task->tgid, 0 };
	bool known = map_lookup(&user_sites, &site) != 0;
	u64 *kept = counter(USER_STACKS);
	if (!known && !has_room())
		return;
	thread->user_ip = at->ip;
	thread->user_sp = at->sp;
	if (known || !kept || *kept >= user_stacks_at_most)
		return;
	if (!put_user_stack(ctx, task, at, 0, now))
		return;
	*kept += 1;
	u8 one = 1;
	map_update(&user_sites, &site, &one, 0);
	ring_bell(task->tgid, now);
}

SELDOM void came_back_unseen(struct task_struct *task, struct thread *thread, u64 now);

INLINE void leaves(void *ctx, struct task_struct *task, struct task_struct *next, bool preempted, u32 state, u64 now)
{
	struct thread *thread = thread_of(task);
	if (!thread)
		return;
	if (thread->left)
		came_back_unseen(task, thread, now);
	u32 flags = preempted ? PREEMPTED : 0;
	if (state && BITS(task, in_iowait))
		flags |= IOWAIT;
	if (!state && has(task->se.cfs_rq->throttle_count) && task->se.cfs_rq->throttle_count > 0)
		flags |= THROTTLED;
	thread->left = now;
	thread->exec = task->se.sum_exec_runtime;
	thread->state = state;
	thread->next = next->pid;
	thread->left_cpu = this_cpu();
	if (task->flags & KERNEL_THREAD) {
		thread->call = -1;
		thread->flags = flags | KTHREAD;
		return;
	}
	if (has(task->thread_info.status) && task->thread_info.status & COMPAT)
		flags |= COMPAT_CALL;
	thread->flags = flags;
	struct place at = {};
	place_of(task, &at);
	thread->call = at.call;
	thread->arguments[0] = at.arguments[0];
	thread->arguments[1] = at.arguments[1];
	thread->arguments[2] = at.arguments[2];
	thread->ip = at.ip;
	thread->sp = at.sp;
	// Asleep outside of a call it is in a page fault: where, and since when, is all that is known of it.
	if (at.call < 0) {
		thread->arguments[0] = state ? thread->fault : 0;
		thread->arguments[1] = thread->faulted;
		thread->fault = 0;
	}
	if (!user_stacks || thread->level < WHOLE || !state || state & TASK_DEAD)
		return;
	if (at.ip != thread->user_ip || at.sp != thread->user_sp)
		keep_user_stack(ctx, task, thread, now);
}

// Most ns between a thread's leaving the run queue and the event of its switch: a hypervisor may stop the CPU in between. A waking that
// is older than the sleep by less than this is overwritten by the one that ends the sleep.
#define ON_ITS_WAY_OUT 1000000

// Returns when a thread that is off its CPU was woken; 0: it was not woken.
INLINE u64 woken_of(struct thread *thread)
{
	// The scheduler takes a thread off its queue before it tells of the switch, and another CPU may wake it in between. What
	// is older is of a wait before. So nobody resets it, and no CPU undoes what another is writing. What it has run after is of a wait
	// before, too, though it slept again soon: the waking that ends this sleep is not seen where it comes in the middle of another one.
	u64 woken = thread->woken, left = thread->left;
	if (woken >= left)
		return woken;
	return woken > thread->ran && woken + ON_ITS_WAY_OUT >= left ? left : 0;
}

INLINE void fill(struct wait *wait, struct thread *thread, u32 tid, u32 previous, u64 woken, u64 now, u32 depth)
{
	wait->kind = WAIT;
	wait->flags = thread->flags;
	wait->cpu = this_cpu();
	wait->tid = tid;
	wait->left = thread->left;
	wait->woken = woken;
	wait->ran = now;
	wait->call = thread->call;
	wait->state = thread->state;
	wait->arguments[0] = thread->arguments[0];
	wait->arguments[1] = thread->arguments[1];
	wait->arguments[2] = thread->arguments[2];
	wait->ip = thread->ip;
	wait->sp = thread->sp;
	wait->next = thread->next;
	wait->previous = previous;
	wait->left_cpu = thread->left_cpu;
	wait->depth = depth;
	if (woken) {
		wait->waker = thread->waker;
		wait->waker_context = thread->waker_context;
		wait->waker_call = thread->waker_call;
		wait->waker_argument = thread->waker_argument;
	} else {
		wait->waker = 0;
		wait->waker_context = 0;
		wait->waker_call = -1;
		wait->waker_argument = 0;
	}
}

// Returns whether the wait that ends now gets its kernel stack: every long one, and the first one of each place.
SELDOM bool is_new_site(struct thread *thread, u32 depth)
{
	thread->depth = depth;
	thread->kernel_call = thread->call;
	thread->kernel_ip = thread->ip;
	struct kernel_site site = { thread->ip, thread->call, depth };
	if (map_lookup(&kernel_sites, &site))
		return 0;
	u8 one = 1;
	map_update(&kernel_sites, &site, &one, 0);
	return 1;
}

INLINE bool wants_stack(struct thread *thread, u32 depth, u64 now)
{
	if (depth != thread->depth || thread->call != thread->kernel_call || thread->ip != thread->kernel_ip) {
		if (is_new_site(thread, depth))
			return 1;
	}
	return now - thread->left >= long_ns;
}

SELDOM void put_with_stack(struct task_struct *task, struct thread *thread, u32 previous, u64 now, u32 depth)
{
	struct wait_stack *wait = reserve(sizeof *wait);
	if (!wait)
		return;
	fill(&wait->wait, thread, task->pid, previous, woken_of(thread), now, depth);
	wait->wait.kind = WAIT_STACK;
	long bytes = get_task_stack(task, wait->stack, sizeof wait->stack, 0);
	wait->frames = bytes > 0 ? bytes / 8 : 0;
	wait->prio = task->prio;
	ring_submit(wait, NO_WAKEUP);
}

#include "histograms.bpf.h"

INLINE void put_in_batch(struct batch *batch, struct thread *thread, u32 tid, u32 previous, u64 woken, u64 ran, u32 depth)
{
	u64 filled = batch->filled;
	fill(&batch->waits[filled & (BATCH_OF - 1)], thread, tid, previous, woken, ran, depth);
	batch->filled = filled + 1;
	if ((filled & COUNT) + 1 >= BATCH_OF)
		flush(batch);
}

// A thread leaves a CPU that it had left before: the switch that brought it back was not reported. Some kernels hide switches that come
// from some threads. The thread has run since for as long as the kernel's count of its CPU time says.
SELDOM void came_back_unseen(struct task_struct *task, struct thread *thread, u64 now)
{
	u32 zero = 0;
	struct batch *batch = map_lookup(&batches, &zero);
	if (!batch)
		return;
	u64 left = thread->left, ran = now - (task->se.sum_exec_runtime - thread->exec);
	if (ran < left || ran > now)
		ran = left;
	u64 woken = woken_of(thread);
	if (woken > ran)
		woken = ran;
	if (histograms)
		add_up(task, thread, woken, ran);
	put_in_batch(batch, thread, task->pid, UNKNOWN, woken, ran, 0);
	thread->ran = ran;
}

INLINE void arrives(struct task_struct *task, struct task_struct *previous, u64 now)
{
	struct thread *thread = thread_of(task);
	if (!thread || !thread->left)
		return;
	u64 woken = woken_of(thread);
	if (histograms)
		add_up(task, thread, woken, now);
	u32 depth = depth_of(task), zero = 0;
	struct batch *batch = map_lookup(&batches, &zero);
	if (!batch)
		return;
	if (kernel_stacks && thread->level >= WHOLE && thread->state && wants_stack(thread, depth, now) && has_room()) {
		flush(batch);
		put_with_stack(task, thread, previous->pid, now, depth);
	} else {
		put_in_batch(batch, thread, task->pid, previous->pid, woken, now, depth);
	}
	thread->left = 0;
	thread->ran = now;
}

SEC("tp_btf/sched_switch") int on_switch(u64 *ctx)
{
	struct task_struct *previous = (void *)ctx[1], *next = (void *)ctx[2];
	if (!previous->bpf_storage && !next->bpf_storage)
		return 0;
	u64 now = clock_ns();
	bool preempted = ctx[0] & 1;
	leaves(ctx, previous, next, preempted, preempted ? 0 : (u32)ctx[3], now);
	arrives(next, previous, now);
	return 0;
}

SEC("tp_btf/sched_waking") int on_waking(u64 *ctx)
{
	struct thread *thread = thread_of((struct task_struct *)ctx[0]);
	if (!thread)
		return 0;
	struct task_struct *me = current_task();
	thread->woken = clock_ns();
	thread->waker = me->pid;
	thread->waker_context = context_of(me);
	thread->waker_call = -1;
	thread->waker_argument = 0;
	if (me->flags & KERNEL_THREAD)
		return 0;
	struct place at = {};
	place_of(me, &at);
	thread->waker_call = at.call;
	thread->waker_argument = at.arguments[0];
	return 0;
}

// Threads: their names, numbers and counts.

INLINE void describe(struct task *out, struct task_struct *task, enum task_why why, u32 level, u64 now)
{
	out->kind = TASK;
	out->why = why;
	out->cpu = this_cpu();
	out->tid = task->pid;
	out->tgid = task->tgid;
	out->parent = task->real_parent->tgid;
	out->time = now;
	out->start = task->start_time;
	out->cgroup = cgroup_of(task);
	out->voluntary = task->nvcsw;
	out->involuntary = task->nivcsw;
	out->exec_ns = task->se.sum_exec_runtime;
	out->run_delay_ns = task->sched_info.run_delay;
	out->minor = task->min_flt;
	out->major = task->maj_flt;
	out->level = level;
	out->own_pid = 0;
	struct pid *pid = task->thread_pid;
	if (pid) {
		u32 level_of_space = pid->level;
		read_kernel(&out->own_pid, 4, (void *)&pid->numbers[0] + (u64)level_of_space * 16);
	}
	out->prio = task->prio;
	out->flags = task->flags;
	read_kernel(out->comm, sizeof out->comm, task->comm);
	out->maker = why == FORKED ? current_task()->pid : 0;
	struct mm_struct *memory = task->mm;
	out->maps = memory ? memory->map_count : 0;
}

INLINE void tell(struct task_struct *task, enum task_why why, u32 level, u64 now)
{
	struct task *out = reserve(sizeof *out);
	if (!out)
		return;
	describe(out, task, why, level, now);
	ring_submit(out, NO_WAKEUP);
}

// A new thread is followed like its creator. It waits for a CPU until it runs for the first time.
SEC("tp_btf/task_newtask") int on_new(u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	struct thread *mine = thread_of(current_task());
	u32 level = mine ? mine->level : NOT_FOLLOWED;
	if (whole_machine && level < WAITS)
		level = WAITS;
	if (level == NOT_FOLLOWED)
		return 0;
	struct thread *thread = task_storage(&threads, task, 0, CREATE);
	if (!thread) {
		lose(1);
		return 0;
	}
	u64 now = clock_ns();
	thread->level = level;
	thread->left = now;
	thread->woken = now;
	thread->waker = current_task()->pid;
	thread->waker_context = CONTEXT_KNOWN;
	thread->call = -1;
	thread->waker_call = -1;
	thread->flags = NEW;
	thread->left_cpu = this_cpu();
	tell(task, FORKED, level, now);
	return 0;
}

struct name {
	u8 text[16];
};
MAP(names, HASH) number(max_entries, 64); of_type(key, struct name); of_type(value, u8); } names SEC(".maps");

// An exec renames the thread, too.
SEC("tp_btf/task_rename") int on_rename(u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	struct thread *thread = thread_of(task);
	if (by_name && (!thread || thread->level < WHOLE)) {
		struct name name = {};
		read_kernel_text(name.text, sizeof name.text, (const void *)ctx[1]);
		if (map_lookup(&names, &name)) {
			if (!thread)
				thread = task_storage(&threads, task, 0, CREATE);
			if (thread)
				thread->level = WHOLE;
			else
				lose(1);
		}
	}
	if (!thread)
		return 0;
	thread->period = 0; // histograms look its name up again
	struct task *out = reserve(sizeof *out);
	if (!out)
		return 0;
	describe(out, task, RENAMED, thread->level, clock_ns());
	// The event comes before the name is changed.
	read_kernel(out->comm, sizeof out->comm, (const void *)ctx[1]);
	ring_submit(out, NO_WAKEUP);
	return 0;
}

SEC("tp_btf/sched_process_exec") int on_exec(u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	struct linux_binprm *program = (void *)ctx[2];
	if (!thread_of(task))
		return 0;
	struct exec *out = reserve(sizeof *out);
	if (!out)
		return 0;
	out->kind = EXEC;
	out->pad = 0;
	out->cpu = this_cpu();
	out->tid = task->pid;
	out->tgid = task->tgid;
	out->old_tid = ctx[1];
	out->time = clock_ns();
	read_kernel(out->comm, sizeof out->comm, task->comm);
	out->filename[0] = 0;
	read_kernel_text(out->filename, sizeof out->filename, program->filename);
	ring_submit(out, NO_WAKEUP);
	return 0;
}

SEC("tp_btf/sched_process_exit") int on_exit(u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	struct thread *thread = thread_of(task);
	if (thread)
		tell(task, EXITED, thread->level, clock_ns());
	return 0;
}

// On the reader's request, follows the threads that exist already, or writes the waits that are open.
INLINE bool is_in(struct task_struct *task, u64 cgroup)
{
	struct cgroup *at = task->cgroups->dfl_cgrp;
	for (int i = 0; i < 16 && at; i++) {
		if (at->kn->id == cgroup)
			return 1;
		struct cgroup_subsys_state *parent = at->self.parent;
		if (!parent)
			return 0;
		at = ((struct cgroup_subsys_state___cgroup *)parent)->cgroup;
	}
	return 0;
}

INLINE bool is_asked_for(struct task_struct *task, struct request_of_reader *asked)
{
	if (asked->tgid && (u32)task->tgid != asked->tgid)
		return 0;
	if (asked->tid && (u32)task->pid != asked->tid)
		return 0;
	if (asked->comm[0]) {
		for (int i = 0; i < 16; i++) {
			if ((u8)task->comm[i] != asked->comm[i])
				return 0;
			if (!asked->comm[i])
				break;
		}
	}
	return !asked->cgroup || is_in(task, asked->cgroup);
}

MAP(scratch, PERCPU_ARRAY) number(max_entries, 1); of_type(key, u32); of_type(value, struct wait_stack); } scratch SEC(".maps");

// Begins the wait of a thread that sleeps already now, because it left its CPU before anybody looked.
INLINE void begin_open(struct task_struct *task, struct thread *thread, u64 now)
{
	if (task->on_cpu || thread->left)
		return;
	struct place at = {};
	thread->flags = BEFORE;
	thread->call = -1;
	thread->woken = 0;
	thread->waker = 0;
	thread->next = 0;
	thread->left_cpu = 0xffff;
	thread->state = task->__state;
	if (BITS(task, in_iowait))
		thread->flags |= IOWAIT;
	if (task->flags & KERNEL_THREAD) {
		thread->flags |= KTHREAD;
	} else {
		place_of(task, &at);
		thread->call = at.call;
		thread->arguments[0] = at.arguments[0];
		thread->arguments[1] = at.arguments[1];
		thread->arguments[2] = at.arguments[2];
		thread->ip = at.ip;
		thread->sp = at.sp;
		if (has(task->thread_info.status) && task->thread_info.status & COMPAT)
			thread->flags |= COMPAT_CALL;
	}
	thread->exec = task->se.sum_exec_runtime;
	thread->left = now;
}

SEC("iter/task") int each_task(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct seq_file *to = ctx->meta->seq;
	u32 zero = 0;
	struct request_of_reader *request = map_lookup(&asked, &zero);
	struct wait_stack *wait = map_lookup(&scratch, &zero);
	if (!task || !request || !wait)
		return 0;
	u64 now = clock_ns();
	struct thread *thread = thread_of(task);
	if (request->what == FOLLOW) {
		if (!is_asked_for(task, request))
			return 0;
		bool known = thread != 0;
		if (!thread)
			thread = task_storage(&threads, task, 0, CREATE);
		if (!thread)
			return 0;
		if (thread->level < request->level)
			thread->level = request->level;
		else if (known)
			return 0;
		if (!known)
			begin_open(task, thread, now);
	} else if (!thread) {
		return 0;
	}
	struct task out = {};
	describe(&out, task, request->what == FOLLOW ? BEGIN : END, thread->level, now);
	seq_write(to, &out, sizeof out);
	if (request->what != FLUSH || !thread->left || task->on_cpu)
		return 0;
	// A waking just before it left was of a sleep before, where the thread is asleep now.
	u64 woken = task->__state && thread->woken < thread->left ? 0 : woken_of(thread);
	// A thread that could run and sleeps now has run unseen: some kernels hide switches. How long it waited nobody knows.
	if ((woken || !thread->state) && task->__state && !task->on_rq)
		return 0;
	fill(&wait->wait, thread, task->pid, 0, woken, now, 0);
	wait->wait.kind = WAIT_STACK;
	wait->wait.flags |= OPEN;
	wait->frames = 0;
	wait->prio = task->prio;
	if (thread->level >= WHOLE) {
		long bytes = get_task_stack(task, wait->stack, sizeof wait->stack, 0);
		wait->frames = bytes > 0 ? bytes / 8 : 0;
	}
	seq_write(to, wait, sizeof *wait);
	return 0;
}

// A thread that may not be followed: this is all that is kept of it.
struct holder {
	u32 tid, tgid;
};

// Spans: a thread begins an activity and ends it later.

INLINE void put_span(u32 what, u32 tid, u64 begin, u64 end, u64 a, u64 b)
{
	struct span *span = reserve(sizeof *span);
	if (!span)
		return;
	span->kind = SPAN;
	span->what = what;
	span->cpu = this_cpu();
	span->tid = tid;
	span->begin = begin;
	span->end = end;
	span->a = a;
	span->b = b;
	ring_submit(span, NO_WAKEUP);
}

INLINE int begin(u32 what, u64 detail)
{
	struct thread *thread = whole(current_task());
	if (thread) {
		thread->begin[what] = clock_ns();
		thread->detail[what] = detail;
		thread->open |= 1 << what;
	}
	return 0;
}

INLINE int end(u32 what, u64 b)
{
	struct task_struct *me = current_task();
	struct thread *thread = whole(me);
	if (!thread || !thread->begin[what])
		return 0;
	put_span(what, me->pid, thread->begin[what], clock_ns(), thread->detail[what], b);
	thread->begin[what] = 0;
	thread->open &= ~(1 << what);
	return 0;
}

#define BEGINS(what, event, detail) SEC("tp_btf/" #event) int on_##event(u64 *ctx) { return begin(what, detail); }
#define ENDS(what, event, b) SEC("tp_btf/" #event) int on_##event(u64 *ctx) { return end(what, b); }

// order | gfp flags << 32; pages freed
BEGINS(DIRECT_RECLAIM, mm_vmscan_direct_reclaim_begin, (u32)ctx[0] | ctx[1] << 32)
ENDS(DIRECT_RECLAIM, mm_vmscan_direct_reclaim_end, ctx[0])
BEGINS(MEMCG_RECLAIM, mm_vmscan_memcg_reclaim_begin, (u32)ctx[0] | ctx[1] << 32)
ENDS(MEMCG_RECLAIM, mm_vmscan_memcg_reclaim_end, ctx[0])
// whether it may wait; how it ended (enum compact_result)
BEGINS(COMPACTION, mm_compaction_begin, ctx[3] & 1)
ENDS(COMPACTION, mm_compaction_end, (u32)ctx[4])
// the shrinker's function; objects freed
BEGINS(SHRINKER, mm_shrink_slab_start, (u64)((struct shrinker *)ctx[0])->scan_objects)
ENDS(SHRINKER, mm_shrink_slab_end, (u32)ctx[3])
// its context; its sequence number
BEGINS(FENCE, dma_fence_wait_start, ((struct dma_fence *)ctx[0])->context)
ENDS(FENCE, dma_fence_wait_end, ((struct dma_fence *)ctx[0])->seqno)
BEGINS(MMAP_LOCK, mmap_lock_start_locking, ctx[0])

// The thread that made a fence submitted the fence's work.
struct fence_key {
	u32 context, seqno;
};
MAP(submitters, LRU_HASH) number(max_entries, 8192); of_type(key, struct fence_key); of_type(value, struct holder); } submitters SEC(".maps");
SEC("tp_btf/dma_fence_init") int on_dma_fence_init(u64 *ctx)
{
	struct dma_fence *fence = (void *)ctx[0];
	struct task_struct *me = current_task();
	struct fence_key key = { fence->context, fence->seqno };
	struct holder submitter = { me->pid, me->tgid };
	map_update(&submitters, &key, &submitter, 0);
	return 0;
}

// Drivers return their names from functions that no program may call. The event in tracefs has the names; its format is the
// same from 6.1 to 6.18.
struct fence_event {
	u64 common;
	u32 driver, timeline; // where the texts are, from the event's begin, in the low halves
	u32 context, seqno;
};
SEC("tracepoint/dma_fence/dma_fence_wait_start") int name_fence(struct fence_event *ctx)
{
	struct task_struct *me = current_task();
	if (!whole(me))
		return 0;
	struct fence_key key = { ctx->context, ctx->seqno };
	struct holder *submitter = map_lookup(&submitters, &key);
	struct fence_names *out = reserve(sizeof *out);
	if (!out)
		return 0;
	out->kind = FENCE_NAMES;
	out->pad = 0;
	out->cpu = this_cpu();
	out->tid = me->pid;
	out->time = clock_ns();
	out->context = key.context;
	out->seqno = key.seqno;
	out->submitter = submitter ? submitter->tid : 0;
	out->submitter_process = submitter ? submitter->tgid : 0;
	out->driver[0] = out->timeline[0] = 0;
	read_kernel_text(out->driver, sizeof out->driver, (void *)ctx + (ctx->driver & 0xffff));
	read_kernel_text(out->timeline, sizeof out->timeline, (void *)ctx + (ctx->timeline & 0xffff));
	ring_submit(out, NO_WAKEUP);
	return 0;
}

// Only if it took longer than without a wait, because each mmap and page fault takes this lock.
SEC("tp_btf/mmap_lock_acquire_returned") int on_mmap_lock_acquire_returned(u64 *ctx)
{
	struct thread *thread = whole(current_task());
	if (!thread || !thread->begin[MMAP_LOCK])
		return 0;
	if (clock_ns() - thread->begin[MMAP_LOCK] > 1000)
		return end(MMAP_LOCK, ctx[1] & 1);
	thread->begin[MMAP_LOCK] = 0;
	thread->open &= ~(1 << MMAP_LOCK);
	return 0;
}

// usec_timeout, usec_delayed, reason: reported when it is over.
SEC("tp_btf/mm_vmscan_throttled") int on_mm_vmscan_throttled(u64 *ctx)
{
	struct task_struct *me = current_task();
	if (!whole(me))
		return 0;
	u64 now = clock_ns(), delayed = (u64)(u32)ctx[2] * 1000;
	put_span(THROTTLED_RECLAIM, me->pid, now - delayed, now, (u32)ctx[3], (u32)ctx[1]);
	return 0;
}

// Locks that make threads sleep. Spinlocks are left out: a program at the end of a wait for a spinlock itself takes a ring's
// spinlock, and could wait for itself (before 6.15).
SEC("tp_btf/contention_begin") int on_contention_begin(u64 *ctx)
{
	u32 flags = ctx[1];
	struct task_struct *me = current_task();
	if (flags & LOCK_SPIN)
		return 0;
	struct thread *thread = whole(me);
	if (!thread || thread->begin[LOCK])
		return 0;
	u64 owner = 0;
	u32 tid = 0;
	void *lock = (void *)ctx[0];
	if (flags & LOCK_MUTEX) {
		struct mutex *mutex = lock;
		read_kernel(&owner, 8, &mutex->owner);
	} else if (flags & (LOCK_READ | LOCK_WRITE) && !(flags & (LOCK_RT | LOCK_PERCPU))) {
		struct rw_semaphore *semaphore = lock;
		read_kernel(&owner, 8, &semaphore->owner);
		struct mm_struct *mm = me->mm;
		if (mm && (u64)lock == (u64)&mm->mmap_lock)
			flags |= LOCK_MMAP;
		if (owner & 1)
			owner = 0; // readers: the last of them, perhaps gone
	}
	owner &= ~7ULL;
	if (owner) {
		struct task_struct *holder = (void *)owner;
		read_kernel(&tid, 4, &holder->pid);
	}
	thread->detail[LOCK] = ctx[0];
	thread->begin[LOCK] = clock_ns();
	thread->open |= 1 << LOCK;
	thread->lock = flags | (u64)tid << 32;
	return 0;
}

SEC("tp_btf/contention_end") int on_contention_end(u64 *ctx)
{
	struct thread *thread = thread_of(current_task());
	if (!thread || !thread->begin[LOCK] || thread->detail[LOCK] != ctx[0])
		return 0;
	return end(LOCK, thread->lock);
}

SEC("tp_btf/page_fault_user") int on_page_fault_user(u64 *ctx)
{
	struct thread *thread = whole(current_task());
	if (thread) {
		thread->fault = ctx[0];
		thread->faulted = clock_ns();
	}
	return 0;
}

// Reported before the thread checks the page and sleeps, and again each time it does. Nothing reports the end: it is the end of
// the thread's next wait, which the reader knows. The record has the call.
SEC("tp_btf/folio_wait_writeback") int on_folio_wait_writeback(u64 *ctx)
{
	struct task_struct *me = current_task();
	if (!whole(me))
		return 0;
	struct place at = {};
	u64 now = clock_ns();
	at.call = -1;
	if (!(me->flags & KERNEL_THREAD))
		place_of(me, &at);
	put_span(WRITEBACK, me->pid, now, now, (u32)at.call, 0);
	return 0;
}

// Locks of files (fs/locks.c). The kernel names only the process of a holder. So the thread that last got a lock is kept by file and
// owner. The owner is a process for fcntl's locks, and the open file for the locks of flock and of open files.
struct file_owner {
	u64 inode, owner;
};
MAP(file_owners, LRU_HASH) number(max_entries, 16384); of_type(key, struct file_owner); of_type(value, struct holder); } file_owners SEC(".maps");

// A lock in the kernel's list, or a requested one.
struct file_range {
	u64 owner;
	s64 start, end;
	s32 process;
	u32 flags;
	u8 type, pad[7];
};
enum { F_RDLCK, F_WRLCK, F_UNLCK };
enum { FL_FLOCK = 2, FL_SLEEP = 128, FL_OFDLCK = 1024, EAGAIN = 11, DEFERRED = 1 };
// Most locks of a file that are searched for the conflicting one, and most attempts of a thread that are reported until it is woken
// again. Further ones are reported once per ms.
enum { LOCKS_OF_FILE = 64, ATTEMPTS = 4, ATTEMPT_AGAIN_NS = 1000000 };

// Another CPU may remove the lock meanwhile. Then the fields that are read belong to no lock, and match no owner.
INLINE void read_lock(struct file_range *to, struct file_lock *lock)
{
	struct file_lock___before_6_9 *old = (void *)lock;
	read_kernel(&to->start, 8, &lock->fl_start);
	read_kernel(&to->end, 8, &lock->fl_end);
	if (has(lock->c.flc_owner)) {
		read_kernel(&to->owner, 8, &lock->c.flc_owner);
		read_kernel(&to->flags, 4, &lock->c.flc_flags);
		read_kernel(&to->type, 1, &lock->c.flc_type);
		read_kernel(&to->process, 4, &lock->c.flc_pid);
	} else if (has(old->fl_owner)) {
		read_kernel(&to->owner, 8, &old->fl_owner);
		read_kernel(&to->flags, 4, &old->fl_flags);
		read_kernel(&to->type, 1, &old->fl_type);
		read_kernel(&to->process, 4, &old->fl_pid);
	}
}

INLINE u32 offset_of_list(struct file_lock *lock)
{
	struct file_lock___before_6_9 *old = (void *)lock;
	if (has(lock->c.flc_list))
		return __builtin_preserve_field_info(lock->c.flc_list, 0);
	return has(old->fl_list) ? __builtin_preserve_field_info(old->fl_list, 0) : 0;
}

// Returns the holder of the lock that conflicts with `wanted`.
SELDOM u64 holder_of(struct inode *inode, struct file_range *wanted, u64 list)
{
	u32 offset = offset_of_list(0);
	u64 at = 0;
	if (!wanted || read_kernel(&at, 8, (void *)list))
		return 0;
	for (int i = 0; i < LOCKS_OF_FILE && at && at != list; i++) {
		struct file_range held = {};
		read_lock(&held, (void *)(at - offset));
		bool overlaps = held.start <= wanted->end && wanted->start <= held.end;
		bool excludes = held.type == F_WRLCK || wanted->type == F_WRLCK;
		if (held.owner && held.owner != wanted->owner && overlaps && excludes) {
			struct file_owner key = { (u64)inode, held.owner };
			struct holder *known = map_lookup(&file_owners, &key);
			if (known && (held.process <= 0 || known->tgid == (u32)held.process))
				return known->tid | (u64)known->tgid << 32;
			return held.process > 0 ? (u64)held.process << 32 : 0;
		}
		if (read_kernel(&at, 8, (void *)at))
			return 0;
	}
	return 0;
}

SELDOM int failed_to_lock(struct inode *inode, struct file_lock *lock, bool defers, bool flock)
{
	struct task_struct *me = current_task();
	struct thread *thread = thread_of(me);
	if (!thread)
		return 0;
	u64 now = clock_ns(), told = thread->attempted;
	if (thread->woken > told)
		thread->attempts = 0;
	if (thread->attempts >= ATTEMPTS && now - told < ATTEMPT_AGAIN_NS)
		return 0;
	struct attempt *out = reserve(sizeof *out);
	if (!out)
		return 0;
	thread->attempts += 1;
	thread->attempted = now;
	struct file_range wanted = {};
	read_lock(&wanted, lock);
	struct file_lock_context *context = inode->i_flctx;
	u64 list = (u64)(flock ? &context->flc_flock : &context->flc_posix);
	u64 holder = context ? holder_of(inode, &wanted, list) : 0;
	out->kind = FILE_LOCK;
	out->how = (wanted.type == F_WRLCK ? FOR_WRITING : 0) | (flock ? BY_FLOCK : 0) | (wanted.flags & FL_OFDLCK ? BY_OPEN_FILE : 0)
		| (defers ? BLOCKS : 0);
	out->cpu = this_cpu();
	out->tid = me->pid;
	out->time = now;
	out->inode = inode->i_ino;
	out->start = wanted.start;
	out->end = wanted.end;
	out->device = inode->i_sb->s_dev;
	out->holder = holder;
	out->holder_process = holder >> 32;
	out->pad = 0;
	ring_submit(out, NO_WAKEUP);
	return 0;
}

// A lock was requested: the inode, the request, the result.
INLINE int file_lock(u64 *ctx, bool flock)
{
	struct inode *inode = (void *)ctx[0];
	struct file_lock *lock = (void *)ctx[1];
	struct file_lock___before_6_9 *old = (void *)lock;
	s32 result = ctx[2];
	struct file_owner key = { (u64)inode, 0 };
	u8 type = F_UNLCK;
	if (!lock)
		return 0;
	if (result)
		return result == -EAGAIN || result == DEFERRED ? failed_to_lock(inode, lock, result == DEFERRED, flock) : 0;
	if (has(lock->c.flc_owner)) {
		type = lock->c.flc_type;
		key.owner = (u64)lock->c.flc_owner;
	} else if (has(old->fl_owner)) {
		type = old->fl_type;
		key.owner = (u64)old->fl_owner;
	}
	if (type == F_UNLCK)
		return 0;
	struct task_struct *me = current_task();
	struct holder mine = { me->pid, me->tgid };
	struct holder *known = map_lookup(&file_owners, &key);
	if (!known || known->tid != mine.tid)
		map_update(&file_owners, &key, &mine, 0);
	return 0;
}

SEC("tp_btf/posix_lock_inode") int on_posix_lock_inode(u64 *ctx) { return file_lock(ctx, 0); }
SEC("tp_btf/flock_lock_inode") int on_flock_lock_inode(u64 *ctx) { return file_lock(ctx, 1); }

// Block requests, from insertion to completion, by the thread that issued them. Kernel threads are always included: they issue requests
// for followed threads, such as the flush of an fsync.

INLINE bool asks_for_followed(struct task_struct *task)
{
	return whole_machine || task->flags & KERNEL_THREAD || thread_of(task);
}

INLINE void block_begins(u64 at, bool issued)
{
	struct request *request = (void *)at;
	u64 now = clock_ns();
	struct in_flight *known = map_lookup(&requests, &at);
	if (known) {
		if (issued) {
			known->issued = now;
			// Others were merged into it meanwhile.
			known->sector = request->__sector;
			known->bytes = request->__data_len;
		}
		return;
	}
	struct task_struct *me = current_task();
	if (!asks_for_followed(me))
		return;
	struct in_flight new = { issued ? 0 : now, issued ? now : 0, request->__sector, me->pid, 0, request->__data_len, request->cmd_flags };
	struct gendisk *disk = request->q->disk;
	if (disk)
		new.device = disk->major << 20 | disk->first_minor;
	new.tgid = me->tgid;
	read_kernel(new.comm, sizeof new.comm, me->comm);
	if (map_update(&requests, &at, &new, 0))
		lose(1);
}

SEC("tp_btf/block_rq_insert") int on_block_rq_insert(u64 *ctx)
{
	block_begins(ctx[0], 0);
	return 0;
}

SEC("tp_btf/block_rq_issue") int on_block_rq_issue(u64 *ctx)
{
	block_begins(ctx[0], 1);
	return 0;
}

// A thread's request may be merged into an earlier one, perhaps of another thread. It then ends with that request, which
// the reader knows. The record has the first sector, and device | bytes << 32.
INLINE int merges(struct bio *bio)
{
	struct task_struct *me = current_task();
	if (!asks_for_followed(me))
		return 0;
	struct gendisk *disk = bio->bi_bdev->bd_disk;
	u64 now = clock_ns(), device = disk->major << 20 | disk->first_minor, bytes = bio->bi_iter.bi_size;
	put_span(MERGE, me->pid, now, now, bio->bi_iter.bi_sector, device | bytes << 32);
	return 0;
}

SEC("tp_btf/block_bio_backmerge") int on_block_bio_backmerge(u64 *ctx) { return merges((struct bio *)ctx[0]); }
SEC("tp_btf/block_bio_frontmerge") int on_block_bio_frontmerge(u64 *ctx) { return merges((struct bio *)ctx[0]); }

// A request is merged into the one before it and never issued. The kernel uses its address for another request.
SEC("tp_btf/block_rq_merge") int on_block_rq_merge(u64 *ctx)
{
	u64 at = ctx[0];
	struct in_flight *known = map_lookup(&requests, &at);
	if (!known)
		return 0;
	u64 bytes = known->bytes;
	put_span(MERGE, known->tid, known->inserted, clock_ns(), known->sector, known->device | bytes << 32);
	map_delete(&requests, &at);
	return 0;
}

SEC("tp_btf/block_rq_complete") int on_block_rq_complete(u64 *ctx)
{
	// Read before its address is a key: before 6.18 the kernel takes a pointer that was one for a number.
	u32 left = ((struct request *)ctx[0])->__data_len;
	u64 at = ctx[0];
	struct in_flight *known = map_lookup(&requests, &at);
	// A request that is completed in parts is over with its last part.
	if (!known || left > (u32)ctx[2])
		return 0;
	struct block *block = reserve(sizeof *block);
	if (block) {
		block->kind = BLOCK;
		block->pad = 0;
		block->cpu = this_cpu();
		block->tid = known->tid;
		block->inserted = known->inserted;
		block->issued = known->issued;
		block->completed = clock_ns();
		block->sector = known->sector;
		block->bytes = known->bytes;
		block->device = known->device;
		block->flags = known->flags;
		block->status = ctx[1];
		block->tgid = known->tgid;
		block->pad2 = 0;
		__builtin_memcpy(block->comm, known->comm, sizeof block->comm);
		ring_submit(block, NO_WAKEUP);
	}
	map_delete(&requests, &at);
	return 0;
}

// Interrupts and work items take a CPU without a switch of the interrupted thread. Long ones are recorded.

INLINE int interrupt_begins(u32 which)
{
	u64 *begun = counter(which);
	if (begun)
		*begun = clock_ns();
	return 0;
}

INLINE int interrupt_ends(u32 which, u32 what, u64 a, u64 b)
{
	u64 *begun = counter(which);
	u64 now = clock_ns();
	if (begun && *begun && now - *begun >= interrupt_ns)
		put_span(what, current_task()->pid, *begun, now, a, b);
	if (begun)
		*begun = 0;
	return 0;
}

SEC("tp_btf/softirq_entry") int on_softirq_entry(u64 *ctx) { return interrupt_begins(BEGUN_SOFTIRQ); }
SEC("tp_btf/softirq_exit") int on_softirq_exit(u64 *ctx) { return interrupt_ends(BEGUN_SOFTIRQ, SOFTIRQ, (u32)ctx[0], 0); }
SEC("tp_btf/irq_handler_entry") int on_irq_handler_entry(u64 *ctx) { return interrupt_begins(BEGUN_INTERRUPT); }
SEC("tp_btf/irq_handler_exit") int on_irq_handler_exit(u64 *ctx) { return interrupt_ends(BEGUN_INTERRUPT, INTERRUPT, (u32)ctx[0], 0); }

// A work item may sleep, so its begin is kept with its worker.
struct work {
	u64 begin, function;
};
MAP(works, LRU_HASH) number(max_entries, 4096); of_type(key, u32); of_type(value, struct work); } works SEC(".maps");
SEC("tp_btf/workqueue_execute_start") int on_workqueue_execute_start(u64 *ctx)
{
	u32 tid = current_task()->pid;
	struct work work = { clock_ns(), (u64)((struct work_struct *)ctx[0])->func };
	map_update(&works, &tid, &work, 0);
	return 0;
}
SEC("tp_btf/workqueue_execute_end") int on_workqueue_execute_end(u64 *ctx)
{
	u32 tid = current_task()->pid;
	u64 now = clock_ns();
	struct work *work = map_lookup(&works, &tid);
	if (!work)
		return 0;
	if (now - work->begin >= interrupt_ns)
		put_span(WORK, tid, work->begin, now, work->function, 0);
	map_delete(&works, &tid);
	return 0;
}

SEC("tp_btf/signal_generate") int on_signal_generate(u64 *ctx)
{
	struct task_struct *target = (void *)ctx[2], *me = current_task();
	if (!whole(target) && !whole(me))
		return 0;
	struct signal *signal = reserve(sizeof *signal);
	if (!signal)
		return 0;
	signal->kind = SIGNAL;
	signal->number = ctx[0];
	signal->cpu = this_cpu();
	// An interrupt, such as that of a timer, sends nothing for the thread that it interrupts.
	bool by_interrupt = context_of(me) & (CONTEXT_SOFTIRQ | CONTEXT_INTERRUPT);
	signal->tid = by_interrupt ? 0 : me->pid;
	signal->tgid = by_interrupt ? 0 : me->tgid;
	signal->pad = 0;
	read_kernel(signal->comm, sizeof signal->comm, me->comm);
	signal->time = clock_ns();
	signal->target = target->pid;
	signal->target_tgid = target->tgid;
	signal->result = ctx[4];
	signal->group = ctx[3];
	ring_submit(signal, NO_WAKEUP);
	return 0;
}

// System calls, including those that do not block. The kernel takes the slow path of every call of every thread while these are
// attached: 1.08 times the CPU time of a ping-pong, even if nothing is recorded.

INLINE u8 compat_flag(struct task_struct *task)
{
	return has(task->thread_info.status) && task->thread_info.status & COMPAT ? COMPAT_CALL : 0;
}

INLINE int put_enter(struct task_struct *me, u32 call)
{
	struct enter *enter = reserve(sizeof *enter);
	if (!enter)
		return 0;
	void *saved = task_pt_regs(me);
	struct pt_regs___x86 *x86 = saved;
	struct pt_regs___arm64 *arm = saved;
	enter->kind = ENTER;
	enter->flags = compat_flag(me);
	enter->cpu = this_cpu();
	enter->tid = me->pid;
	enter->time = clock_ns();
	enter->call = call;
	enter->pad = 0;
	if (has(x86->orig_ax)) {
		enter->arguments[0] = x86->di;
		enter->arguments[1] = x86->si;
		enter->arguments[2] = x86->dx;
		enter->arguments[3] = x86->r10;
		enter->arguments[4] = x86->r8;
		enter->arguments[5] = x86->r9;
	} else if (has(arm->syscallno)) {
		enter->arguments[0] = arm->orig_x0;
		enter->arguments[1] = arm->regs[1];
		enter->arguments[2] = arm->regs[2];
		enter->arguments[3] = arm->regs[3];
		enter->arguments[4] = arm->regs[4];
		enter->arguments[5] = arm->regs[5];
	}
	ring_submit(enter, NO_WAKEUP);
	return 0;
}

INLINE int put_leave(struct task_struct *me, s64 result)
{
	struct leave *leave = reserve(sizeof *leave);
	if (!leave)
		return 0;
	struct place at = {};
	place_of(me, &at);
	leave->kind = LEAVE;
	leave->flags = compat_flag(me);
	leave->cpu = this_cpu();
	leave->tid = me->pid;
	leave->time = clock_ns();
	leave->result = result;
	leave->call = at.call;
	leave->pad = 0;
	ring_submit(leave, NO_WAKEUP);
	return 0;
}

SEC("tp_btf/sys_enter") int on_sys_enter(u64 *ctx)
{
	struct task_struct *me = current_task();
	return whole(me) ? put_enter(me, ctx[1]) : 0;
}

SEC("tp_btf/sys_exit") int on_sys_exit(u64 *ctx)
{
	struct task_struct *me = current_task();
	return whole(me) ? put_leave(me, ctx[1]) : 0;
}

// The calls that change an address space, at the kernel's functions of these calls, so other calls cost nothing more. The functions take
// the registers, which have the number of the call. The loader knows the functions' names. All of them share one body.
static __attribute__((noinline)) int call_begins(void)
{
	struct task_struct *me = current_task();
	if (!whole(me))
		return 0;
	struct place at = {};
	place_of(me, &at);
	return put_enter(me, at.call);
}

static __attribute__((noinline)) int call_ends(s64 result)
{
	struct task_struct *me = current_task();
	return whole(me) ? put_leave(me, result) : 0;
}

#define ADDRESS_SPACE(name) \
	SEC("fentry/" #name) int begin_##name(u64 *ctx) { return call_begins(); } \
	SEC("fexit/" #name) int end_##name(u64 *ctx) { return call_ends(ctx[1]); }
ADDRESS_SPACE(mmap)
ADDRESS_SPACE(munmap)
ADDRESS_SPACE(brk)
ADDRESS_SPACE(mremap)
ADDRESS_SPACE(mprotect)
ADDRESS_SPACE(madvise)

// The process whose new mappings are asked about, its number of mappings after its last call, and how many stacks are still wanted.
struct mapper {
	u32 tgid;
	s32 maps;
	u32 wanted, pad;
};
MAP(mappers, ARRAY) number(max_entries, 1); of_type(key, u32); of_type(value, struct mapper); } mappers SEC(".maps");

// The effect shows which call added a mapping: mprotect may split a mapping, and mmap may merge two.
SEC("tp_btf/sys_exit") int on_mapped(u64 *ctx)
{
	struct task_struct *me = current_task();
	u32 zero = 0;
	struct mapper *mapper = map_lookup(&mappers, &zero);
	struct mm_struct *memory = me->mm;
	if (!mapper || !memory || mapper->tgid != me->tgid)
		return 0;
	s32 before = mapper->maps;
	mapper->maps = memory->map_count;
	if (!before || mapper->maps <= before || !mapper->wanted)
		return 0;
	struct place at = {};
	place_of(me, &at);
	if (has_room() && put_user_stack(ctx, me, &at, 1, clock_ns()))
		mapper->wanted -= 1;
	return 0;
}

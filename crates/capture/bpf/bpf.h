// BPF as the programs use it: types, sections, map definitions, helpers by number. The helpers' numbers are the
// kernel's ABI (include/uapi/linux/bpf.h), so no header of another package is needed.
#pragma once
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int s32;
typedef long long s64;
typedef _Bool bool;

#define SEC(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
// Code that a switch runs seldom is a function of its own. A program has few registers, and the other code keeps its values in them.
#define SELDOM static __attribute__((noinline))
// The loader finds fields by name in the running kernel's BTF (CO-RE).
#define CORE __attribute__((preserve_access_index))
#define has(field) __builtin_preserve_field_info(field, 2)
/* A field of some bits. The place of the bits in their bytes is relocated only if it is asked for: read as an ordinary field, the bits
 * are looked for where our own structure has them. `pointer->field` within the kernel's own structure. */
#define BITS(pointer, field) ({ \
	const char *at = (const char *)(pointer) + __builtin_preserve_field_info((pointer)->field, 0); \
	u64 bits = 0; \
	switch (__builtin_preserve_field_info((pointer)->field, 1)) { \
	case 1: bits = *(const volatile unsigned char *)at; break; \
	case 2: bits = *(const volatile unsigned short *)at; break; \
	case 4: bits = *(const volatile unsigned int *)at; break; \
	case 8: bits = *(const volatile u64 *)at; break; \
	} \
	bits <<= __builtin_preserve_field_info((pointer)->field, 4); \
	bits >> __builtin_preserve_field_info((pointer)->field, 5); \
})

// Definition of a map: the loader reads these types from the object's BTF.
#define number(name, value) int (*name)[value]
#define of_type(name, what) typeof(what) *name
#define MAP(name, map_type) struct name##_map { number(type, map_type);
enum { HASH = 1, ARRAY = 2, PERCPU_ARRAY = 6, LRU_HASH = 9, ARRAY_OF_MAPS = 12, RINGBUF = 27, TASK_STORAGE = 29 };
enum { NO_PREALLOC = 1, USER_STACK = 256, NO_WAKEUP = 1, FORCE_WAKEUP = 2, CREATE = 1, BYTES_HELD = 0, BYTES_IN_ALL = 1 };

struct task_struct;
struct seq_file;
static void *(*map_lookup)(void *map, const void *key) = (void *)1;
static long (*map_update)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*map_delete)(void *map, const void *key) = (void *)3;
static u64 (*clock_ns)(void) = (void *)5;
static u32 (*this_cpu)(void) = (void *)8;
static long (*get_stack)(void *ctx, void *buffer, u32 bytes, u64 flags) = (void *)67;
static long (*read_user)(void *to, u32 bytes, const void *from) = (void *)112;
static long (*read_kernel)(void *to, u32 bytes, const void *from) = (void *)113;
static long (*read_kernel_text)(void *to, u32 bytes, const void *from) = (void *)115;
static long (*seq_write)(struct seq_file *file, const void *data, u32 bytes) = (void *)127;
static long (*ring_output)(void *ring, void *data, u64 bytes, u64 flags) = (void *)130;
static void *(*ring_reserve)(void *ring, u64 bytes, u64 flags) = (void *)131;
static void (*ring_submit)(void *data, u64 flags) = (void *)132;
static u64 (*ring_query)(void *ring, u64 what) = (void *)134;
static long (*get_task_stack)(struct task_struct *task, void *buffer, u32 bytes, u64 flags) = (void *)141;
static void *(*task_storage)(void *map, struct task_struct *task, void *value, u64 flags) = (void *)156;
static struct task_struct *(*current_task)(void) = (void *)158;
static void *(*task_pt_regs)(struct task_struct *task) = (void *)175;

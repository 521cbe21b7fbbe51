// SPDX-License-Identifier: GPL-2.0
/*
 * Stalls whose size is known, to hold stopgap's answers against: see checks/known-answers/README.md.
 *
 * Each of the two is armed by a parameter; the module does nothing else, and without parameters nothing at all:
 *
 *   walk=1     before a mapping of /dev/stopgap_known is placed, every VMA of the process is looked at, as the search
 *              of Linux before 3.8 did (arch_get_unmapped_area(), mm/mmap.c): beside N mappings N steps.
 *   sleeps=23  a shrinker sleeps for 200 ms, in whatever task reclaims, so many times, and is then done for good.
 *
 * Linux 6.12.
 */

#include <linux/delay.h>
#include <linux/fs.h>
#include <linux/gfp.h>
#include <linux/list_lru.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/sched/mm.h>
#include <linux/shrinker.h>
#include <linux/slab.h>
#include <linux/swap.h>

static bool walk;
module_param(walk, bool, 0444);
MODULE_PARM_DESC(walk, "placing a mapping of the device looks at every VMA of the process");

static uint sleeps;
module_param(sleeps, uint, 0444);
MODULE_PARM_DESC(sleeps, "how many times the shrinker sleeps for 200 ms");

/* By hrtimer: msleep() rounds up to jiffies, and 23 roundings of 4 ms are 2 % of 4.6 s. */
#define SLEEP_US (200 * USEC_PER_MSEC)

/*
 * A. Placement.
 */

static unsigned long known_get_unmapped_area(struct file *file, unsigned long address, unsigned long length,
					     unsigned long pgoff, unsigned long flags)
{
	struct mm_struct *mm = current->mm;
	struct vm_area_struct *vma;
	unsigned long highest = 0;

	if (walk) {
		VMA_ITERATOR(vmi, mm, 0);

		/* The caller holds mmap_lock for writing. */
		for_each_vma(vmi, vma)
			highest = max(highest, READ_ONCE(vma->vm_end));
		if (WARN_ON_ONCE(highest > TASK_SIZE_MAX))
			return -EFAULT;
	}
	return mm_get_unmapped_area(mm, file, address, length, pgoff, flags);
}

/* A page of zeros for each touch, which belongs to the mapping alone and goes with it. */
static vm_fault_t known_fault(struct vm_fault *vmf)
{
	struct page *page = alloc_page(GFP_HIGHUSER | __GFP_ZERO);

	if (!page)
		return VM_FAULT_OOM;
	vmf->page = page;
	return 0;
}

static const struct vm_operations_struct known_vm_ops = {
	.fault = known_fault,
};

static int known_mmap(struct file *file, struct vm_area_struct *vma)
{
	/* VM_DONTEXPAND: neighbours are not merged, so N mappings are N VMAs. */
	vm_flags_set(vma, VM_DONTEXPAND | VM_DONTDUMP);
	vma->vm_ops = &known_vm_ops;
	return 0;
}

/*
 * B. Reclaim.
 *
 * Reclaim in a memory cgroup asks only those shrinkers that have an object in it, which the lists of list_lru say.
 * So the device keeps one object in the cgroup of each task that opens it, for as long as it is open; it is never
 * freed by reclaim, because nothing here is about memory but the time.
 */

struct object {
	struct list_head lru;
};

static struct shrinker *shrinker;
static struct list_lru objects;
static struct kmem_cache *cache;
static atomic_t left;

/*
 * Two objects of no cost (seeks = 0) in batches of one: of those, do_shrink_slab() has one scanned, at any priority.
 * So a call is a sleep, and a sleep is a pair of mm_shrink_slab_start and _end. Where there is nothing to scan it
 * tells of nothing. kswapd is left out: whom it keeps waiting nobody can tell.
 */
static unsigned long known_count(struct shrinker *self, struct shrink_control *sc)
{
	if (current_is_kswapd() || atomic_read(&left) <= 0)
		return 0;
	return 2;
}

static unsigned long known_scan(struct shrinker *self, struct shrink_control *sc)
{
	if (atomic_dec_if_positive(&left) < 0)
		return SHRINK_STOP;
	usleep_range(SLEEP_US, SLEEP_US);
	return 0;
}

static int known_open(struct inode *inode, struct file *file)
{
	struct object *object = kmem_cache_alloc_lru(cache, &objects, GFP_KERNEL_ACCOUNT);

	if (!object)
		return -ENOMEM;
	INIT_LIST_HEAD(&object->lru);
	list_lru_add_obj(&objects, &object->lru);
	file->private_data = object;
	return 0;
}

static int known_release(struct inode *inode, struct file *file)
{
	struct object *object = file->private_data;

	list_lru_del_obj(&objects, &object->lru);
	kmem_cache_free(cache, object);
	return 0;
}

static const struct file_operations known_operations = {
	.owner = THIS_MODULE,
	.open = known_open,
	.release = known_release,
	.mmap = known_mmap,
	.get_unmapped_area = known_get_unmapped_area,
};

static struct miscdevice known_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "stopgap_known",
	.fops = &known_operations,
	.mode = 0666,
};

static int __init known_init(void)
{
	int error = -ENOMEM;

	atomic_set(&left, sleeps);
	cache = KMEM_CACHE(object, SLAB_ACCOUNT);
	if (!cache)
		return error;
	shrinker = shrinker_alloc(SHRINKER_MEMCG_AWARE, "stopgap-known");
	if (!shrinker)
		goto no_shrinker;
	shrinker->count_objects = known_count;
	shrinker->scan_objects = known_scan;
	shrinker->seeks = 0;
	shrinker->batch = 1;
	error = list_lru_init_memcg(&objects, shrinker);
	if (error)
		goto no_list;
	error = misc_register(&known_device);
	if (error)
		goto no_device;
	shrinker_register(shrinker);
	return 0;

no_device:
	list_lru_destroy(&objects);
no_list:
	shrinker_free(shrinker);
no_shrinker:
	kmem_cache_destroy(cache);
	return error;
}

static void __exit known_exit(void)
{
	misc_deregister(&known_device);
	shrinker_free(shrinker);
	list_lru_destroy(&objects);
	kmem_cache_destroy(cache);
}

module_init(known_init);
module_exit(known_exit);
MODULE_DESCRIPTION("Stalls whose size is known");
MODULE_LICENSE("GPL");

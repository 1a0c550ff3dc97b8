// SPDX-License-Identifier: GPL-2.0-only
/*
 * Lab only: does to a device's DMA domain what its driver, or nobody in their
 * right mind, would do. Commands:
 *
 *   mask DEVICE BITS              set its DMA mask
 *   lock DEVICE | unlock DEVICE   hold its device lock in a thread, as a stuck
 *                                 unbind does
 *   raw-map DEVICE START LENGTH   map a range onto itself, unchecked
 *   raw-unmap DEVICE START LENGTH
 *   collide DEVICE START LENGTH   map memory with the DMA API until it hands
 *                                 out an address of the range; then unmap all
 *   stress DEVICE THREADS         map and unmap memory until "stop"
 *   stop
 */
#include <linux/completion.h>
#include <linux/delay.h>
#include <linux/dma-mapping.h>
#include <linux/fs.h>
#include <linux/iommu.h>
#include <linux/kthread.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/random.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/version.h>

#include "lab_common.h"

#define ORDER		8
#define SIZE		(PAGE_SIZE << ORDER)
#define TRIES		2048
/* A block of memory, and how many pages of it a mapping may begin at. */
#define BLOCK		(ORDER + 2)
#define PLACES		((1 << BLOCK) - (1 << ORDER))
#define THREADS		8
/* Nothing is synchronised for memory that is mapped more than once. */
#define AGAIN		(DMA_ATTR_NO_WARN | DMA_ATTR_SKIP_CPU_SYNC)

static DEFINE_MUTEX(lock);
static char answer[160];
static struct pci_dev *stressed;
static struct task_struct *threads[THREADS];
static atomic64_t rounds, failures, wrong;
static struct task_struct *locker;
static DECLARE_COMPLETION(locked);

static int raw_map(struct pci_dev *pdev, u64 start, u64 length, bool add)
{
	struct iommu_domain *domain = iommu_get_domain_for_dev(&pdev->dev);
	const int prot = IOMMU_READ | IOMMU_WRITE | IOMMU_MMIO;

	if (!domain)
		return -ENXIO;
	if (!add)
		return iommu_unmap(domain, start, length) == length ? 0 : -EIO;
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
	return iommu_map(domain, start, start, length, prot, GFP_KERNEL);
#else
	return iommu_map(domain, start, start, length, prot);
#endif
}

/* One block of memory is mapped again and again: only the addresses matter. */
static int collide(struct pci_dev *pdev, u64 start, u64 length)
{
	struct page *page = alloc_pages(GFP_KERNEL, BLOCK);
	dma_addr_t *given = kcalloc(TRIES, sizeof(*given), GFP_KERNEL);
	const char *what = "none";
	u64 lowest = ~0ULL;
	int count = 0;

	while (page && given && count < TRIES) {
		/* Not too often at the same one, for a kernel that counts them. */
		struct page *first = page + count % PLACES;
		dma_addr_t at = dma_map_page_attrs(&pdev->dev, first, 0, SIZE,
						   DMA_BIDIRECTIONAL, AGAIN);

		if (dma_mapping_error(&pdev->dev, at)) {
			what = "error";
			break;
		}
		given[count++] = at;
		lowest = min_t(u64, lowest, at);
		if (at < start + length && start < at + SIZE) {
			what = "overlap";
			break;
		}
	}
	snprintf(answer, sizeof(answer), "%s after %d lowest %#llx\n", what, count, lowest);
	while (given && count--)
		dma_unmap_page_attrs(&pdev->dev, given[count], SIZE,
				     DMA_BIDIRECTIONAL, AGAIN);
	kfree(given);
	if (page)
		__free_pages(page, BLOCK);
	return 0;
}

static int stress(void *data)
{
	struct pci_dev *pdev = data;
	struct iommu_domain *domain = iommu_get_domain_for_dev(&pdev->dev);
	struct page *page = alloc_pages(GFP_KERNEL, ORDER);

	while (page && !kthread_should_stop()) {
		size_t size = PAGE_SIZE << (get_random_u32() % (ORDER + 1));
		dma_addr_t at = dma_map_page(&pdev->dev, page, 0, size, DMA_BIDIRECTIONAL);

		if (dma_mapping_error(&pdev->dev, at)) {
			atomic64_inc(&failures);
		} else {
			if (iommu_iova_to_phys(domain, at) != page_to_phys(page))
				atomic64_inc(&wrong);
			dma_unmap_page(&pdev->dev, at, size, DMA_BIDIRECTIONAL);
		}
		atomic64_inc(&rounds);
		cond_resched();
	}
	if (page)
		__free_pages(page, ORDER);
	while (!kthread_should_stop())
		msleep(10);
	return 0;
}

static int stop(void)
{
	int i;

	for (i = 0; i < THREADS; i++) {
		if (threads[i])
			kthread_stop(threads[i]);
		threads[i] = NULL;
	}
	pci_dev_put(stressed);
	stressed = NULL;
	snprintf(answer, sizeof(answer), "rounds %lld failures %lld wrong %lld\n",
		 atomic64_read(&rounds), atomic64_read(&failures), atomic64_read(&wrong));
	return 0;
}

static int start_stress(struct pci_dev *pdev, u64 count)
{
	u64 i;

	if (stressed || !count || count > THREADS)
		return -EINVAL;
	stressed = pci_dev_get(pdev);
	atomic64_set(&rounds, 0);
	atomic64_set(&failures, 0);
	atomic64_set(&wrong, 0);
	for (i = 0; i < count; i++) {
		threads[i] = kthread_run(stress, pdev, "lab-stress");
		if (IS_ERR(threads[i])) {
			threads[i] = NULL;
			stop();
			return -ENOMEM;
		}
	}
	return 0;
}

/* A task must not go back to user space with a lock, so a thread holds it. */
static int hold_lock(void *data)
{
	struct pci_dev *pdev = data;

	device_lock(&pdev->dev);
	complete(&locked);
	while (!kthread_should_stop())
		msleep(10);
	device_unlock(&pdev->dev);
	return 0;
}

static int take_lock(struct pci_dev *pdev)
{
	struct task_struct *task;

	if (locker)
		return -EBUSY;
	reinit_completion(&locked);
	task = kthread_run(hold_lock, pdev, "lab-lock");
	if (IS_ERR(task))
		return PTR_ERR(task);
	wait_for_completion(&locked);
	locker = task;
	return 0;
}

static int give_lock(void)
{
	if (!locker)
		return -EINVAL;
	kthread_stop(locker);
	locker = NULL;
	return 0;
}

static int on_device(const char *verb, char *line)
{
	struct pci_dev *pdev = lab_device(strsep(&line, " "));
	u64 first = 0, second = 0;
	int error = 0;

	if (!pdev)
		return -ENODEV;
	if (line && sscanf(line, "%lli %lli", &first, &second) < 1)
		error = -EINVAL;
	else if (!strcmp(verb, "mask"))
		error = dma_set_mask(&pdev->dev, DMA_BIT_MASK(first));
	else if (!strcmp(verb, "lock"))
		error = take_lock(pdev);
	else if (!strcmp(verb, "unlock"))
		error = give_lock();
	else if (!strcmp(verb, "raw-map"))
		error = raw_map(pdev, first, second, true);
	else if (!strcmp(verb, "raw-unmap"))
		error = raw_map(pdev, first, second, false);
	else if (!strcmp(verb, "collide"))
		error = collide(pdev, first, second);
	else if (!strcmp(verb, "stress"))
		error = start_stress(pdev, first);
	else
		error = -EINVAL;
	pci_dev_put(pdev);
	return error;
}

static ssize_t dma_write(struct file *file, const char __user *buffer,
			 size_t count, loff_t *position)
{
	char *text = memdup_user_nul(buffer, min_t(size_t, count, 256));
	char *line, *verb;
	int error;

	if (IS_ERR(text))
		return PTR_ERR(text);
	mutex_lock(&lock);
	line = strim(text);
	verb = strsep(&line, " ");
	error = strcmp(verb, "stop") ? on_device(verb, line) : stop();
	mutex_unlock(&lock);
	kfree(text);
	return error ? error : count;
}

static ssize_t dma_read(struct file *file, char __user *buffer, size_t count,
			loff_t *position)
{
	return simple_read_from_buffer(buffer, count, position, answer, strlen(answer));
}

static const struct file_operations operations = {
	.owner = THIS_MODULE,
	.read = dma_read,
	.write = dma_write,
};

static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "lab-dma",
	.mode = 0600,
	.fops = &operations,
};

static int __init lab_dma_init(void)
{
	return misc_register(&device);
}

static void __exit lab_dma_exit(void)
{
	misc_deregister(&device);
	give_lock();
	stop();
}

module_init(lab_dma_init);
module_exit(lab_dma_exit);

MODULE_DESCRIPTION("Lab only: uses and abuses a device's DMA domain");
MODULE_LICENSE("GPL");

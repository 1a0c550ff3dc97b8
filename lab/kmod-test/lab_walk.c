// SPDX-License-Identifier: GPL-2.0-only
/*
 * Lab only: counts what is mapped in a device's IOMMU domain. Write
 * "DEVICE START LENGTH"; reading gives the pages that translate, and how many
 * of them to themselves.
 */
#include <linux/fs.h>
#include <linux/iommu.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "lab_common.h"

static DEFINE_MUTEX(lock);
static char answer[128];

static int walk(char *line)
{
	struct iommu_domain *domain;
	struct pci_dev *pdev;
	u64 start, length, at, mapped = 0, same = 0;

	pdev = lab_device(strsep(&line, " "));
	if (!pdev)
		return -ENODEV;
	if (!line || sscanf(line, "%lli %lli", &start, &length) != 2) {
		pci_dev_put(pdev);
		return -EINVAL;
	}
	domain = iommu_get_domain_for_dev(&pdev->dev);
	for (at = start; domain && at < start + length; at += PAGE_SIZE) {
		phys_addr_t found = iommu_iova_to_phys(domain, at);

		mapped += found != 0;
		same += found == at;
		if (!(at & 0xffffff))
			cond_resched();
	}
	snprintf(answer, sizeof(answer), "mapped %llu same %llu\n", mapped, same);
	pci_dev_put(pdev);
	return 0;
}

static ssize_t walk_write(struct file *file, const char __user *buffer,
			  size_t count, loff_t *position)
{
	char *line = memdup_user_nul(buffer, min_t(size_t, count, 256));
	int error;

	if (IS_ERR(line))
		return PTR_ERR(line);
	mutex_lock(&lock);
	error = walk(strim(line));
	mutex_unlock(&lock);
	kfree(line);
	return error ? error : count;
}

static ssize_t walk_read(struct file *file, char __user *buffer, size_t count,
			 loff_t *position)
{
	return simple_read_from_buffer(buffer, count, position, answer, strlen(answer));
}

static const struct file_operations operations = {
	.owner = THIS_MODULE,
	.read = walk_read,
	.write = walk_write,
};

static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "lab-walk",
	.mode = 0600,
	.fops = &operations,
};
module_misc_device(device);

MODULE_DESCRIPTION("Lab only: counts what is mapped in a device's IOMMU domain");
MODULE_LICENSE("GPL");

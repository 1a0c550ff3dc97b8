// SPDX-License-Identifier: GPL-2.0-only
/*
 * A driver whose boards do not come up under an identity domain: what some GPUs do that fetch their
 * firmware by DMA, on a kernel that says so itself. It takes a device only by driver_override.
 */
#include <linux/iommu.h>
#include <linux/module.h>
#include <linux/pci.h>

static int lab_board_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct iommu_domain *domain = iommu_get_domain_for_dev(&pdev->dev);

	return domain && domain->type == IOMMU_DOMAIN_IDENTITY ? -EIO : 0;
}

static void lab_board_remove(struct pci_dev *pdev)
{
}

static struct pci_driver lab_board_driver = {
	.name = "lab_board",
	.probe = lab_board_probe,
	.remove = lab_board_remove,
};
module_pci_driver(lab_board_driver);

MODULE_DESCRIPTION("Boards that fail under an identity domain");
MODULE_LICENSE("GPL");

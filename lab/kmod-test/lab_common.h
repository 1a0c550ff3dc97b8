/* SPDX-License-Identifier: GPL-2.0-only */
/* What the two modules of the lab share. They are for emulated machines only. */
#ifndef LAB_COMMON_H
#define LAB_COMMON_H

#include <linux/pci.h>

/* The device of a name such as 0000:01:00.0, with a reference; or NULL. */
static inline struct pci_dev *lab_device(const char *name)
{
	unsigned int segment, bus, slot, function;

	if (!name || sscanf(name, "%x:%x:%x.%x", &segment, &bus, &slot, &function) != 4)
		return NULL;
	return pci_get_domain_bus_and_slot(segment, bus, PCI_DEVFN(slot, function));
}

#endif

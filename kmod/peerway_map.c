// SPDX-License-Identifier: GPL-2.0-only
/*
 * Peer map: one-to-one entries for the memory BARs of named peers in the
 * translating DMA domain of a requester, so that raw bus addresses which the
 * requester's driver hands to it reach those peers, and nothing else.
 *
 * What keeps it safe, in one place:
 *
 * - Lock order: device locks (of requester and target, by trylock only), then
 *   map_lock, then whatever the IOMMU core takes.
 * - An entry exists only while a kernel driver that uses the DMA API is bound
 *   to its requester. The IOMMU core gives the group of such a device no other
 *   domain, and frees none. Unbinding and removal are announced on the PCI bus
 *   notifier, under the device lock and before the core may act on them; the
 *   entries go there. So the domain pointer of a live entry is valid under
 *   map_lock, and no other is kept.
 * - Each live entry pins the module.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/bitops.h>
#include <linux/capability.h>
#include <linux/device.h>
#include <linux/dma-mapping.h>
#include <linux/fs.h>
#include <linux/iommu.h>
#include <linux/kernel.h>
#include <linux/list.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/overflow.h>
#include <linux/pci.h>
#include <linux/proc_fs.h>
#include <linux/sched.h>
#include <linux/seq_file.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <linux/version.h>

/* Version of the text that is written to and read from the device. */
#define PEERWAY_MAP_INTERFACE	1

#define MAX_COMMAND		1024
#define MAX_ENTRIES		1024
#define MAX_MEMBERS		32
/* Pages looked up between two chances for others to run. */
#define PAGES_PER_TURN		8192
/*
 * Addresses from 4 GiB on are handed out downwards from the top of the
 * requester's mask, as far down as it has memory mapped at once. No less than
 * this is left free, and no less than MARGIN_MEMORIES times the memory.
 */
#define MARGIN_LEAST		SZ_64G
#define MARGIN_MEMORIES		4

#ifndef SZ_64G
#define SZ_64G			_AC(0x1000000000, ULL)
#endif

/* An open file. */
struct session {
	/* Entries made through this file go when it is closed. */
	bool hold;
};

struct entry {
	struct list_head list;
	struct pci_dev *requester;
	struct pci_dev *target;
	struct iommu_domain *domain;
	const struct session *holder;
	u64 offset;
	u64 length;
	/* Bus address, physical address and address in the domain alike. */
	u64 start;
	/* Where the DMA API stops for the requester; a change is a hazard. */
	u64 top;
	int bar;
};

/* A command, parsed. */
struct request {
	struct pci_dev *requester;
	struct pci_dev *target;
	u64 offset;
	u64 length;
	int bar;
	unsigned int named;
	/* Addresses of the requester's group members: segment, bus and devfn. */
	u32 members[MAX_MEMBERS];
};

static DEFINE_MUTEX(map_lock);
static LIST_HEAD(entries);
static unsigned int entry_count;
static u64 dropped_count;
static u64 lost_count;
/* The last command's outcome, for people. */
static u64 last_number;
static int last_error;
static const char *last_code = "none";
static const char *last_text = "nothing was asked yet";

static int outcome(int error, const char *code, const char *text)
{
	lockdep_assert_held(&map_lock);
	last_error = error;
	last_code = code;
	last_text = text;
	return error;
}

static u32 address_of(const struct pci_dev *pdev)
{
	return (u32)pci_domain_nr(pdev->bus) << 16 |
	       PCI_DEVID(pdev->bus->number, pdev->devfn);
}

/* --- The entries of a domain ------------------------------------------- */

/*
 * How many bytes from @iova on translate to themselves, up to @length; or,
 * with @mapped false, how many do not translate at all.
 */
static u64 run_length(struct iommu_domain *domain, u64 iova, u64 length,
		      bool mapped)
{
	unsigned int turn = 0;
	u64 done;

	for (done = 0; done < length; done += PAGE_SIZE) {
		phys_addr_t found = iommu_iova_to_phys(domain, iova + done);

		if (found != (mapped ? iova + done : 0))
			break;
		if (++turn == PAGES_PER_TURN) {
			turn = 0;
			cond_resched();
		}
	}
	return done;
}

/*
 * Undoes the pages that still are ours. A page that somebody else mapped over
 * ours belongs to them: it is left alone and counted as lost.
 */
static void remove_pages(struct iommu_domain *domain, u64 start, u64 length)
{
	u64 done = 0, lost = 0;

	while (done < length) {
		u64 ours = run_length(domain, start + done, length - done, true);

		if (ours) {
			size_t gone = iommu_unmap(domain, start + done, ours);

			if (gone != ours) {
				pr_err("%#llx bytes at %#llx were to go, %#zx went\n",
				       ours, start + done, gone);
				lost += ours - gone;
			}
			done += ours;
		} else {
			lost += PAGE_SIZE;
			done += PAGE_SIZE;
		}
	}
	if (lost) {
		lost_count++;
		pr_warn("%#llx of %#llx bytes at %#llx were no longer ours\n",
			lost, length, start);
	}
}

static void drop(struct entry *entry)
{
	lockdep_assert_held(&map_lock);
	remove_pages(entry->domain, entry->start, entry->length);
	list_del(&entry->list);
	entry_count--;
	pci_dev_put(entry->requester);
	pci_dev_put(entry->target);
	kfree(entry);
	module_put(THIS_MODULE);
}

/* --- Checks -------------------------------------------------------------- */

/* Both device locks and map_lock are held. */
static int check_device(struct pci_dev *pdev)
{
	struct iommu_group *group;
	bool owned;

	if (pdev->hdr_type != PCI_HEADER_TYPE_NORMAL)
		return outcome(-EPROTOTYPE, "not-an-endpoint",
			       "requester and target must be endpoints, not bridges");
	if (!pdev->dev.driver)
		return outcome(-ENOTCONN, "unbound",
			       "requester and target must be bound to a kernel driver");
	if (to_pci_driver(pdev->dev.driver)->driver_managed_dma)
		return outcome(-EBUSY, "user-space-driver",
			       "the driver gives the device to user space or a guest, as vfio-pci does");
	group = iommu_group_get(&pdev->dev);
	if (!group)
		return outcome(-ENXIO, "no-group",
			       "the device is in no IOMMU group: nothing translates for it");
	/*
	 * A bound driver that uses the DMA API owns its group, which keeps user
	 * space from it and the group's domain alive. Ours rests on that.
	 */
	owned = iommu_group_dma_owner_claimed(group);
	iommu_group_put(group);
	if (!owned)
		return outcome(-EBUSY, "not-owned",
			       "the driver does not own the device's IOMMU group");
	return 0;
}

static int check_member(struct device *dev, void *data)
{
	const struct request *request = data;
	struct pci_dev *pdev;
	unsigned int i;

	if (!dev_is_pci(dev))
		return -EUSERS;
	pdev = to_pci_dev(dev);
	for (i = 0; i < request->named; i++)
		if (request->members[i] == address_of(pdev))
			return 0;
	return -EUSERS;
}

static bool overlaps(u64 start, u64 end, u64 other_start, u64 other_end)
{
	return start <= other_end && other_start <= end;
}

/* All members of the requester's group gain the entry, so all are looked at. */
static int check_group(const struct request *request, u64 start, u64 end)
{
	struct iommu_resv_region *region, *next;
	struct iommu_group *group;
	LIST_HEAD(regions);
	bool reserved = false;
	int error;

	group = iommu_group_get(&request->requester->dev);
	if (!group)
		return outcome(-ENXIO, "no-group",
			       "the requester is in no IOMMU group: nothing translates for it");
	error = iommu_group_for_each_dev(group, (void *)request, check_member);
	if (error) {
		iommu_group_put(group);
		return outcome(error, "group-member-not-named",
			       "another device of the requester's IOMMU group would gain the entry and was not named");
	}
	error = iommu_get_group_resv_regions(group, &regions);
	list_for_each_entry_safe(region, next, &regions, list) {
		if (region->length &&
		    overlaps(start, end, region->start,
			     region->start + region->length - 1))
			reserved = true;
		kfree(region);
	}
	iommu_group_put(group);
	if (error)
		return outcome(-EIO, "reserved-unknown",
			       "the reserved regions of the requester's group cannot be read");
	if (reserved)
		return outcome(-ENOTEMPTY, "reserved",
			       "the range overlaps a reserved region of the requester's group");
	return 0;
}

/*
 * Whether the DMA API never hands a range out since it lies in a memory window
 * of the requester's own host bridge (iova_reserve_pci_windows() in
 * drivers/iommu/dma-iommu.c).
 */
static bool in_own_window(struct pci_dev *requester, u64 start, u64 end)
{
	struct pci_host_bridge *bridge = pci_find_host_bridge(requester->bus);
	struct resource_entry *window;

	resource_list_for_each_entry(window, &bridge->windows) {
		if (resource_type(window->res) != IORESOURCE_MEM)
			continue;
		if (start >= window->res->start - window->offset &&
		    end <= window->res->end - window->offset)
			return true;
	}
	return false;
}

/* The highest address that the DMA API may hand out for a device. */
static u64 top_of(struct pci_dev *requester, struct iommu_domain *domain)
{
	u64 top = dma_get_mask(&requester->dev);

	if (requester->dev.bus_dma_limit)
		top = min(top, requester->dev.bus_dma_limit);
	return min_t(u64, top, domain->geometry.aperture_end);
}

/* Whether the DMA API might hand out an address of the range. */
static int check_place(struct pci_dev *requester, struct iommu_domain *domain,
		       u64 start, u64 end)
{
	u64 top = top_of(requester, domain);
	u64 memory = (u64)totalram_pages() << PAGE_SHIFT;
	u64 margin = max_t(u64, MARGIN_LEAST, MARGIN_MEMORIES * memory);

	if (start < domain->geometry.aperture_start ||
	    end > domain->geometry.aperture_end)
		return outcome(-EDOM, "outside-aperture",
			       "the IOMMU domain does not reach that far");
	if (in_own_window(requester, start, end))
		return 0;
	if (start < SZ_4G)
		return outcome(-EADDRNOTAVAIL, "below-4g",
			       "below 4 GiB and outside the requester's own host bridge the DMA API may hand out these addresses");
	if (start > top)
		return 0;
	if (end > top || top - end < margin)
		return outcome(-EOVERFLOW, "near-the-top",
			       "too near the top of the requester's DMA mask, where the DMA API hands out addresses");
	return 0;
}

/* Where the range lies; or a refusal. */
static int check_bar(const struct request *request, u64 *start)
{
	struct pci_dev *target = request->target;
	unsigned long flags;
	u64 end, size;

	if (request->bar < 0 || request->bar >= PCI_STD_NUM_BARS)
		return outcome(-EBADSLT, "not-a-bar", "BARs are numbered from 0 to 5");
	flags = pci_resource_flags(target, request->bar);
	size = pci_resource_len(target, request->bar);
	if (!(flags & IORESOURCE_MEM) || !size ||
	    flags & (IORESOURCE_UNSET | IORESOURCE_DISABLED))
		return outcome(-EBADSLT, "not-memory",
			       "the target has no assigned memory BAR of that number");
	*start = pci_resource_start(target, request->bar);
	if (pci_bus_address(target, request->bar) != *start)
		return outcome(-EREMCHG, "bus-address-differs",
			       "the BAR's bus address is not its physical address");
	if (!request->length || !PAGE_ALIGNED(request->offset) ||
	    !PAGE_ALIGNED(request->length) || !PAGE_ALIGNED(*start))
		return outcome(-EBADR, "not-whole-pages",
			       "offset and length must be whole pages, and not nothing");
	if (check_add_overflow(request->offset, request->length, &end) ||
	    end > size)
		return outcome(-ERANGE, "outside-the-bar",
			       "offset and length reach beyond the BAR");
	*start += request->offset;
	return 0;
}

static int check_domain(const struct iommu_domain *domain)
{
	if (!domain)
		return outcome(-ENXIO, "no-domain",
			       "the requester has no IOMMU domain: nothing translates for it");
	if (!(domain->type & __IOMMU_DOMAIN_PAGING) ||
	    !(domain->type & __IOMMU_DOMAIN_DMA_API))
		return outcome(-EOPNOTSUPP, "not-translating",
			       "the requester's domain is not one that translates for the DMA API (identity, blocked or a driver's own)");
	if (!(domain->pgsize_bitmap & PAGE_SIZE))
		return outcome(-EOPNOTSUPP, "page-size",
			       "the IOMMU does not map single pages of the processor's size");
	return 0;
}

/* --- Commands ------------------------------------------------------------ */

static struct entry *find(const struct request *request)
{
	struct entry *entry;

	list_for_each_entry(entry, &entries, list)
		if (entry->requester == request->requester &&
		    entry->target == request->target &&
		    entry->bar == request->bar &&
		    entry->offset == request->offset &&
		    entry->length == request->length)
			return entry;
	return NULL;
}

static int map_pages(struct iommu_domain *domain, u64 start, u64 length)
{
	const int prot = IOMMU_READ | IOMMU_WRITE | IOMMU_MMIO;

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
	return iommu_map(domain, start, start, length, prot, GFP_KERNEL);
#else
	return iommu_map(domain, start, start, length, prot);
#endif
}

static int create(const struct request *request, u64 start,
		  struct iommu_domain *domain, const struct session *holder)
{
	struct entry *entry;
	int error;

	if (entry_count >= MAX_ENTRIES)
		return outcome(-ENOSPC, "too-many", "no more entries are held");
	entry = kzalloc(sizeof(*entry), GFP_KERNEL);
	if (!entry)
		return outcome(-ENOMEM, "no-memory", "no memory for the entry");
	/* The open file holds a reference, so that this one cannot fail. */
	__module_get(THIS_MODULE);
	error = map_pages(domain, start, request->length);
	if (error) {
		module_put(THIS_MODULE);
		kfree(entry);
		return outcome(error, "iommu-map-failed", "the IOMMU driver did not map it");
	}
	entry->requester = pci_dev_get(request->requester);
	entry->target = pci_dev_get(request->target);
	entry->domain = domain;
	entry->holder = holder->hold ? holder : NULL;
	entry->offset = request->offset;
	entry->length = request->length;
	entry->start = start;
	entry->top = top_of(request->requester, domain);
	entry->bar = request->bar;
	list_add_tail(&entry->list, &entries);
	entry_count++;
	return outcome(0, "mapped", "the entry was made");
}

/* Both device locks and map_lock are held. */
static int map_locked(const struct request *request, const struct session *holder)
{
	struct iommu_domain *domain;
	u64 start;
	int error;

	error = check_device(request->requester);
	if (!error)
		error = check_device(request->target);
	if (!error)
		error = check_bar(request, &start);
	if (error)
		return error;
	domain = iommu_get_domain_for_dev(&request->requester->dev);
	error = check_domain(domain);
	if (!error && request->requester->untrusted)
		error = outcome(-EKEYREJECTED, "untrusted",
				"the requester is an external device that the kernel does not trust");
	if (!error)
		error = check_group(request, start, start + request->length - 1);
	if (!error)
		error = check_place(request->requester, domain, start,
				    start + request->length - 1);
	if (error)
		return error;
	if (find(request))
		return outcome(-EEXIST, "exists", "this very entry is there already");
	if (run_length(domain, start, request->length, false) != request->length)
		return outcome(-EADDRINUSE, "already-mapped",
			       "a page of the range is mapped already");
	return create(request, start, domain, holder);
}

static int map(const struct request *request, const struct session *holder)
{
	int error;

	/* Never a blocking lock: a stuck unbind may hold it for ever. */
	if (!device_trylock(&request->requester->dev))
		goto busy;
	if (!device_trylock(&request->target->dev)) {
		device_unlock(&request->requester->dev);
		goto busy;
	}
	mutex_lock(&map_lock);
	error = map_locked(request, holder);
	mutex_unlock(&map_lock);
	device_unlock(&request->target->dev);
	device_unlock(&request->requester->dev);
	return error;
busy:
	mutex_lock(&map_lock);
	error = outcome(-EAGAIN, "device-busy",
			"somebody works on one of the two devices; try again");
	mutex_unlock(&map_lock);
	return error;
}

static int unmap(const struct request *request)
{
	struct entry *entry;
	int error;

	mutex_lock(&map_lock);
	entry = find(request);
	if (entry) {
		drop(entry);
		error = outcome(0, "unmapped", "the entry is gone");
	} else {
		error = outcome(-ENOENT, "no-such-entry", "there is no such entry");
	}
	mutex_unlock(&map_lock);
	return error;
}

static int clear(void)
{
	struct entry *entry, *next;

	mutex_lock(&map_lock);
	list_for_each_entry_safe(entry, next, &entries, list)
		drop(entry);
	outcome(0, "cleared", "no entry is left");
	mutex_unlock(&map_lock);
	return 0;
}

/* Whether an entry is what it was when it was made. */
static const char *state_of(const struct entry *entry, bool every_page)
{
	u64 bar = pci_resource_start(entry->target, entry->bar);
	u64 last = entry->start + entry->length - PAGE_SIZE;

	if (bar + entry->offset != entry->start ||
	    pci_bus_address(entry->target, entry->bar) != bar)
		return "bar-moved";
	if (iommu_get_domain_for_dev(&entry->requester->dev) != entry->domain)
		return "domain-changed";
	if (top_of(entry->requester, entry->domain) != entry->top)
		return "mask-changed";
	if (every_page) {
		if (run_length(entry->domain, entry->start, entry->length, true) !=
		    entry->length)
			return "lost";
	} else if (run_length(entry->domain, entry->start, PAGE_SIZE, true) != PAGE_SIZE ||
		   run_length(entry->domain, last, PAGE_SIZE, true) != PAGE_SIZE) {
		return "lost";
	}
	return "ok";
}

static int verify(void)
{
	struct entry *entry;
	int error = 0;

	mutex_lock(&map_lock);
	outcome(0, "verified", "every page of every entry is what it should be");
	list_for_each_entry(entry, &entries, list) {
		const char *state = state_of(entry, true);

		if (strcmp(state, "ok"))
			error = outcome(-EIO, state,
					"an entry is not what it was when it was made");
	}
	mutex_unlock(&map_lock);
	return error;
}

/* --- The interface --------------------------------------------------------- */

static int refuse(int error, const char *code, const char *text)
{
	mutex_lock(&map_lock);
	outcome(error, code, text);
	mutex_unlock(&map_lock);
	return error;
}

static int parse_address(char **line, u32 *address)
{
	unsigned int segment, bus, slot, function;
	char *word = strsep(line, " ");
	char rest;

	/* Exactly as it is printed: one spelling for one device. */
	if (!word || strlen(word) != strlen("0000:00:00.0") ||
	    sscanf(word, "%4x:%2x:%2x.%1x%c", &segment, &bus, &slot, &function,
		   &rest) != 4 || slot > 0x1f || function > 7)
		return -EINVAL;
	*address = segment << 16 | PCI_DEVID(bus, PCI_DEVFN(slot, function));
	return 0;
}

static int parse_number(char **line, u64 *number)
{
	char *word = strsep(line, " ");

	return word ? kstrtou64(word, 0, number) : -EINVAL;
}

static struct pci_dev *find_device(u32 address)
{
	return pci_get_domain_bus_and_slot(address >> 16, address >> 8 & 0xff,
					   address & 0xff);
}

/* Fills all but the devices. */
static int parse(char *line, struct request *request, u32 *target)
{
	u64 bar;

	if (parse_address(&line, &request->members[0]) ||
	    parse_address(&line, target) || parse_number(&line, &bar) ||
	    parse_number(&line, &request->offset) ||
	    parse_number(&line, &request->length))
		return -EINVAL;
	request->bar = bar < PCI_STD_NUM_BARS ? (int)bar : -1;
	for (request->named = 1; line; request->named++) {
		if (request->named == MAX_MEMBERS)
			return -E2BIG;
		if (parse_address(&line, &request->members[request->named]))
			return -EINVAL;
	}
	return 0;
}

static int on_pair(char *line, bool add, const struct session *session)
{
	struct request *request;
	u32 target = 0;
	int error;

	request = kzalloc(sizeof(*request), GFP_KERNEL);
	if (!request)
		return refuse(-ENOMEM, "no-memory", "no memory for the command");
	error = parse(line, request, &target);
	if (error) {
		error = refuse(error, "syntax",
			       "map|unmap REQUESTER TARGET BAR OFFSET LENGTH [MEMBER...]");
		goto out;
	}
	if (request->members[0] == target) {
		error = refuse(-ELOOP, "same-device",
			       "requester and target are the same device");
		goto out;
	}
	if (request->members[0] >> 16 != target >> 16) {
		error = refuse(-EXDEV, "other-segment",
			       "requester and target are on different PCI segments");
		goto out;
	}
	request->requester = find_device(request->members[0]);
	request->target = find_device(target);
	if (!request->requester || !request->target)
		error = refuse(-ENODEV, "no-such-device",
			       "requester or target does not exist");
	else if (add)
		error = map(request, session);
	else
		error = unmap(request);
	pci_dev_put(request->requester);
	pci_dev_put(request->target);
out:
	kfree(request);
	return error;
}

static int carry_out(char *line, struct session *session)
{
	char *verb;

	line = strim(line);
	verb = strsep(&line, " ");
	if (line && !strcmp(verb, "map"))
		return on_pair(line, true, session);
	if (line && !strcmp(verb, "unmap"))
		return on_pair(line, false, session);
	if (!line && !strcmp(verb, "clear"))
		return clear();
	if (!line && !strcmp(verb, "verify"))
		return verify();
	if (!line && !strcmp(verb, "hold")) {
		session->hold = true;
		return refuse(0, "held", "entries made through this file go with it");
	}
	return refuse(-EINVAL, "syntax",
		      "commands are map, unmap, clear, verify and hold");
}

static bool permitted(void)
{
	/* In the initial user namespace: uid 0 of a container is not enough. */
	return ns_capable(&init_user_ns, CAP_SYS_ADMIN) &&
	       ns_capable(&init_user_ns, CAP_SYS_RAWIO);
}

/* One command a write; it was carried out if and only if all was written. */
static ssize_t map_write(struct file *file, const char __user *buffer,
			 size_t count, loff_t *position)
{
	struct session *session = ((struct seq_file *)file->private_data)->private;
	char *line;
	int error;

	if (!permitted())
		return -EPERM;
	if (count > MAX_COMMAND)
		return refuse(-E2BIG, "too-long", "a command has at most 1024 bytes");
	line = memdup_user_nul(buffer, count);
	if (IS_ERR(line))
		return PTR_ERR(line);
	/* A command ends where its text does. */
	error = strlen(line) == count ? carry_out(line, session) :
		refuse(-EINVAL, "syntax", "a command has no zero bytes");
	kfree(line);
	mutex_lock(&map_lock);
	last_number++;
	mutex_unlock(&map_lock);
	return error ? error : count;
}

static int map_show(struct seq_file *out, void *unused)
{
	struct entry *entry;

	mutex_lock(&map_lock);
	seq_printf(out, "peerway-map %d\n", PEERWAY_MAP_INTERFACE);
	seq_printf(out, "entries %u dropped %llu lost %llu\n", entry_count,
		   dropped_count, lost_count);
	seq_printf(out, "last %llu %s %d %s\n", last_number, last_code,
		   -last_error, last_text);
	list_for_each_entry(entry, &entries, list)
		seq_printf(out, "entry %s %s %d %#llx %#llx at %#llx %s%s%s\n",
			   pci_name(entry->requester), pci_name(entry->target),
			   entry->bar, entry->offset, entry->length, entry->start,
			   state_of(entry, false), entry->holder ? " held" : "",
			   entry->requester->ats_enabled ? " ats" : "");
	mutex_unlock(&map_lock);
	return 0;
}

static int map_open(struct inode *inode, struct file *file)
{
	struct session *session;
	int error;

	if (!permitted())
		return -EPERM;
	session = kzalloc(sizeof(*session), GFP_KERNEL);
	if (!session)
		return -ENOMEM;
	/* The misc device left itself there; a sequence file wants it empty. */
	file->private_data = NULL;
	error = single_open(file, map_show, session);
	if (error)
		kfree(session);
	return error;
}

static int map_release(struct inode *inode, struct file *file)
{
	struct session *session = ((struct seq_file *)file->private_data)->private;
	struct entry *entry, *next;

	mutex_lock(&map_lock);
	list_for_each_entry_safe(entry, next, &entries, list) {
		if (entry->holder == session) {
			drop(entry);
			dropped_count++;
		}
	}
	mutex_unlock(&map_lock);
	kfree(session);
	return single_release(inode, file);
}

static const struct file_operations map_operations = {
	.owner = THIS_MODULE,
	.open = map_open,
	.read = seq_read,
	.write = map_write,
	.llseek = seq_lseek,
	.release = map_release,
};

static struct miscdevice map_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "peerway-map",
	.mode = 0600,
	.fops = &map_operations,
};

/* --- Unbinding and removal ----------------------------------------------- */

static int bus_event(struct notifier_block *block, unsigned long event, void *data)
{
	struct entry *entry, *next;
	struct device *dev = data;

	/* The IOMMU core acts after the first two, at the last one at the latest. */
	if (event != BUS_NOTIFY_UNBIND_DRIVER && event != BUS_NOTIFY_DEL_DEVICE &&
	    event != BUS_NOTIFY_REMOVED_DEVICE)
		return NOTIFY_DONE;
	mutex_lock(&map_lock);
	list_for_each_entry_safe(entry, next, &entries, list) {
		if (&entry->requester->dev == dev || &entry->target->dev == dev) {
			pr_info("%s goes; so does its entry %s to %s at %#llx\n",
				dev_name(dev), pci_name(entry->requester),
				pci_name(entry->target), entry->start);
			drop(entry);
			dropped_count++;
		}
	}
	mutex_unlock(&map_lock);
	return NOTIFY_DONE;
}

static struct notifier_block bus_block = {
	.notifier_call = bus_event,
	/* Before the IOMMU core's own. */
	.priority = INT_MAX,
};

static int __init peerway_map_init(void)
{
	int error;

	error = bus_register_notifier(&pci_bus_type, &bus_block);
	if (error)
		return error;
	error = misc_register(&map_device);
	if (error)
		goto unregister;
	/* For readers that may look but not change anything. */
	if (!proc_create_single("peerway-map", 0400, NULL, map_show)) {
		error = -ENOMEM;
		goto deregister;
	}
	return 0;

deregister:
	misc_deregister(&map_device);
unregister:
	bus_unregister_notifier(&pci_bus_type, &bus_block);
	return error;
}

static void __exit peerway_map_exit(void)
{
	remove_proc_entry("peerway-map", NULL);
	misc_deregister(&map_device);
	/* None is left unless the module was forced out. */
	clear();
	bus_unregister_notifier(&pci_bus_type, &bus_block);
}

module_init(peerway_map_init);
module_exit(peerway_map_exit);

MODULE_DESCRIPTION("One-to-one IOMMU entries for the memory BARs of named peers");
MODULE_AUTHOR("The Peerway developers");
MODULE_LICENSE("GPL");
MODULE_VERSION("0.1.0");

//! The state of firmware settings, as far as Linux shows it.

use super::firmware_menu::Detector;
use super::support;
use crate::diagnose::finding::device_file;
use crate::judge::reach::address_bits;
use crate::observed::Observed;
use crate::snapshot::Snapshot;
use crate::snapshot::iommu::IommuUnit;
use crate::snapshot::kernel::Tristate;
use crate::snapshot::pci::{PciDevice, PortType};

const IVRS: &str = "/sys/firmware/acpi/tables/IVRS";
const DMAR: &str = "/sys/firmware/acpi/tables/DMAR";
const FLAGS: &str = "/proc/cpuinfo (flags)";
const FEATURES: &str = "/sys/class/iommu/*/amd-iommu/features";
const LOG: &str = "kernel log";

/// Sources with the state that each shows; none where nothing can be said.
pub(super) fn read(snapshot: &Snapshot, detector: Detector) -> Vec<(String, String)> {
    let one = |source: &str, state: String| vec![(source.to_owned(), state)];
    match detector {
        Detector::Iommu => one("/sys/class/iommu", units(snapshot)),
        Detector::PreBootProtection => {
            one(IVRS, unverified(flag(&snapshot.firmware.ivrs, |it| it.dma_remap)))
        }
        Detector::RootPortAcs => one("root ports (configuration space)", root_ports(snapshot)),
        Detector::MemoryEncryption => one(FLAGS, memory_encryption(snapshot)),
        Detector::TransparentEncryption => one(
            LOG,
            logged(snapshot, &["psp: TSME enabled", "Both TSME and SME are active"])
                .unwrap_or_else(|| "not reported, which does not mean off".to_owned()),
        ),
        Detector::IommuSnp => {
            one(FEATURES, unverified(all_units(snapshot, IommuUnit::snp_capable)))
        }
        Detector::SnpPageModeZero => {
            one(FEATURES, all_units(snapshot, IommuUnit::snp_page_mode_zero))
        }
        Detector::ReverseMap => {
            let line =
                logged(snapshot, &["RMP"]).unwrap_or_else(|| "no line about it seen".to_owned());
            let mut all = one(LOG, line);
            all.extend(covered(snapshot).map(|state| ("RMP lines and regions".to_owned(), state)));
            all
        }
        Detector::AsidLimit => one(
            LOG,
            logged(snapshot, &["SEV-SNP enabled (ASIDs"])
                .or_else(|| logged(snapshot, &["(ASIDs"]))
                .unwrap_or_else(|| "no line about it seen".to_owned()),
        ),
        Detector::Above4g => regions(snapshot),
        Detector::ResizableBar => resizable(snapshot),
        Detector::WindowBase => window(snapshot),
        Detector::RemappingForcedOff => {
            one(DMAR, flag(&snapshot.firmware.dmar, |it| it.remapping_off))
        }
        Detector::InterruptRemapping => {
            one(DMAR, flag(&snapshot.firmware.dmar, |it| it.interrupt_remapping))
        }
        Detector::X2apicOptOut => one(DMAR, flag(&snapshot.firmware.dmar, |it| it.x2apic_opt_out)),
        Detector::DmaOptIn => one(DMAR, flag(&snapshot.firmware.dmar, |it| it.dma_control_opt_in)),
        Detector::PassThrough => one(
            "/sys/class/iommu/*/intel-iommu/ecap",
            unverified(all_units(snapshot, IommuUnit::hardware_pass_through)),
        ),
        Detector::NamedOnly => Vec::new(),
    }
}

fn on_off(on: bool) -> String {
    if on { "on".to_owned() } else { "off".to_owned() }
}

/// Memory that the RMP lines of the log say is covered: one table that starts at address 0, or
/// segments that each name their range (`arch/x86/virt/svm/sev.c`).
fn coverage(snapshot: &Snapshot) -> Vec<(u64, u64)> {
    const BOOKKEEPING: u64 = 16 << 10;
    const ENTRY: u64 = 16;
    let whole = support::log_lines(snapshot, &[": RMP table physical range ["]);
    let whole = whole.into_iter().filter_map(range).filter_map(|(base, last)| {
        let entries = last.checked_add(1)?.checked_sub(base)?.checked_sub(BOOKKEEPING)? / ENTRY;
        Some((0, entries.checked_mul(4096)?.checked_sub(1)?))
    });
    let segments = support::log_lines(snapshot, &[" covering ["]);
    let segments = segments.into_iter().filter(|line| line.contains("RMP segment"));
    let segments = segments.filter_map(|line| range(line.split(" covering").nth(1)?));
    whole.chain(segments).collect()
}

/// The `[0xA - 0xB]` after the word that names it; a time stamp may stand in front.
fn range(line: &str) -> Option<(u64, u64)> {
    let (_, rest) = line.split_once(" [0x")?;
    let (first, last) = rest.split_once(']')?.0.split_once(" - 0x")?;
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    Some((number(first)?, number(last)?))
}

/// The covered ranges against the regions of accelerators.
fn covered(snapshot: &Snapshot) -> Option<String> {
    let ranges = coverage(snapshot);
    let end = ranges.iter().map(|(_, last)| *last).max()?;
    let regions: Vec<(u64, u64)> = snapshot
        .accelerated()
        .into_iter()
        .filter_map(|device| snapshot.peer_memory(device))
        .filter(|(_, bar)| bar.assigned)
        .map(|(_, bar)| (bar.start.0, bar.end()))
        .collect();
    let inside = regions
        .iter()
        .filter(|(start, after)| ranges.iter().any(|(first, last)| first < after && start <= last))
        .count();
    Some(if inside == 0 {
        format!("ends at {end:#x}, by these lines; no region of an accelerator lies in it")
    } else {
        format!(
            "{inside} of {} accelerator regions lie in it: what is known of peer maps does not hold",
            regions.len()
        )
    })
}

/// The state of an entry whose link to what was read is not verified.
fn unverified(state: String) -> String {
    if state == "off" { "off, or the hardware has none".to_owned() } else { state }
}

fn units(snapshot: &Snapshot) -> String {
    match (&snapshot.iommu.units, snapshot.iommu_active()) {
        (Observed::Known(units), Tristate::Yes) => {
            format!("on ({})", support::listed(units.iter().map(|unit| unit.name.as_str()), 2))
        }
        (Observed::Unreadable(why), _) => format!("unknown ({why})"),
        (_, Tristate::No) => "off, or not driven by the kernel".to_owned(),
        _ => "unknown (groups without units)".to_owned(),
    }
}

/// A flag of an ACPI table.
fn flag<T>(table: &Observed<T>, bit: impl FnOnce(&T) -> bool) -> String {
    match table {
        Observed::Known(table) => on_off(bit(table)),
        Observed::Absent => "unknown (the table does not exist)".to_owned(),
        Observed::Unreadable(why) => format!("unknown ({why})"),
    }
}

/// A feature that counts only if every unit has it.
fn all_units(snapshot: &Snapshot, feature: fn(&IommuUnit) -> Observed<bool>) -> String {
    let units = match &snapshot.iommu.units {
        Observed::Known(units) if !units.is_empty() => units,
        Observed::Known(_) | Observed::Absent => return "unknown (no unit)".to_owned(),
        Observed::Unreadable(why) => return format!("unknown ({why})"),
    };
    let states: Vec<Tristate> = units.iter().map(|unit| feature(unit).into()).collect();
    if states.contains(&Tristate::Unknown) {
        "unknown".to_owned()
    } else if states.iter().all(|state| *state == Tristate::Yes) {
        "on".to_owned()
    } else if states.contains(&Tristate::Yes) {
        "on in some units only".to_owned()
    } else {
        "off".to_owned()
    }
}

fn memory_encryption(snapshot: &Snapshot) -> String {
    let Observed::Known(flags) = &snapshot.cpu.flags else {
        return "unknown (flags not read)".to_owned();
    };
    let seen: Vec<&str> = flags
        .iter()
        .map(String::as_str)
        .filter(|flag| ["sme", "sev", "sev_es", "sev_snp"].contains(flag))
        .collect();
    if seen.is_empty() {
        "off, or the processor has none (no flag sme, no flag sev)".to_owned()
    } else {
        format!("on (flags {})", seen.join(" "))
    }
}

fn logged(snapshot: &Snapshot, parts: &[&str]) -> Option<String> {
    match &snapshot.kernel.log_facts {
        Observed::Unreadable(why) => Some(format!("unknown ({why})")),
        Observed::Known(_) | Observed::Absent => {
            support::log_lines(snapshot, parts).first().map(|line| short(line))
        }
    }
}

/// The front of a line, which leaves room for the menu's name.
fn short(line: &str) -> String {
    let front: String = line.trim().chars().take(70).collect();
    if front.len() < line.trim().len() { format!("\"{front}…\"") } else { format!("\"{front}\"") }
}

/// Root ports above accelerators.
pub(super) fn root_ports_above(snapshot: &Snapshot) -> Vec<&PciDevice> {
    let mut ports: Vec<&PciDevice> = snapshot
        .accelerated()
        .into_iter()
        .filter_map(|device| snapshot.device(*device.ancestors.first()?))
        .filter(|port| {
            port.config
                .known()
                .is_some_and(|config| config.port_type == Observed::Known(PortType::RootPort))
        })
        .collect();
    ports.sort_by_key(|port| port.address);
    ports.dedup_by_key(|port| port.address);
    ports
}

fn root_ports(snapshot: &Snapshot) -> String {
    let ports = root_ports_above(snapshot);
    let (mut with, mut without, mut unread) = (0_usize, 0_usize, 0_usize);
    for port in &ports {
        match port.config.known().map(|config| &config.acs) {
            Some(Observed::Known(_)) => with += 1,
            Some(Observed::Absent) => without += 1,
            Some(Observed::Unreadable(_)) | None => unread += 1,
        }
    }
    if ports.is_empty() || unread == ports.len() {
        return "unknown (configuration space of the root ports not read)".to_owned();
    }
    match (with, without) {
        (_, 0) => format!("capability present in {with}"),
        (0, _) => format!("no capability in {without}: off, hidden, or never there"),
        _ => format!("capability present in {with}, absent in {without}"),
    }
}

const FOUR_GIB: u64 = 1 << 32;

fn regions(snapshot: &Snapshot) -> Vec<(String, String)> {
    let found = snapshot.accelerated().into_iter().find_map(|device| {
        let (memory, bar) = snapshot.peer_memory(device)?;
        let state = if !bar.assigned {
            "a large region has no address".to_owned()
        } else if bar.start.0 >= FOUR_GIB {
            "on (regions above 4 GiB)".to_owned()
        } else {
            "not in use (regions below 4 GiB)".to_owned()
        };
        Some((device_file(memory.address, "resource"), state))
    });
    found.into_iter().collect()
}

fn resizable(snapshot: &Snapshot) -> Vec<(String, String)> {
    let found = snapshot.accelerated().into_iter().find_map(|device| {
        let config = device.config.known()?;
        let (_, bar) = snapshot.peer_memory(device)?;
        let state = match &config.resizable {
            Observed::Known(entries) => {
                let entry = entries.iter().find(|entry| entry.index == bar.index)?;
                format!("region of {} MiB, up to {} MiB", entry.current >> 20, entry.largest >> 20)
            }
            Observed::Absent => "the device shows no such capability".to_owned(),
            Observed::Unreadable(why) => format!("unknown ({why})"),
        };
        Some((device_file(device.address, "config"), state))
    });
    found.into_iter().collect()
}

/// The highest region against the narrowest requester.
fn window(snapshot: &Snapshot) -> Vec<(String, String)> {
    let accelerated = snapshot.accelerated();
    let highest = accelerated
        .iter()
        .filter_map(|device| snapshot.peer_memory(device))
        .filter(|(_, bar)| bar.assigned)
        .max_by_key(|(_, bar)| bar.end());
    let narrowest = accelerated
        .iter()
        .filter_map(|device| address_bits(snapshot, device))
        .map(|(bits, _)| bits)
        .min();
    let (Some((memory, bar)), Some(bits)) = (highest, narrowest) else { return Vec::new() };
    let state = format!("highest region ends at {:#x}; requesters emit {bits} bits", bar.end());
    vec![(device_file(memory.address, "resource"), state)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::testing::{Host, PORT};

    #[track_caller]
    fn check(host: &Host, detector: Detector, expected: &str) {
        let states: Vec<String> =
            read(&host.snapshot, detector).into_iter().map(|(_, state)| state).collect();
        assert_eq!(states, [expected]);
    }

    #[test]
    fn states_as_read() {
        let host = Host::amd();
        check(&host, Detector::Iommu, "on (ivhd0)");
        check(&host, Detector::IommuSnp, "off, or the hardware has none");
        check(&host, Detector::MemoryEncryption, "on (flags sme)");
        check(&host, Detector::RootPortAcs, "capability present in 2");
        check(&host, Detector::Above4g, "on (regions above 4 GiB)");
        check(&host, Detector::ResizableBar, "region of 131072 MiB, up to 131072 MiB");
        check(
            &host,
            Detector::WindowBase,
            "highest region ends at 0x26000000000; requesters emit 52 bits",
        );
        let bare = host.config(PORT, |config| config.acs = Observed::Absent);
        check(&bare, Detector::RootPortAcs, "capability present in 1, absent in 1");
    }

    #[test]
    fn what_the_reverse_map_covers() {
        let state = |line: &str| {
            let host = Host::amd().logged(line);
            read(&host.snapshot, Detector::ReverseMap).pop().map(|(_, state)| state).unwrap()
        };
        // 1 GiB of entries and the bookkeeping: 256 GiB of memory from address 0.
        assert_eq!(
            state("SEV-SNP: RMP table physical range [0x0000000100000000 - 0x0000000140003fff]"),
            "ends at 0x3fffffffff, by these lines; no region of an accelerator lies in it"
        );
        let segment = "SEV-SNP: RMP segment 8 physical address [0x100000000 - 0x10fffffff] covering \
                       [0x20000000000 - 0x21fffffffff]";
        assert!(state(segment).starts_with("1 of 2 accelerator regions lie in it"));
    }

    #[test]
    fn absent_evidence_is_unknown() {
        let host = Host::amd();
        check(&host, Detector::PreBootProtection, "unknown (the table does not exist)");
        check(&host, Detector::TransparentEncryption, "not reported, which does not mean off");
        check(&host, Detector::ReverseMap, "no line about it seen");
        let unread = host.edit(|snapshot| {
            snapshot.kernel.log_facts = Observed::default();
            snapshot.iommu.units = Observed::default();
        });
        check(&unread, Detector::ReverseMap, "unknown (not looked at)");
        check(&unread, Detector::IommuSnp, "unknown (not looked at)");
    }

    #[test]
    fn lines_of_the_boot_log() {
        let host = Host::amd().logged("SEV-SNP: RMP table physical range [0x1000 - 0x2000]");
        check(
            &host,
            Detector::ReverseMap,
            "\"SEV-SNP: RMP table physical range [0x1000 - 0x2000]\"",
        );
    }
}

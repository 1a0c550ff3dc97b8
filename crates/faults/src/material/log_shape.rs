//! Whether a text is a kernel log, and whether it says anything here.

use peerway_klog::Report;

/// Whether a scan found anything.
pub fn says_something(report: &Report) -> bool {
    report.events > 0
        || !report.driver_events.is_empty()
        || !report.devices.is_empty()
        || !report.boots.is_empty()
        || !report.platform.is_empty()
        || !report.banners.is_empty()
        || !report.suppressed_by.is_empty()
        || !report.events_lost.is_empty()
        || report.iommu_stuck > 0
}

/// Whether lines have the shape of a kernel log: a stamp, a tag, or a driver with a device in
/// front of most of them.
pub fn is_log(text: &str) -> bool {
    let mut lines = 0_usize;
    let mut shaped = 0_usize;
    for line in text.lines().filter(|line| !line.trim().is_empty()).take(2_000) {
        lines += 1;
        shaped += usize::from(is_shaped(line));
    }
    shaped > 0 && shaped * 4 >= lines
}

/// What messages of the kernel begin with where nothing stands in front.
const TAGS: [&str; 12] = [
    "kernel: ",
    "kernel[",
    "(XEN) ",
    "NVRM: ",
    "AMD-Vi: ",
    "DMAR: ",
    "DMAR:[",
    "DMAR-IR: ",
    "SEV-SNP: ",
    "arm-smmu",
    "kern  :",
    "iommu: ",
];

fn is_shaped(line: &str) -> bool {
    let line = line.trim_start_matches(['>', '|', ' ', '\t']);
    // A level, as `dmesg -r` has it.
    let line = match line.strip_prefix('<').and_then(|rest| rest.split_once('>')) {
        Some((level, rest)) if level.len() <= 3 && level.bytes().all(|b| b.is_ascii_digit()) => {
            rest
        }
        _ => line,
    };
    if let Some(rest) = line.strip_prefix('[') {
        let inner = rest.split(']').next().unwrap_or_default().trim_start();
        let inner = inner.strip_prefix('+').unwrap_or(inner);
        let number = inner.split_whitespace().next().unwrap_or_default();
        let seconds = number.contains('.')
            && number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        return seconds || inner.split(' ').next().is_some_and(is_day);
    }
    if TAGS.iter().any(|tag| line.starts_with(tag)) || line.contains(" kernel: ") {
        return true;
    }
    // A record of /dev/kmsg.
    let mut parts = line.splitn(4, ',');
    let numbers = parts
        .by_ref()
        .take(3)
        .filter(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
    if numbers.count() == 3 && parts.next().is_some_and(|rest| rest.contains(';')) {
        return true;
    }
    // `driver 0000:01:00.0: …`
    let mut words = line.split(' ');
    let driver = words.next().unwrap_or_default();
    let device = words.next().unwrap_or_default();
    driver.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
        && !driver.is_empty()
        && device.trim_end_matches(':').parse::<peerway_core::address::PciAddress>().is_ok()
        && device.len() > 8
}

fn is_day(word: &str) -> bool {
    let day = word.get(..3).unwrap_or(word);
    ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"].contains(&day)
        || ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
            .contains(&day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: bool) {
        assert_eq!(is_log(text), expected, "{text}");
    }

    #[test]
    fn logs_and_other_texts() {
        check("[   12.345678] usb 1-2: new device\n", true);
        check("[ +0.000398] x\n", true);
        check("[Mon Nov 30 08:48:39 2026] x\n", true);
        check("Nov 30 08:48:39 host kernel: x\n", true);
        check("kernel: ice 0000:c7:00.0: x\n", true);
        check("3,1234,12345678,-;x\n SUBSYSTEM=pci\n", true);
        check("nvidia 0000:41:00.0: AMD-Vi: x\n", true);
        check("<3>[    1.000000] x\n", true);
        check("BOOT_IMAGE=/vmlinuz root=/dev/sda1 quiet\n", false);
        check("{\"0000:01:00.0\": {\"bar0\": \"0x40000000\"}}\n", false);
        check("[./simpleP2P] - Starting...\nTest passed\n", false);
        check("[ PASS ] - AMD CPU\n", false);
        check("[0] NCCL INFO Using network Socket\n", false);
        check("IOMMU Group 1:\n\t01:00.0 VGA compatible controller [0300]: x\n", false);
        check("", false);
    }
}

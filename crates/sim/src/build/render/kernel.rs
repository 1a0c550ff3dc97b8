//! Kernel, processor, firmware names: `/proc` and the small parts of `/sys`.

use std::fmt::Write as _;

use super::super::HostBuilder;
use super::super::files::Files;

pub(super) fn render(host: &HostBuilder, files: &mut Files) {
    files.line("/proc/sys/kernel/osrelease", &host.kernel);
    files.line("/proc/sys/kernel/hostname", &host.name);
    files.line("/proc/sys/kernel/random/boot_id", boot_id(&host.name, &host.kernel));
    files.line("/proc/version", version_line(host));
    files.line("/proc/cmdline", command_line(host));
    files.text("/proc/cpuinfo", cpuinfo(host));
    files.text("/proc/kallsyms", kallsyms(host));
    files.line("/sys/kernel/security/lockdown", "[none] integrity confidentiality");
    let threads = host.cpu.threads / host.nodes.max(1);
    for node in 0..host.nodes {
        let directory = format!("/sys/devices/system/node/node{node}");
        let last = (node + 1) * threads - 1;
        files.line(&format!("{directory}/cpulist"), format!("{}-{last}", node * threads));
        let distances: Vec<&str> =
            (0..host.nodes).map(|other| if other == node { "10" } else { "32" }).collect();
        files.line(&format!("{directory}/distance"), distances.join(" "));
    }
    for (name, value) in &host.dmi {
        files.line(&format!("/sys/class/dmi/id/{name}"), value);
    }
    if host.cpu.vendor == "AuthenticAMD" && !host.cpu.guest && host.cpu.has_sme {
        let yes = |on: bool| if on { "Y" } else { "N" };
        let parameters = "/sys/module/kvm_amd/parameters";
        files.line(&format!("{parameters}/sev"), yes(host.encryption.sev));
        files.line(&format!("{parameters}/sev_es"), yes(host.encryption.sev));
        if host.version().at_least(6, 11) {
            files.line(&format!("{parameters}/sev_snp"), yes(host.encryption.snp));
        }
    }
}

pub(super) fn version_line(host: &HostBuilder) -> String {
    let build = if host.kernel.ends_with("-pve") {
        "(build@proxmox) (gcc (Debian 12.2.0-14+deb12u1) 12.2.0) #1 SMP PREEMPT_DYNAMIC PMX"
    } else {
        "(build@buildd) (gcc-12 (Debian 12.2.0-14) 12.2.0) #1 SMP PREEMPT_DYNAMIC"
    };
    format!("Linux version {} {build}", host.kernel)
}

pub(super) fn command_line(host: &HostBuilder) -> String {
    format!("BOOT_IMAGE=/boot/vmlinuz-{} {}", host.kernel, host.command_line)
}

/// The first processor in full, of the others only their number, which is what is counted.
fn cpuinfo(host: &HostBuilder) -> String {
    let cpu = host.cpu;
    if cpu.vendor == "ARM" {
        let one = |number| {
            format!(
                "processor\t: {number}\nFeatures\t: fp asimd evtstrm aes crc32 atomics\n\
                 CPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x3\n\
                 CPU part\t: 0xd0c\nCPU revision\t: 1\n\n"
            )
        };
        return (0..cpu.threads).map(one).collect();
    }
    let mut text = format!(
        "processor\t: 0\nvendor_id\t: {}\ncpu family\t: {}\nmodel\t\t: {}\nmodel name\t: {}\n\
         stepping\t: 1\nphysical id\t: 0\nflags\t\t: {}\n\
         address sizes\t: {} bits physical, 57 bits virtual\n\n",
        cpu.vendor,
        cpu.family,
        cpu.model,
        cpu.name,
        flags(host),
        physical_bits(host),
    );
    for number in 1..cpu.threads {
        // Writing to a String cannot fail.
        write!(text, "processor\t: {number}\n\n").unwrap_or_default();
    }
    text
}

/// Memory encryption takes six address bits for its key numbers (CPUID 0x8000001f).
fn physical_bits(host: &HostBuilder) -> u32 {
    let taken = if host.cpu.has_sme && host.encryption.sev { 6 } else { 0 };
    host.cpu.physical_bits - taken
}

fn flags(host: &HostBuilder) -> String {
    let mut flags = vec!["fpu", "vme", "msr", "pae", "mce", "apic", "sse2", "ht", "lm", "x2apic"];
    if host.cpu.vendor == "AuthenticAMD" {
        flags.extend(["svm", "sse4a", "topoext"]);
    } else {
        flags.extend(["vmx", "dtes64", "sse4_2"]);
    }
    if host.cpu.guest {
        flags.push("hypervisor");
    }
    let encryption = host.encryption;
    if encryption.sme {
        flags.push("sme");
    }
    if encryption.sev {
        flags.extend(["sev", "sev_es"]);
    }
    if encryption.snp && host.version().at_least(6, 9) {
        flags.push("sev_snp");
    }
    flags.join(" ")
}

/// An excerpt: the symbols that tell how translated devices reach the DMA API. The table
/// `iommu_dma_ops` went with 6.12 (`kernel/dma/mapping.c`, direct calls for dma-iommu).
fn kallsyms(host: &HostBuilder) -> String {
    let mut text = String::from(
        "0000000000000000 T _text\n0000000000000000 T iommu_map\n\
         0000000000000000 T iommu_unmap\n0000000000000000 T iommu_iova_to_phys\n\
         0000000000000000 T iommu_get_domain_for_dev\n0000000000000000 T dma_map_resource\n",
    );
    if host.version().at_least(6, 12) {
        text.push_str("0000000000000000 T iommu_dma_map_resource\n");
    } else {
        text.push_str("0000000000000000 t iommu_dma_map_resource\n");
        text.push_str("0000000000000000 d iommu_dma_ops\n");
    }
    text
}

/// A boot number that stays the same for the same host and kernel.
fn boot_id(name: &str, kernel: &str) -> String {
    // FNV-1a, twice, for 128 bits that look like the kernel's random ones.
    let hash = |seed: u64| {
        name.bytes()
            .chain(kernel.bytes())
            .fold(seed, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
    };
    let (high, low) = (hash(0xcbf2_9ce4_8422_2325), hash(0x9ae1_6a3b_2f90_404f));
    format!(
        "{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xfff,
        low >> 48 & 0xfff,
        low & 0xffff_ffff_ffff
    )
}

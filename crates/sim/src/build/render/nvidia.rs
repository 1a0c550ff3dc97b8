//! NVIDIA's driver: `/proc/driver/nvidia`, `/sys/module/nvidia*`.

use super::super::files::Files;
use super::super::layout::{Kind, Placed};
use super::super::{HostBuilder, NvidiaDriver, NvidiaFlavour};

/// Parameters that bear on peer access, as the stock driver prints them.
const PARAMS: [(&str, &str); 12] = [
    ("ResmanDebugLevel", "4294967295"),
    ("RmLogonRC", "1"),
    ("EnablePCIERelaxedOrderingMode", "0"),
    ("EnablePCIeGen3", "0"),
    ("EnableResizableBar", "0"),
    ("EnableStreamMemOPs", "0"),
    ("DmaRemapPeerMmio", "1"),
    ("GrdmaPciTopoCheckOverride", "0"),
    ("OpenRmEnableUnsupportedGpus", "1"),
    ("RegistryDwords", "\"\""),
    ("RegistryDwordsPerDevice", "\"\""),
    ("RmMsg", "\"\""),
];

pub(super) fn render(host: &HostBuilder, placed: &[Placed], files: &mut Files) {
    let Some(driver) = &host.nvidia else { return };
    files.text(
        "/proc/driver/nvidia/version",
        format!(
            "{}\nGCC version:  gcc version 12.2.0 (Debian 12.2.0-14+deb12u1)\n",
            version_line(driver)
        ),
    );
    files.text("/proc/driver/nvidia/params", params(driver));
    for (minor, one) in super::bound_to(placed, "nvidia").enumerate() {
        gpu(driver, minor, one, files);
    }
    for (module, used) in [("nvidia", 3), ("nvidia_uvm", 1), ("nvidia_modeset", 1)] {
        let directory = format!("/sys/module/{module}");
        files.line(&format!("{directory}/version"), driver.version);
        files.line(&format!("{directory}/refcnt"), used);
        files.line(&format!("{directory}/initstate"), "live");
    }
    files.link("/sys/module/nvidia/holders/nvidia_uvm", "../../nvidia_uvm");
    files.link("/sys/module/nvidia/holders/nvidia_modeset", "../../nvidia_modeset");
}

pub(super) fn version_line(driver: &NvidiaDriver) -> String {
    let version = driver.version;
    match driver.flavour {
        NvidiaFlavour::Open => format!(
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build  \
             (dvs-builder@build-host)"
        ),
        NvidiaFlavour::Closed => {
            format!("NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}")
        }
        NvidiaFlavour::Fork => format!(
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}-p2p  Release Build  \
             (root@build-host)"
        ),
    }
}

fn params(driver: &NvidiaDriver) -> String {
    let line = |(name, stock): &(&str, &str)| {
        let set = driver.params.iter().find(|(known, _)| known == name);
        match set {
            Some((_, value)) if stock.starts_with('"') => format!("{name}: \"{value}\"\n"),
            Some((_, value)) => format!("{name}: {value}\n"),
            None => format!("{name}: {stock}\n"),
        }
    };
    PARAMS.iter().map(line).collect()
}

fn gpu(driver: &NvidiaDriver, minor: usize, one: &Placed, files: &mut Files) {
    let Kind::Function(function) = &one.kind else { return };
    let bits = function.model.dma_bits;
    let mask = if bits >= 64 { u64::MAX } else { (1 << bits) - 1 };
    let gsp = if driver.flavour == NvidiaFlavour::Closed { "N/A" } else { driver.version };
    let directory = format!("/proc/driver/nvidia/gpus/{}", one.address);
    let text = format!(
        "Model: \t\t {}\nIRQ:   \t\t {}\nGPU UUID: \t {}\nVideo BIOS: \t 98.02.67.00.02\n\
         Bus Type: \t PCIe\nDMA Size: \t {bits} bits\nDMA Mask: \t {mask:#x}\n\
         Bus Location: \t {}\nDevice Minor: \t {minor}\nGPU Firmware: \t {gsp}\n\
         GPU Excluded:\t No\n",
        function.model.name,
        200 + minor,
        uuid(one),
        one.address,
    );
    files.text(&format!("{directory}/information"), text);
    files.text(
        &format!("{directory}/power"),
        "Runtime D3 status:          Disabled by default\n\
         Video Memory:               Active\n",
    );
}

/// A number that looks like a UUID and is the same whenever the host is rendered.
fn uuid(one: &Placed) -> String {
    let (domain, bus) = (one.address.domain(), one.address.bus());
    format!(
        "GPU-{:08x}-{domain:04x}-5{bus:03x}-9000-00000000{bus:04x}",
        0x3f2a_0000 + u32::from(bus)
    )
}

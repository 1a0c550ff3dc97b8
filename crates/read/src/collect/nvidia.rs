//! NVIDIA's kernel driver, without opening a GPU.

use peerway_core::observed::Observed;
use peerway_core::snapshot::Gap;
use peerway_core::snapshot::driver::{DriverFlavour, DriverVersion, GpuInformation, NvidiaDriver};

use crate::error::observe;
use crate::parse::nvidia;
use crate::root::{Root, SMALL};

/// What the driver tells about one GPU: a dozen short lines.
const MOST_INFORMATION: usize = 4 << 10;

const PROC: &str = "/proc/driver/nvidia";

/// From `/proc/driver/nvidia` and `/sys/module`.
pub fn collect(root: &Root, gaps: &mut Vec<Gap>) -> NvidiaDriver {
    let modules = modules(root);
    let driver = NvidiaDriver {
        version: version(root, &modules),
        params: observe(root.text(&format!("{PROC}/params"), SMALL))
            .map(|text| nvidia::params(&text)),
        gpus: gpus(root, gaps),
        modules,
    };
    for (name, why) in [
        ("version", driver.version.unreadable()),
        ("params", driver.params.unreadable()),
        ("gpus", driver.gpus.unreadable()),
    ] {
        if let Some(why) = why {
            gaps.push(Gap { source: format!("{PROC}/{name}"), why: why.to_owned() });
        }
    }
    driver
}

/// Loaded modules of the family.
fn modules(root: &Root) -> Observed<Vec<String>> {
    observe(root.list("/sys/module")).map(|names| {
        let mut names = names;
        names.retain(|name| name == "nvidia" || name.starts_with("nvidia_") || name == "gdrdrv");
        for name in &names {
            // Read so that a recording of this look keeps the module.
            root.observe(&format!("/sys/module/{name}/initstate"));
        }
        names
    })
}

fn version(root: &Root, modules: &Observed<Vec<String>>) -> Observed<DriverVersion> {
    let loaded =
        || modules.known().is_some_and(|modules| modules.iter().any(|name| name == "nvidia"));
    match observe(root.text(&format!("{PROC}/version"), SMALL)) {
        Observed::Known(text) => match nvidia::version(&text) {
            Some(version) => Observed::Known(with_module_version(root, version)),
            None => Observed::Unreadable("no version line that this program knows".to_owned()),
        },
        Observed::Absent if loaded() => {
            Observed::Unreadable("the module is loaded, but this file is missing".to_owned())
        }
        Observed::Absent => Observed::Absent,
        Observed::Unreadable(why) => Observed::Unreadable(why),
    }
}

/// A patched build may show only in the module's own version.
fn with_module_version(root: &Root, mut version: DriverVersion) -> DriverVersion {
    let module = root.observe("/sys/module/nvidia/version");
    if let Some(module) = module.known().filter(|text| nvidia::names_patches(text)) {
        version.flavour = DriverFlavour::Fork;
        version.line = format!("{} (module version {module})", version.line);
    }
    version
}

fn gpus(root: &Root, gaps: &mut Vec<Gap>) -> Observed<Vec<GpuInformation>> {
    let names = match observe(root.list(&format!("{PROC}/gpus"))) {
        Observed::Known(names) => names,
        Observed::Absent => return Observed::Absent,
        Observed::Unreadable(why) => return Observed::Unreadable(why),
    };
    let mut gpus = Vec::with_capacity(names.len());
    for name in names {
        let Ok(address) = name.parse() else { continue };
        let path = format!("{PROC}/gpus/{name}/information");
        match observe(root.text(&path, MOST_INFORMATION)) {
            Observed::Known(text) => gpus.push(nvidia::information(address, &text)),
            Observed::Absent => {}
            Observed::Unreadable(why) => {
                gaps.push(Gap { source: path, why: why.clone() });
                gpus.push(GpuInformation {
                    address,
                    model: Observed::Unreadable(why.clone()),
                    uuid: Observed::Unreadable(why.clone()),
                    minor: Observed::Unreadable(why.clone()),
                    excluded: Observed::Unreadable(why),
                });
            }
        }
    }
    gpus.sort_by_key(|gpu| gpu.address);
    Observed::Known(gpus)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::host_file;

    fn look(entries: &str) -> (NvidiaDriver, Vec<Gap>) {
        let count = entries.matches("//- ").count();
        let text = format!("peerway-host 1\n{entries}//- end {count}\n");
        let root = Root::recorded(Arc::new(host_file::parse(&text).unwrap()));
        let mut gaps = Vec::new();
        (collect(&root, &mut gaps), gaps)
    }

    #[track_caller]
    fn check(entries: &str, expected: &str) {
        let (driver, gaps) = look(entries);
        let gpus = driver.gpus.map(|gpus| {
            let gpus: Vec<String> =
                gpus.iter().map(|gpu| format!("{} minor {}", gpu.address, gpu.minor)).collect();
            gpus.join(", ")
        });
        let version = driver.version.map(|version| version.version);
        let gaps: Vec<&str> = gaps.iter().map(|gap| gap.source.as_str()).collect();
        assert_eq!(format!("{version} | {gpus} | {}", gaps.join(" ")), expected);
    }

    #[test]
    fn drivers() {
        let version = "//- /proc/driver/nvidia/version\nNVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n";
        let gpu = |address: &str, minor: u8| {
            format!("//- /proc/driver/nvidia/gpus/{address}/information\nDevice Minor: {minor}\n")
        };
        check(
            &format!("{version}{}{}", gpu("0000:c1:00.0", 1), gpu("0000:41:00.0", 0)),
            "580.95.05 | 0000:41:00.0 minor 0, 0000:c1:00.0 minor 1 | ",
        );
        check(
            &format!("{version}//- /proc/driver/nvidia/gpus/0000:41:00.0/information !HANG\n"),
            "580.95.05 | 0000:41:00.0 minor unknown (no answer within a second) | \
             /proc/driver/nvidia/gpus/0000:41:00.0/information",
        );
        check("//- /sys/module/vfio/\n", "none | none | ");
        check(
            "//- /sys/module/nvidia/\n",
            "unknown (the module is loaded, but this file is missing) | none | \
             /proc/driver/nvidia/version",
        );
        check(
            "//- /proc/driver/nvidia/version\nGCC version: 12\n//- /proc/driver/nvidia/gpus !EACCES\n",
            "unknown (no version line that this program knows) | unknown (permission denied) | \
             /proc/driver/nvidia/version /proc/driver/nvidia/gpus",
        );
    }

    #[test]
    fn a_patched_module() {
        let text = |module: &str| {
            format!(
                "//- /proc/driver/nvidia/version\nNVRM version: NVIDIA UNIX Open Kernel Module for x86_64  \
                 570.86.16  Release Build\n//- /sys/module/nvidia/version\n{module}\n"
            )
        };
        let flavour = |module| look(&text(module)).0.version.map(|version| version.flavour);
        assert_eq!(flavour("570.86.16"), Observed::Known(DriverFlavour::Open));
        assert_eq!(flavour("570.86.16-p2p"), Observed::Known(DriverFlavour::Fork));
    }

    #[test]
    fn modules_of_the_family() {
        let (driver, _) = look(
            "//- /sys/module/nvidia/\n//- /sys/module/nvidia_uvm/\n//- /sys/module/gdrdrv/\n\
             //- /sys/module/nvidiafb_of_old/\n//- /sys/module/vfio/\n",
        );
        assert_eq!(
            driver.modules.known().map(|modules| modules.join(" ")),
            Some("gdrdrv nvidia nvidia_uvm".to_owned())
        );
    }
}

//! Drivers and IOMMU groups through sysfs.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use peerway_lab_protocol::{Device, Group, Inventory, TypeWrite};

use crate::pci::{self, Function};
use crate::{Context as _, Result};

const GROUPS: &str = "/sys/kernel/iommu_groups";
/// A driver's probe under emulation takes far less.
const BIND_DEADLINE: Duration = Duration::from_secs(5);

/// Gives a function to a driver: `driver_override`, then a probe of the bus.
///
/// # Errors
/// Where the kernel refuses, or the driver did not take it.
pub fn bind(address: &str, driver: &str) -> Result<()> {
    let function = Function::at(address)?;
    if function.link("driver").as_deref() == Some(driver) {
        return Ok(());
    }
    unbind(address)?;
    write(&function.path("driver_override"), driver)?;
    write(Path::new("/sys/bus/pci/drivers_probe"), address)?;
    let end = Instant::now() + BIND_DEADLINE;
    while function.link("driver").as_deref() != Some(driver) {
        if Instant::now() > end {
            let now = function.link("driver").unwrap_or_else(|| "none".to_owned());
            return Err(format!("{driver} did not take {address}; its driver is {now}").into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Takes a function from its driver, and lets nobody else have it.
///
/// # Errors
/// Where the kernel refuses.
pub fn unbind(address: &str) -> Result<()> {
    let function = Function::at(address)?;
    // A name that no driver has, so that nothing binds by itself.
    write(&function.path("driver_override"), "none")?;
    if function.link("driver").is_some() {
        write(&function.path("driver/unbind"), address)?;
    }
    Ok(())
}

/// Writes a group's `type` and tells what came of it; a refusal is a result.
///
/// # Errors
/// Where the file cannot be read.
pub fn set_type(group: u32, value: &str) -> Result<TypeWrite> {
    let path = type_file(group);
    // The file's mode counts here as it does for a program without CAP_DAC_OVERRIDE: 0444 means that the
    // kernel has no write at all.
    let result = match OpenOptions::new().write(true).open(&path) {
        Ok(mut file) => named(file.write_all(value.as_bytes())),
        Err(error) => named(Err(error)),
    };
    Ok(TypeWrite { group, value: value.to_owned(), result, reads: read_type(group)? })
}

/// As [`set_type`], without a write.
///
/// # Errors
/// Where the file cannot be read.
pub fn get_type(group: u32) -> Result<TypeWrite> {
    let reads = read_type(group)?;
    Ok(TypeWrite { group, value: String::new(), result: "read".to_owned(), reads })
}

/// What a group's `type` reads.
///
/// # Errors
/// Where it cannot be read.
pub fn read_type(group: u32) -> Result<String> {
    let path = type_file(group);
    let text = fs::read_to_string(&path).context(|| format!("cannot read {}", path.display()))?;
    Ok(text.trim_end().to_owned())
}

/// Permission bits of a group's `type` file.
///
/// # Errors
/// Where there is none.
pub fn type_mode(group: u32) -> Result<u32> {
    let path = type_file(group);
    let data = fs::metadata(&path).context(|| format!("cannot look at {}", path.display()))?;
    Ok(std::os::unix::fs::PermissionsExt::mode(&data.permissions()) & 0o777)
}

/// Every device and every group.
///
/// # Errors
/// Where sysfs cannot be read.
pub fn inventory() -> Result<Inventory> {
    let mut devices = Vec::new();
    for function in pci::functions()? {
        devices.push(device(&function)?);
    }
    let mut groups = Vec::new();
    // Without an IOMMU the directory is there and empty.
    for entry in fs::read_dir(GROUPS).context(|| format!("cannot list {GROUPS}"))? {
        let entry = entry?;
        let id = entry.file_name().to_string_lossy().parse()?;
        let mut members = Vec::new();
        for member in fs::read_dir(entry.path().join("devices"))? {
            members.push(member?.file_name().to_string_lossy().into_owned());
        }
        members.sort();
        groups.push(Group { id, kind: read_type(id)?, devices: members });
    }
    groups.sort_by_key(|group| group.id);
    Ok(Inventory { devices, groups })
}

fn device(function: &Function) -> Result<Device> {
    let id = |file: &str| Ok::<_, crate::Failure>(function.read(file)?.replace("0x", ""));
    Ok(Device {
        address: function.address().to_owned(),
        id: format!("{}:{}", id("vendor")?, id("device")?),
        driver: function.link("driver"),
        numa_node: function.read("numa_node")?.parse()?,
        group: function.group(),
        bars: function
            .bars()?
            .into_iter()
            .map(|bar| (bar.index, format!("{:#x}", bar.start), bar.size))
            .collect(),
    })
}

fn type_file(group: u32) -> PathBuf {
    Path::new(GROUPS).join(group.to_string()).join("type")
}

fn write(path: &Path, value: &str) -> Result<()> {
    fs::write(path, value).context(|| format!("cannot write {value:?} to {}", path.display()))
}

/// `ok`, or the symbol of an error.
fn named(result: std::io::Result<()>) -> String {
    let Err(error) = result else { return "ok".to_owned() };
    match error.raw_os_error() {
        Some(1) => "EPERM".to_owned(),
        Some(5) => "EIO".to_owned(),
        Some(12) => "ENOMEM".to_owned(),
        Some(13) => "EACCES".to_owned(),
        Some(16) => "EBUSY".to_owned(),
        Some(19) => "ENODEV".to_owned(),
        Some(22) => "EINVAL".to_owned(),
        Some(95) => "EOPNOTSUPP".to_owned(),
        _ => error.to_string(),
    }
}

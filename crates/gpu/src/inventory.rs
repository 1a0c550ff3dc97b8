//! Which GPUs there are, whether they can be measured, and what the driver claims of them.

use std::rc::Rc;

use peerway_core::address::PciAddress;

use crate::driver::{Driver, attribute, peer_attribute};
use crate::precondition::{Precondition, Unmet, prohibited};
use crate::protocol::Event;
use crate::report::Reporter;
use crate::result::{Claim, GpuSeen};
use crate::status::GpuError;

/// Compute modes of `cuda.h`.
const PROHIBITED: i32 = 2;

/// Reports every wanted GPU (all that the driver shows, if none is named), what is wrong with it,
/// and the driver's claims about each pair.
pub(crate) fn run(
    driver: &Rc<Driver>,
    wanted: &[PciAddress],
    needed: u64,
    out: &mut Reporter<'_>,
) -> Result<(), GpuError> {
    out.emit(&Event::Version(driver.version()?))?;
    let visible = std::env::var_os("CUDA_VISIBLE_DEVICES");
    let visible = visible.map(|value| value.to_string_lossy().into_owned());
    if let Some(value) = &visible {
        out.emit(&Event::Unmet(Precondition::host(
            Unmet::VisibleDevices,
            format!("CUDA_VISIBLE_DEVICES={value} is set: GPUs that it hides are not measured"),
        )))?;
    }
    let shown = shown(driver)?;
    let list = if wanted.is_empty() { shown.clone() } else { wanted.to_vec() };
    let mut usable = Vec::new();
    for address in list {
        out.step(None, format!("look at {address}"))?;
        if !shown.contains(&address) {
            let unmet = Precondition::not_visible(address, visible.as_deref());
            out.emit(&Event::Unmet(unmet))?;
            continue;
        }
        match look(driver, address, needed) {
            Ok((seen, unmet)) => {
                out.emit(&Event::Gpu(seen))?;
                match unmet {
                    Some(unmet) => out.emit(&Event::Unmet(unmet))?,
                    None => usable.push(address),
                }
            }
            Err(error) => {
                let unmet = Precondition::of_open(&error, address, visible.as_deref());
                out.emit(&Event::Unmet(unmet))?;
                if driver.is_lost() {
                    return Err(error);
                }
            }
        }
    }
    for from in &usable {
        for to in usable.iter().filter(|to| *to != from) {
            out.emit(&Event::Claim(claim(driver, *from, *to)?))?;
        }
    }
    Ok(())
}

/// Addresses of all GPUs that the driver shows here.
pub(crate) fn shown(driver: &Driver) -> Result<Vec<PciAddress>, GpuError> {
    let mut all = Vec::new();
    for ordinal in 0..driver.device_count()? {
        let text = driver.pci_address(driver.device(ordinal)?)?;
        let address = text
            .parse()
            .map_err(|error| GpuError::Request(format!("the driver's PCI address: {error}")))?;
        all.push(address);
    }
    Ok(all)
}

fn look(
    driver: &Rc<Driver>,
    address: PciAddress,
    needed: u64,
) -> Result<(GpuSeen, Option<Precondition>), GpuError> {
    let device = driver.device_at(&address.to_string())?;
    let name = driver.name(device)?;
    let major = driver.attribute(attribute::CAPABILITY_MAJOR, device)?;
    let minor = driver.attribute(attribute::CAPABILITY_MINOR, device)?;
    let mut seen = GpuSeen {
        address,
        uuid: uuid_text(driver.uuid(device)?),
        compute_capability: major * 10 + minor,
        multiprocessors: driver.attribute(attribute::MULTIPROCESSORS, device)?,
        name,
        memory_bytes: None,
        free_bytes: None,
    };
    if driver.attribute(attribute::COMPUTE_MODE, device)? == PROHIBITED {
        return Ok((seen, Some(prohibited(address))));
    }
    if seen.name.contains(" MIG ") {
        let unmet = Precondition::gpu(
            Unmet::Mig,
            address,
            format!("GPU {address} is in MIG mode: the driver gives its partitions no P2P"),
        );
        return Ok((seen, Some(unmet)));
    }
    let context = driver.retain(device)?;
    driver.set_current(context)?;
    let (free, total) = driver.memory()?;
    driver.release(device)?;
    seen.memory_bytes = Some(total);
    seen.free_bytes = Some(free);
    let unmet = (free < needed).then(|| {
        Precondition::gpu(
            Unmet::NoMemory,
            address,
            format!(
                "GPU {address} has {free} bytes free of {total}, the test needs {needed}: stop \
                 what uses it, or test less"
            ),
        )
    });
    Ok((seen, unmet))
}

fn claim(driver: &Driver, from: PciAddress, to: PciAddress) -> Result<Claim, GpuError> {
    let device = driver.device_at(&from.to_string())?;
    let peer = driver.device_at(&to.to_string())?;
    let attribute = |which| driver.peer_attribute(which, device, peer).ok();
    Ok(Claim {
        from,
        to,
        can_access: driver.can_access_peer(device, peer)?,
        performance_rank: attribute(peer_attribute::PERFORMANCE_RANK),
        native_atomics: attribute(peer_attribute::NATIVE_ATOMICS).map(|value| value != 0),
        access_supported: attribute(peer_attribute::ACCESS_SUPPORTED).map(|value| value != 0),
    })
}

/// The spelling of `nvidia-smi`.
fn uuid_text(bytes: [u8; 16]) -> String {
    let hex = format!("{:032x}", u128::from_be_bytes(bytes));
    let group = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
    let groups = [group(0, 8), group(8, 12), group(12, 16), group(16, 20), group(20, 32)];
    format!("GPU-{}", groups.join("-"))
}

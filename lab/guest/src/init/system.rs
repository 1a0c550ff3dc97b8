//! The script on a system whose first process is another one: that one mounts, loads modules and ends it.

use super::{Port, carry_out, ready, script, search_path};
use crate::kmsg::KernelLog;
use crate::{Result, sysfs};

/// Says what there is while no driver of the machine is bound, and binds them.
///
/// # Errors
/// Where sysfs cannot be read, or a driver does not take its device.
pub fn drivers() -> Result<()> {
    println!("{}", serde_json::to_string(&sysfs::inventory()?)?);
    for binding in &script()?.bindings {
        sysfs::bind(&binding.address, &binding.driver)?;
    }
    Ok(())
}

/// Carries the steps out and reports on the port; whoever started this switches the machine off.
///
/// # Errors
/// As told on the port, where that can be opened.
pub fn steps() -> Result<()> {
    search_path();
    let mut port = Port::open()?;
    let done = KernelLog::open().and_then(|mut log| {
        let script = script()?;
        ready(&mut port)?;
        carry_out(&script, &mut port, &mut log)
    });
    if let Err(error) = &done {
        port.failed(error)?;
    }
    done
}

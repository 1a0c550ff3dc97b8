//! Small things a scenario does to the guest's kernel.

use std::process::ExitCode;

use peerway_lab_guest::pci::Function;
use peerway_lab_guest::{Context as _, Result, sysfs};

const USAGE: &str = "usage: lab-sysfs inventory
       lab-sysfs bind ADDRESS DRIVER
       lab-sysfs unbind ADDRESS
       lab-sysfs type-mode GROUP
       lab-sysfs get-type GROUP
       lab-sysfs set-type GROUP WORD
GROUP is a number, or the address of a member";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lab-sysfs: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["inventory"] => println!("{}", serde_json::to_string(&sysfs::inventory()?)?),
        ["bind", address, driver] => sysfs::bind(address, driver)?,
        ["unbind", address] => sysfs::unbind(address)?,
        ["type-mode", group] => println!("{:04o}", sysfs::type_mode(number(group)?)?),
        ["set-type", group, value] => {
            println!("{}", serde_json::to_string(&sysfs::set_type(number(group)?, value)?)?);
        }
        ["get-type", group] => {
            println!("{}", serde_json::to_string(&sysfs::get_type(number(group)?)?)?);
        }
        _ => return Err(USAGE.into()),
    }
    Ok(())
}

fn number(text: &str) -> Result<u32> {
    if text.contains(':') {
        let group = Function::at(text)?.group();
        return group.ok_or_else(|| format!("{text} is in no IOMMU group").into());
    }
    text.parse().context(|| format!("group {text:?}"))
}

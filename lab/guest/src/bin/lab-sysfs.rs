//! Small things a scenario does to the guest's kernel.

use std::process::ExitCode;

use peerway_lab_guest::{Context as _, Result, sysfs};

const USAGE: &str = "usage: lab-sysfs inventory
       lab-sysfs bind ADDRESS DRIVER
       lab-sysfs unbind ADDRESS
       lab-sysfs type-mode GROUP
       lab-sysfs set-type GROUP WORD";

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
        _ => return Err(USAGE.into()),
    }
    Ok(())
}

fn number(text: &str) -> Result<u32> {
    text.parse().context(|| format!("group {text:?}"))
}

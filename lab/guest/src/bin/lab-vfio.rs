//! Holds accelerators in one VFIO container, as a virtual machine monitor does, and copies between them.
//!
//! Prints `{"ready":true}` once it holds them, then one probe line for each ordered pair.

use std::io::Read as _;
use std::process::ExitCode;

use peerway_lab_guest::copy::{ENGINE_BAR, Limits, Memory, Names, judged};
use peerway_lab_guest::engine::{Engine, REGISTERS};
use peerway_lab_guest::mapping::Mapping;
use peerway_lab_guest::pci::Function;
use peerway_lab_guest::vfio::{Container, HeldDevice};
use peerway_lab_guest::{Context as _, Result, init};
use peerway_lab_protocol::Accelerator;

const USAGE: &str = "usage: lab-vfio ADDRESS... [--map] [--shift BYTES] [--copy] [--wait]
  --map     map every accelerator's memory into the container at its own bus address
  --shift   as --map, at a distance from the bus address
  --copy    copy between every ordered pair
  --wait    hold until standard input ends";

#[derive(Debug, Default)]
struct Options {
    addresses: Vec<String>,
    map: bool,
    shift: u64,
    copy: bool,
    wait: bool,
}

/// An accelerator in the container.
#[derive(Debug)]
struct Held {
    address: String,
    engine: Engine,
    memory: Mapping,
    bus: u64,
    _devices: [HeldDevice; 2],
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lab-vfio: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let options = Options::parse(std::env::args().skip(1))?;
    let all = init::script()?.accelerators;
    let mut chosen = Vec::new();
    for address in &options.addresses {
        let found = all.iter().find(|one| one.engine == *address);
        chosen.push(found.ok_or_else(|| format!("{address} is no accelerator"))?);
    }
    let mut groups = Vec::new();
    for one in &chosen {
        groups.extend([group(&one.engine)?, group(&one.memory)?]);
    }
    groups.sort_unstable();
    groups.dedup();
    let container = Container::hold(&groups)?;
    let mut held = Vec::new();
    for one in chosen {
        held.push(Held::open(&container, one)?);
    }
    if options.map {
        for one in &held {
            container.map(&one.memory, one.bus + options.shift)?;
        }
    }
    println!("{{\"ready\":true}}");
    if options.copy {
        copy_all(&held, options.shift)?;
    }
    if options.wait {
        std::io::stdin().read_to_end(&mut Vec::new())?;
    }
    Ok(())
}

impl Options {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self> {
        let mut options = Self::default();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--map" => options.map = true,
                "--shift" => {
                    let value = words.next().ok_or(USAGE)?;
                    options.shift = value.parse().context(|| format!("--shift {value:?}"))?;
                    options.map = true;
                }
                "--copy" => options.copy = true,
                "--wait" => options.wait = true,
                _ if word.starts_with('-') => return Err(USAGE.into()),
                _ => options.addresses.push(word),
            }
        }
        if options.addresses.is_empty() { Err(USAGE.into()) } else { Ok(options) }
    }
}

impl Held {
    fn open(container: &Container, accelerator: &Accelerator) -> Result<Self> {
        let engine = container.device(group(&accelerator.engine)?, &accelerator.engine)?;
        let memory = container.device(group(&accelerator.memory)?, &accelerator.memory)?;
        engine.enable()?;
        memory.enable()?;
        Ok(Self {
            address: accelerator.engine.clone(),
            engine: Engine::new(engine.bar(ENGINE_BAR, REGISTERS)?),
            memory: memory.bar(accelerator.bar, usize::MAX)?,
            bus: Function::at(&accelerator.memory)?.bar(accelerator.bar)?.start,
            _devices: [engine, memory],
        })
    }
}

fn copy_all(held: &[Held], shift: u64) -> Result<()> {
    for from in held {
        for to in held.iter().filter(|to| to.address != from.address) {
            let memory = Memory {
                mapping: &to.memory,
                address: to.bus + shift,
                mode: if shift == 0 { "raw" } else { "mapped" },
            };
            let names = Names { from: &from.address, to: &to.address };
            let probe = judged(names, &from.engine, &memory, Limits::default())?;
            println!("{}", serde_json::to_string(&probe)?);
        }
    }
    Ok(())
}

fn group(address: &str) -> Result<u32> {
    let function = Function::at(address)?;
    function.group().ok_or_else(|| format!("{address} is in no IOMMU group").into())
}

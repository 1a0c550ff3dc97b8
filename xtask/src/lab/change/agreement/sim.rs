//! The script on the simulation.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};
use peerway_lab_protocol::Inventory;
use peerway_read::host_file;
use peerway_read::root::Root;
use peerway_sim::build::to_host_file;
use peerway_sim::react::{self, SimHost};
use serde::{Deserialize, Serialize};

use super::super::super::{paths, product};
use super::super::{CHANGED, OTHERS};
use super::state::{State, functions};
use super::{Act, Line};

/// Numbers of the processes that a capture does not hold.
const GUEST: u32 = 132;
const HOLDER: u32 = 4242;

/// The file in which the product keeps a simulated host between commands.
#[derive(Serialize, Deserialize)]
struct Kept {
    host: String,
    state: react::State,
    tree: String,
}

/// A simulated host between commands of the product.
pub(super) struct Simulation {
    place: PathBuf,
    host: String,
    binary: PathBuf,
}

impl Simulation {
    /// A simulation that begins as a capture of the lab's guest.
    pub(super) fn begin(capture: &str, inventory: &Inventory) -> Result<Self> {
        let place = paths::cache().join("run").join("agreement");
        if place.is_dir() {
            fs::remove_dir_all(&place)?;
        }
        fs::create_dir_all(&place)?;
        let tree = host_file::parse(capture).context("what the product captured")?;
        let mut host = SimHost::new("sim:lab", tree);
        let groups = inventory
            .groups
            .iter()
            .filter(|group| group.devices.iter().any(|device| OTHERS.contains(&device.as_str())));
        let nodes: Vec<String> = groups.map(|group| format!("/dev/vfio/{}", group.id)).collect();
        let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
        host.start_process(GUEST, "lab-vfio", "/qemu.slice/132.scope", &nodes);
        let file = place.join("lab.host");
        fs::write(&file, to_host_file("The lab's replica, captured by the product.", host.tree()))?;
        let host = format!("sim:{}", file.display());
        let simulation = Self { place, host, binary: product::binary()? };
        // Whatever it says, the host is kept from now on.
        simulation.changing(&["history"])?;
        Ok(simulation)
    }

    /// Does a line, and looks.
    pub(super) fn state(&mut self, line: &Line) -> Result<State> {
        let mut state = State::default();
        let plan = self.place.join("plan.json").display().to_string();
        let ended = match line.act {
            Act::Plan(devices) => {
                let devices = devices.join(",");
                // A plan that is there is left alone, and this one is another.
                drop(fs::remove_file(&plan));
                Some(self.product(&[
                    "plan",
                    "identity-groups",
                    "--device",
                    &devices,
                    "-o",
                    &plan,
                ])?)
            }
            Act::Apply(seconds) => {
                let seconds = seconds.to_string();
                let words = ["apply", &plan, "--no-timer", "--confirm-within", &seconds];
                Some(self.changing(&words)?)
            }
            Act::Product(words) => Some(self.changing(words)?),
            Act::HolderBegins => {
                self.edit(|host| {
                    let node = node_of(&host.root())?;
                    host.start_process(HOLDER, "sh", "/", &[&node]);
                    Ok(())
                })?;
                None
            }
            Act::HolderEnds => {
                self.edit(|host| {
                    host.end_process(HOLDER);
                    Ok(())
                })?;
                None
            }
            // What the timer's process does, without the wait for it.
            Act::TimePasses => {
                let later = (super::SHORT + 1).to_string();
                Some(self.changing(&["recover", "--later", &later])?)
            }
            Act::DriverFails => {
                self.edit(|host| {
                    host.state_mut().refuses_identity.insert("lab_board".to_owned());
                    Ok(host.give_driver(CHANGED[0].parse()?, "lab_board")?)
                })?;
                None
            }
        };
        if let Some((exit, said)) = ended {
            (state.exit, state.said) = (exit, said);
        }
        self.look(&mut state)?;
        if matches!(line.act, Act::Plan(_)) && line.exit == Some(0) {
            state.plan(&fs::read_to_string(&plan)?)?;
        }
        Ok(state)
    }

    fn look(&self, state: &mut State) -> Result<()> {
        let text = fs::read_to_string(self.place.join("state/host.host"))?;
        let root = Root::recorded(std::sync::Arc::new(host_file::parse(&text)?));
        for function in functions() {
            let directory = format!("/sys/bus/pci/devices/{function}");
            let driver = root.link(&format!("{directory}/driver")).unwrap_or_default();
            let driver = driver.rsplit('/').next().unwrap_or_default().to_owned();
            state.values.insert(format!("{function} driver"), driver);
            for (what, file) in [("override", "driver_override"), ("type", "iommu_group/type")] {
                let path = format!("{directory}/{file}");
                let value = match root.text(&path, peerway_read::root::SMALL) {
                    // Of a function that is no accelerator a capture has none, and nobody set one.
                    Err(error) if error.is_absent() && what == "override" => "(null)".to_owned(),
                    other => other?,
                };
                state.values.insert(format!("{function} {what}"), value);
            }
        }
        let environment = root.text("/run/peerway/p2p.env", 4096).unwrap_or_default();
        let lines = environment.lines().filter(|line| !line.starts_with('#'));
        let environment = lines.collect::<Vec<_>>().join(" ");
        state.values.insert("environment".to_owned(), environment.trim().to_owned());
        let (_, history) = self.changing(&["history", "--format", "jsonl"])?;
        state.history(history.lines().last().unwrap_or_default())
    }

    fn changing(&self, words: &[&str]) -> Result<(Option<i32>, String)> {
        let state = self.place.join("state").display().to_string();
        self.product(&[words, &["--state", &state]].concat())
    }

    fn product(&self, words: &[&str]) -> Result<(Option<i32>, String)> {
        let output = Command::new(&self.binary)
            .args(["--host", &self.host, "--accelerator"])
            .arg(paths::sources().join("accelerators.toml"))
            .args(words)
            .env("XDG_STATE_HOME", &self.place)
            .output()
            .with_context(|| format!("cannot start {}", self.binary.display()))?;
        let text = [output.stdout, output.stderr].concat();
        Ok((output.status.code(), String::from_utf8_lossy(&text).into_owned()))
    }

    /// Changes the simulated host as something else than the product does.
    fn edit(&self, change: impl FnOnce(&mut SimHost) -> Result<()>) -> Result<()> {
        let file = self.place.join("state/simulated.json");
        let mut kept: Kept = serde_json::from_slice(&fs::read(&file)?)?;
        let mut host = SimHost::restored(&self.host, host_file::parse(&kept.tree)?, kept.state);
        change(&mut host)?;
        let text = to_host_file("changed from outside", host.tree());
        kept.tree.clone_from(&text);
        kept.state = host.state().clone();
        fs::write(&file, serde_json::to_vec(&kept)?)?;
        // What only reads begins with the recording, and a plan is made by what reads.
        fs::write(self.place.join("lab.host"), &text)?;
        Ok(fs::write(self.place.join("state/host.host"), text)?)
    }
}

/// The node of the first changed device.
fn node_of(root: &Root) -> Result<String> {
    for name in root.list("/sys/class/uio")? {
        let link = root.link(&format!("/sys/class/uio/{name}/device"))?;
        if link.rsplit('/').next() == Some(CHANGED[0]) {
            return Ok(format!("/dev/{name}"));
        }
    }
    anyhow::bail!("{} has no node in the simulation", CHANGED[0])
}

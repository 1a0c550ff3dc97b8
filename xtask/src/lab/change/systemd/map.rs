//! The peer map over boots: the kernel says that the driver bound, udev starts the unit, and that makes the map.

use anyhow::Result;
use peerway_lab_protocol::Step;

use super::super::super::facts::Facts;
use super::super::super::kernel::Kernel;
use super::super::super::kmod;
use super::super::super::machine::Machine;
use super::super::{HEADS, declared, product, shell};
use super::looks::Told;
use super::{PROBE, beginning, boot, compare, elsewhere, image, list, units};

/// The operator's accelerators; the other four belong to a virtual machine.
const OWN: &str = "0000:01:00.0,0000:11:00.0,0000:61:00.0,0000:71:00.0";
const PLAN: &str = "/tmp/map.json";
/// What the module lists where the map is whole.
const WHOLE: &str = "entries 12";
/// The requester whose driver is taken away and given back.
const ONE: &str = "0000:11:00.0";
/// One whose driver comes back while the unit is at the first one's.
const LATE: &str = "0000:61:00.0";

/// Runs the part, on the machine whose memories lie above 4 GiB and with the module installed.
pub(super) fn run(kernel: &Kernel) -> Result<Facts> {
    let machine = Machine::named("large")?;
    let module = kmod::build(kernel)?.files.into_iter().find(|(name, _)| name == "peerway_map");
    let disk = image::build(kernel, &machine, module.as_ref())?;
    let run = |steps: Vec<Step>| boot(kernel, &machine, &disk).steps(steps).run();
    let mut told = Told::default();
    told.facts.say(
        "The module is installed below `updates`, with `depmod`. A plan of `peer-map` is confirmed to last; the \
         drivers of the operator's four bind at each boot after udev's coldplug was asked for.",
    );
    let report = run(installs())?;
    for (name, word) in [
        ("plan", "protects vm:132"),
        ("apply", "applied and verified"),
        ("confirm", "in force"),
        ("verify", "nobody else was touched"),
        ("list while in force", WHOLE),
        ("systemd-analyze verify", "clean"),
    ] {
        told.ended(&report, name, 0, word)?;
    }
    let report = run([looked("second boot"), rebinds(), undoes()].concat())?;
    for (name, word) in [
        ("second boot: the unit", "success"),
        ("second boot: journal of map", "in force"),
        ("second boot: list", WHOLE),
        ("second boot: environment", "NCCL_P2P_LEVEL"),
        ("second boot: verify", "nobody else was touched"),
        ("driver gone: environment", "NCCL_P2P_DISABLE=1"),
        ("driver back: environment", "NCCL_P2P_LEVEL"),
        ("driver back: list", WHOLE),
        ("driver back: verify", "nobody else was touched"),
        ("two drivers gone: environment", "NCCL_P2P_DISABLE=1"),
        ("they come back, the second while the unit runs", "activating"),
        ("two drivers back: environment", "NCCL_P2P_LEVEL"),
        ("two drivers back: list", WHOLE),
        ("two drivers back: verify", "nobody else was touched"),
        ("undo", "taken back"),
        ("undo: nothing is left", "gone"),
    ] {
        told.ended(&report, name, 0, word)?;
    }
    told.facts.expect("failed units", &report.stdout("second boot: failed units")?.trim(), &"");
    let left = elsewhere(&report, "undo: files")?;
    told.facts.expect("files after undo", &left, &Vec::new());
    let report = run([looked("after undo"), vec![compare("after undo: files")]].concat())?;
    for (name, status, word) in [
        ("after undo: the unit", 0, "not-found"),
        ("after undo: list", 0, "not loaded"),
        ("after undo: environment", 1, "No such file"),
    ] {
        told.ended(&report, name, status, word)?;
    }
    let left = elsewhere(&report, "after undo: files")?;
    told.facts.expect("files after undo and a boot", &left, &Vec::new());
    told.facts.table(&HEADS, &told.rows.clone());
    told.facts.say(
        "The unit was started by the kernel's bind events, at boot and after a driver was taken away and given back, \
         and once more where a second one came back while it ran; when a driver was taken away the environment was the safe one at once. After `undo --all` no file was left, and \
         the next boot had neither unit nor map.",
    );
    Ok(told.facts)
}

fn installs() -> Vec<Step> {
    let words = ["plan", "peer-map", "--device", OWN, "--last", "--probe", PROBE, "-o", PLAN];
    let mut steps = beginning();
    steps.extend([
        list("list"),
        declared("plan", &words),
        declared("apply", &["apply", PLAN, "--unproved", "--probe", PROBE]),
        product("confirm", &["confirm"]),
        product("verify", &["verify"]),
        entries("list while in force"),
        shell(
            "systemd-analyze verify",
            "systemd-analyze verify --man=no /etc/systemd/system/peerway-*.service sysinit.target \
             multi-user.target 2>&1 && echo clean",
        ),
    ]);
    steps
}

/// The module's own list.
fn entries(name: &str) -> Step {
    shell(name, "cat /proc/peerway-map 2>/dev/null || echo not loaded")
}

fn looked(at: &str) -> Vec<Step> {
    // Events are worked off after the system is up; where there is no unit there is none to wait for.
    let unit = "p() { systemctl show --property=$1 --value peerway-map.service; }; \
                for i in $(seq 300); do \
                if [ $(p LoadState) = not-found ]; then break; fi; \
                if [ -n \"$(p InvocationID)\" ] && [ $(p ActiveState) != activating ]; then break; fi; \
                sleep 0.5; done; \
                systemctl show --property=LoadState,Result,ExecMainStatus peerway-map.service";
    let mut steps = beginning();
    steps.extend([
        shell(&format!("{at}: the unit"), unit),
        units::failed(at),
        units::said(at, "map"),
        entries(&format!("{at}: list")),
        shell(&format!("{at}: environment"), "cat /run/peerway/p2p.env"),
        product(&format!("{at}: verify"), &["verify"]),
    ]);
    steps
}

/// Waits until the environment says a word.
fn until(name: &str, word: &str) -> Step {
    let line = format!(
        "for i in $(seq 200); do grep -q {word} /run/peerway/p2p.env && break; sleep 0.5; done; \
         cat /run/peerway/p2p.env; journalctl --boot --output=cat --no-pager --lines=20 \
         --unit=peerway-map.service >&2"
    );
    shell(name, &line)
}

fn rebinds() -> Vec<Step> {
    let of = |device: &str, file: &str| {
        format!("echo {device} > /sys/bus/pci/drivers/uio_pci_generic/{file}")
    };
    let to = |file: &str| of(ONE, file);
    // While it looks at the host: the first command of the unit that takes a while.
    let running = "until [ \"$(systemctl show --property=ActiveState --value peerway-map.service)\" \
                   = activating ]; do sleep 0.1; done; sleep 1";
    let one_by_one = format!(
        "{}; {running}; systemctl is-active peerway-map.service; {}",
        to("bind"),
        of(LATE, "bind")
    );
    vec![
        shell("driver goes", &to("unbind")),
        until("driver gone: environment", "NCCL_P2P_DISABLE"),
        shell("driver comes", &to("bind")),
        until("driver back: environment", "NCCL_P2P_LEVEL"),
        entries("driver back: list"),
        product("driver back: verify", &["verify"]),
        shell("two drivers go", &format!("{}; {}", to("unbind"), of(LATE, "unbind"))),
        until("two drivers gone: environment", "NCCL_P2P_DISABLE"),
        shell("they come back, the second while the unit runs", &one_by_one),
        until("two drivers back: environment", "NCCL_P2P_LEVEL"),
        entries("two drivers back: list"),
        product("two drivers back: verify", &["verify"]),
    ]
}

fn undoes() -> Vec<Step> {
    vec![
        product("undo", &["undo", "--all"]),
        compare("undo: files"),
        shell(
            "undo: nothing is left",
            "test ! -e /run/peerway && test ! -e /sys/module/peerway_map && echo gone",
        ),
    ]
}

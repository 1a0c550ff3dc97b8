//! A map that somebody else takes away, in part or whole, and one that is not taken away under a process.

use anyhow::Result;
use peerway_lab_protocol::Step;

use super::super::change::{HEADS, as_before, ended, product, shell};
use super::super::facts::Facts;
use super::super::kernel::Kernel;
use super::super::platform::Iommu;
use super::super::scenario::{inventory_step, older_than};
use super::super::script;
use super::{
    OWN, apply, arrived, beginning, boot, copies, entries, install, list, machine, plan, verdicts,
    with_functions, with_verdict,
};

/// The two devices whose map is lost.
const TWO: [&str; 2] = [OWN[0], OWN[1]];
const ENVIRONMENT: &str = "cat /run/peerway/p2p.env";
/// The page in the middle of what 01 reaches of 11.
const PAGE: &str = "middle=$(printf '0x%x' $(($(range 11 | cut -d' ' -f1) + 0x40000000))); \
    dma \"raw-unmap 0000:01:00.0 $middle 0x1000\"";
const HOLDER: &str =
    "d=/dev/$(ls /sys/bus/pci/devices/0000:11:00.0/uio); exec 3<>$d; echo ready; read line";

fn steps() -> Vec<Step> {
    let mut steps = beginning();
    steps.extend([
        install(),
        inventory_step("before"),
        // The DMA API, or anybody else, takes one page of an entry.
        plan("plan", &TWO),
        apply("apply"),
        product("confirm", &["confirm"]),
        with_functions("a page goes", &format!("insmod /lab/modules/lab_dma.ko; {PAGE}")),
        list("list without the page"),
        product("verify without the page", &["verify"]),
        shell("environment without the page", ENVIRONMENT),
        product("undo without the page", &["undo", "--all"]),
        list("list after the page"),
        inventory_step("after the page"),
        copies("copies after the page", &TWO),
        // A target is unbound by somebody else: its entries go with it.
        plan("plan again", &TWO),
        apply("apply again"),
        product("confirm again", &["confirm"]),
        shell(
            "a target is unbound",
            "echo 0000:11:00.1 > /sys/bus/pci/devices/0000:11:00.1/driver/unbind",
        ),
        list("list without the target"),
        verdicts("verdicts without the target"),
        product("verify without the target", &["verify"]),
        shell("environment without the target", ENVIRONMENT),
        shell("it is bound again", "echo 0000:11:00.1 > /sys/bus/pci/drivers/uio_pci_generic/bind"),
        product("verify with the target bound again", &["verify"]),
        product("undo without the target", &["undo", "--all"]),
        inventory_step("after the target"),
        // A process holds a device: the map stays, whoever asks.
        plan("plan a third time", &TWO),
        apply("apply a third time"),
        product("confirm a third time", &["confirm"]),
        script::start("holder", &["sh", "-c", HOLDER]),
        product("verify with copies and a holder", &["verify", "--probe", super::PROBE]),
        product("undo with a holder", &["undo", "--all"]),
        list("list with a holder"),
        shell("environment with a holder", ENVIRONMENT),
        script::stop("holder"),
        product("recover without it", &["recover"]),
        list("list after the holder"),
        inventory_step("after the holder"),
        script::stop("guest"),
    ]);
    steps
}

pub(super) fn run(kernel: &Kernel) -> Result<Facts> {
    let machine = machine()?;
    let report = boot(kernel, &machine)?.steps(steps()).run()?;
    let mut facts = Facts::default();
    facts.say(format!("The same machine, a map for both pairs of {}.", TWO.join(" ")));
    let mut rows = Vec::new();
    let taken = a_page_is_taken(kernel);
    let (verify, environment) = if taken {
        ((1, "lost"), "NCCL_P2P_DISABLE=1")
    } else {
        ((0, "in force"), "NCCL_P2P_LEVEL")
    };
    // On a slow machine the timer, which tries again by itself, may be first.
    let timer = report.outcome("recover without it")?.stdout.contains("nothing is under way");
    let recovered = if timer { (0, "nothing is under way") } else { (5, "taken back") };
    for (name, status, word) in [
        ("apply", 0, "applied and verified"),
        ("confirm", 0, "in force"),
        ("verify without the page", verify.0, verify.1),
        ("environment without the page", 0, environment),
        ("undo without the page", 0, "taken back"),
        ("apply again", 0, "applied and verified"),
        ("confirm again", 0, "in force"),
        ("verify without the target", 1, "is gone"),
        ("environment without the target", 0, "NCCL_P2P_DISABLE=1"),
        ("verify with the target bound again", 1, "is gone"),
        ("undo without the target", 0, "taken back"),
        ("apply a third time", 0, "applied and verified"),
        ("confirm a third time", 0, "in force"),
        ("verify with copies and a holder", 4, "stop what holds the devices"),
        ("undo with a holder", 6, "NOT taken back"),
        ("environment with a holder", 0, "NCCL_P2P_DISABLE=1"),
        ("recover without it", recovered.0, recovered.1),
    ] {
        ended(&mut facts, &mut rows, &report, name, status, word)?;
    }
    facts.table(&HEADS, &rows);
    let mut rows = Vec::new();
    for (name, what, left) in [
        (
            "list without the page",
            if taken {
                "one page of an entry is gone: the list does not see it"
            } else {
                "the kernel did not take a page out of an entry"
            },
            Some(2),
        ),
        ("list after the page", "after `undo`: the module is unloaded", None),
        ("list without the target", "a target was unbound by somebody else", Some(1)),
        ("list with a holder", "a process held a device during `undo`", Some(2)),
        ("list after the holder", "after `recover` without it", None),
    ] {
        let found = entries(&report, name)?;
        facts.expect(&format!("{name}: entries"), &found, &left);
        let shown = found.map_or_else(|| "module not loaded".to_owned(), |count| count.to_string());
        rows.push(vec![what.to_owned(), shown]);
    }
    facts.table(&["what happened", "entries in the module's list"], &rows);
    let works = with_verdict(&report, "verdicts without the target", &TWO, "works")?;
    facts.expect("pairs that work without the target", &works, &1);
    facts.say(format!(
        "With the memory of {} unbound, the product's verdict is that the pair which leads to it does not work, \
         and that the other one does.",
        TWO[1]
    ));
    let copied = arrived(&report, "copies after the page")?;
    facts.expect("copies after the page: intact, of all", &copied, &(0, 2));
    for name in ["after the page", "after the target", "after the holder"] {
        as_before(&mut facts, &report, name)?;
    }
    facts.say("Each time every driver, group, type and region was what it had been afterwards.");
    facts.say(if taken {
        "A page that goes from the middle of an entry is found by `verify`, which has the module look at every \
         page; the list, which looks at the first and the last, and so `status`, do not see it."
    } else {
        "A page could not be taken out of the middle of an entry here: the page tables hold it as a larger one, and \
         `iommu_unmap` took nothing."
    });
    Ok(facts)
}

/// From 7.0 on the page tables of AMD's driver give no part of a larger page (measured here: `iommu_unmap` takes
/// nothing).
fn a_page_is_taken(kernel: &Kernel) -> bool {
    kernel.platform.iommu != Iommu::Amd || older_than(kernel, 7, 0)
}

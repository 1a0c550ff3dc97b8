//! What goes wrong after the change: a driver that fails, two that apply at once, signals, and nobody who
//! gives the word.

use std::fs;

use anyhow::Result;

use super::super::boot::Report;
use super::super::facts::Facts;
use super::super::kernel::Kernel;
use super::super::machine::Machine;
use super::super::scenario::{inventory_of, inventory_step};
use super::super::{kmod, script};
use super::{
    HEADS, PLACE, PLAN, apply, as_before, beginning, board, boot, declared, differences, ended,
    plan, product, shell,
};

fn applying(tail: &str) -> String {
    format!(
        "{PLACE} --accelerator /lab/accelerators.toml apply {PLAN} --unproved --probe /lab/bin/lab-copy {tail}"
    )
}

pub(super) fn run(kernel: &Kernel) -> Result<Facts> {
    let machine = Machine::named("replica")?;
    let signal = |name: &str| {
        format!(
            "{} & p=$!; until [ \"$(cat /sys/bus/pci/devices/0000:11:00.0/iommu_group/type)\" = identity ]; do kill -0 $p || break; sleep 0.2; done; kill -{name} $p; wait $p",
            applying("")
        )
    };
    let twice = format!(
        "{} > /tmp/one 2>&1 & one=$!; until [ -s /var/lib/peerway/journal.jsonl ]; do sleep 0.1; done; {}; second=$?; wait $one; echo \"exits $(printf '%s\\n' $second $? | sort | xargs)\"",
        applying(""),
        applying("")
    );
    let bad_probe = "#!/bin/sh\necho '{\"protocol\":1,\"from\":\"'$3'\",\"to\":\"'$5'\",\"engine\":\"dma\",\"mode\":\"raw\",\"verdict\":\"damaged\",\"damage\":\"bits\",\"bytes\":8,\"first_bad_offset\":0,\"detail\":\"planted\"}'\n";
    let mut steps = beginning();
    steps.extend([
        plan("plan"),
        shell("probe", "chmod 755 /lab/bin/bad-probe"),
        declared(
            "a copy is damaged",
            &["apply", PLAN, "--unproved", "--probe", "/lab/bin/bad-probe"],
        ),
        inventory_step("after the damage"),
        shell("SIGINT", &signal("INT")),
        shell("SIGTERM", &signal("TERM")),
        shell("SIGHUP", &signal("HUP")),
        inventory_step("after the signals"),
        shell("two at once", &twice),
        product("rollback", &["rollback"]),
        inventory_step("after two"),
        shell("clock", "date -s 2030-01-01; date -s 2001-01-01"),
        apply("the clock was set"),
        product("rollback again", &["rollback"]),
        inventory_step("after the clock"),
        // What failed before is remembered, and would close the road.
        shell("another journal", "mv /var/lib/peerway /var/lib/peerway.before"),
        board::given("a driver whose boards fail under identity"),
        inventory_step("with that driver"),
        plan("plan for that driver"),
        apply("the driver fails after the change"),
        inventory_step("after the failure"),
        plan("plan after the failure"),
        script::stop("guest"),
    ]);
    let report = boot(kernel, &machine)?
        .file(board::PLACE, fs::read(kmod::build_board(kernel)?)?)
        .file("/lab/bin/bad-probe", bad_probe.as_bytes())
        .steps(steps)
        .run()?;
    judged(&report)
}

/// What the steps came to.
fn judged(report: &Report) -> Result<Facts> {
    let mut facts = Facts::default();
    let mut rows = Vec::new();
    for (name, status, word) in [
        ("a copy is damaged", 5, "did not arrive intact: damaged: planted"),
        ("SIGINT", 5, "interrupted by a signal"),
        ("SIGTERM", 5, "interrupted by a signal"),
        ("SIGHUP", 5, "interrupted by a signal"),
        ("two at once", 0, "exits 0 4"),
        ("rollback", 0, "taken back"),
        ("the clock was set", 0, "applied and verified"),
        ("rollback again", 0, "taken back"),
        ("a driver whose boards fail under identity", 0, "lab_board"),
        (
            "the driver fails after the change",
            5,
            "(lab_board): the call succeeded, and reading back gives none",
        ),
        ("plan after the failure", 4, "known-failure"),
    ] {
        ended(&mut facts, &mut rows, report, name, status, word)?;
    }
    facts.table(&HEADS, &rows);
    let with = inventory_of(report, "with that driver")?;
    let after = inventory_of(report, "after the failure")?;
    facts.expect("after the failure", &differences(&with, &after), &Vec::new());
    let failed = &report.outcome("the driver fails after the change")?.kernel;
    let said = failed.iter().any(|line| line.contains("lab_board") && line.contains("error -5"));
    facts.expect("the kernel says why the driver took it not", &said, &true);
    facts.quote(failed.iter().map(String::as_str).filter(|line| line.contains("lab_board")));
    for name in ["after the damage", "after the signals", "after two", "after the clock"] {
        as_before(&mut facts, report, name)?;
    }
    facts.say(
        "After each of them every driver, group and type was what it had been. The driver that fails is the lab's \
         own (`lab/kmod-board`): it takes no device under an identity domain, and the line above is the kernel's.",
    );
    Ok(facts)
}

/// The timer takes it back: with the terminal and the command gone, and with a holder alive.
pub(super) fn timer(kernel: &Kernel) -> Result<Facts> {
    let machine = Machine::named("replica")?;
    // A session of its own that is killed whole stands for a terminal that is closed.
    let gone = format!(
        "setsid sh -c 'echo $$ > /tmp/session; {}; sleep 1000' > /tmp/said 2>&1 & \
         until grep -q verified /tmp/said; do sleep 1; done; kill -HUP -$(cat /tmp/session); \
         kill -KILL -$(cat /tmp/session); cat /tmp/said",
        applying("--confirm-within 5")
    );
    let until = |state: &str| {
        format!(
            "for i in $(seq 100); do {PLACE} history | grep -q '{state}' && break; sleep 1; done; {PLACE} history"
        )
    };
    let mut steps = beginning();
    steps.extend([
        plan("plan"),
        shell("applied, and the terminal is gone", &gone),
        shell("the timer takes it back", &until("taken back")),
        inventory_step("after the timer"),
        plan("plan again"),
        declared("applied again", &["apply", PLAN, "--unproved", "--probe", "/lab/bin/lab-copy", "--confirm-within", "5"]),
        script::start("holder", &["sh", "-c", "d=/dev/$(ls /sys/bus/pci/devices/0000:11:00.0/uio); exec 3<>$d; echo ready; read line"]),
        shell("the timer meets a holder", &until("pending holder")),
        product("recover with a holder", &["recover"]),
        shell("the safe environment stands", "cat /run/peerway/p2p.env"),
        script::stop("holder"),
        product("recover without it", &["recover"]),
        inventory_step("after the holder"),
        script::stop("guest"),
    ]);
    let report = boot(kernel, &machine)?.steps(steps).run()?;
    let mut facts = Facts::default();
    let mut rows = Vec::new();
    for (name, status, word) in [
        ("applied, and the terminal is gone", 0, "applied and verified"),
        ("the timer takes it back", 0, "not confirmed in time"),
        ("applied again", 0, "applied and verified"),
        ("the timer meets a holder", 0, "pending holder"),
        ("recover with a holder", 6, "NOT taken back"),
        ("the safe environment stands", 0, "NCCL_P2P_DISABLE=1"),
        ("recover without it", 5, "taken back"),
    ] {
        ended(&mut facts, &mut rows, &report, name, status, word)?;
    }
    facts.table(&HEADS, &rows);
    as_before(&mut facts, &report, "after the timer")?;
    as_before(&mut facts, &report, "after the holder")?;
    Ok(facts)
}

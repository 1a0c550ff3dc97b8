//! What makes a road last: files that outlast the boot, each of which a person can read.
//!
//! They are steps of the plan, with their whole content, so that they are shown before they are
//! written, journaled when they are, and removed by `undo --all`. Nothing is enabled by a link: a
//! drop-in of the target wants the unit. Peer access is off at every boot until it is proved anew.

mod hook;
mod units;

use crate::id::RoadId;
use crate::op::{Found, Op};
use crate::plan::build::{Draft, Expect};
use crate::plan::{Phase, Plan, Step};

/// The safe environment, as it is copied at every boot.
pub const SAFE: &str = "/etc/peerway/safe.env";
/// The confirmed plan that is carried out before the driver binds.
pub const PLAN: &str = "/etc/peerway/identity.json";
/// Declarations of accelerators, as they were given when the plan was made: this with a number.
pub const ACCELERATOR: &str = "/etc/peerway/accelerator-";
/// Units, and what has the targets want them.
const UNITS: &str = "/etc/systemd/system/";
/// What starts the map when a driver binds.
const RULES: &str = "/etc/udev/rules.d/90-peerway.rules";
/// What warns of a new kernel.
const KERNEL_HOOK: &str = "/etc/kernel/postinst.d/zz-peerway";
/// What warns of a new driver.
const PACKAGE_HOOK: &str = "/etc/apt/apt.conf.d/90peerway";

/// The units that there can be.
const NAMES: [&str; 7] = [
    "peerway-safe.service",
    "peerway-recover.service",
    "peerway-identity.service",
    "peerway-map.service",
    "peerway-prove.service",
    "sysinit.target.d/peerway.conf",
    "multi-user.target.d/peerway.conf",
];

/// How a road is made to last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lasting {
    /// Where this program is, absolute.
    pub program: String,
    /// The program that proves that data arrives, absolute; without one peer access stays off at
    /// every boot until the operator proves it.
    pub probe: Option<String>,
    /// Declarations of accelerators.
    pub accelerators: Vec<String>,
}

/// A file.
struct File {
    path: String,
    content: String,
}

impl File {
    fn new(path: impl Into<String>, content: String) -> Self {
        Self { path: path.into(), content }
    }
}

/// Whether a path is one of those that Peerway puts in place: a plan may name no other.
pub fn is_ours(path: &str) -> bool {
    let number = path.strip_prefix(ACCELERATOR).and_then(|rest| rest.strip_suffix(".toml"));
    let unit = path.strip_prefix(UNITS);
    [SAFE, PLAN, RULES, KERNEL_HOOK, PACKAGE_HOOK].contains(&path)
        || number.is_some_and(|number| number.parse::<u16>().is_ok())
        || unit.is_some_and(|unit| NAMES.contains(&unit))
}

/// The mode bits that a file of ours has; `None` where the path is none of ours.
pub(crate) fn mode_of(path: &str) -> Option<u32> {
    is_ours(path).then_some(if path == KERNEL_HOOK { 0o755 } else { 0o644 })
}

/// Adds to a plan what makes it last: its files are put in place right after the operator's word,
/// before anybody is let in.
pub fn extend(plan: Plan, how: &Lasting) -> Result<Plan, serde_json::Error> {
    let files = files(&plan, how)?;
    let (before, confirm): (Vec<Step>, Vec<Step>) =
        plan.steps.iter().cloned().partition(|step| step.phase != Phase::Confirm);
    let mut draft = Draft::default();
    draft.steps = before;
    for File { path, content } in files {
        let mode = mode_of(&path).unwrap_or(0o644);
        let act = Op::Install { path, mode, content };
        // Whatever is there is somebody's, or another road's that lasts: that is undone first.
        draft.push(Phase::Confirm, act, Expect::Read(Found::Nothing));
    }
    draft.steps.extend(confirm);
    for (step, number) in draft.steps.iter_mut().zip(1..) {
        step.number = number;
    }
    let mut plan = Plan { steps: draft.steps, digest: String::new(), ..plan };
    plan.notes
        .push("what lasts is in the plan as files: read them there before you apply it".to_owned());
    plan.digest = plan.compute_digest()?;
    Ok(plan)
}

fn files(plan: &Plan, how: &Lasting) -> Result<Vec<File>, serde_json::Error> {
    let unit = |name: &str, text: String| File::new(format!("{UNITS}{name}"), text);
    let declared: Vec<String> =
        (0..how.accelerators.len()).map(|number| format!("{ACCELERATOR}{number}.toml")).collect();
    let says = units::Says { how, declared: &declared, plan };
    let mut files = vec![
        File::new(SAFE, crate::operator::environment::safe_file()),
        unit("peerway-safe.service", units::safe()),
        unit("peerway-recover.service", says.recover()),
    ];
    for (path, text) in declared.iter().zip(&how.accelerators) {
        files.push(File::new(path, text.clone()));
    }
    let (mut early, mut late) = (vec!["peerway-safe.service"], vec!["peerway-recover.service"]);
    match plan.road {
        RoadId::IdentityGroups => {
            files.push(File::new(PLAN, format!("{}\n", serde_json::to_string_pretty(plan)?)));
            files.push(unit("peerway-identity.service", says.identity()));
            early.push("peerway-identity.service");
            if let Some(text) = says.prove() {
                files.push(unit("peerway-prove.service", text));
                late.push("peerway-prove.service");
            }
        }
        RoadId::PeerMap => {
            files.push(unit("peerway-map.service", says.map()));
            files.push(File::new(RULES, says.rules()));
        }
        _ => {}
    }
    files.push(unit("sysinit.target.d/peerway.conf", units::wants(&early)));
    files.push(unit("multi-user.target.d/peerway.conf", units::wants(&late)));
    files.push(File::new(KERNEL_HOOK, hook::kernel(&says)));
    files.push(File::new(PACKAGE_HOOK, hook::package(&says)));
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_own_files_are_ours() {
        for name in NAMES {
            assert!(is_ours(&format!("{UNITS}{name}")), "{name}");
        }
        assert!(is_ours(SAFE) && is_ours(PLAN) && is_ours("/etc/peerway/accelerator-0.toml"));
        for path in [
            "/etc/passwd",
            "/etc/peerway/../passwd",
            "/etc/peerway/accelerator-../x.toml",
            "/etc/systemd/system/ssh.service",
            "/etc/systemd/system/peerway-safe.service/..",
            "",
        ] {
            assert!(!is_ours(path), "{path}");
        }
    }
}

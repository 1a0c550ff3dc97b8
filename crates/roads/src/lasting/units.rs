//! Units of systemd, and the rule that starts the map when a driver binds.

use std::fmt::Write as _;

use super::{Lasting, PLAN, SAFE};
use crate::op::ENVIRONMENT_FILE;
use crate::plan::Plan;

/// What starts jobs: everything of ours is over before them.
const STARTERS: &str = "pve-guests.service lxc.service lxc-net.service libvirtd.service \
                        docker.service containerd.service kubelet.service slurmd.service";

/// There once a driver bound after the unit of the map began.
const BOUND: &str = "/run/peerway-map.bound";

/// Copies the safe environment. A program of the system does it, so that peer access is off even
/// where Peerway is not installed any more.
fn copies() -> String {
    format!("/usr/bin/install -D -m 0644 {SAFE} {ENVIRONMENT_FILE}")
}

pub(super) fn safe() -> String {
    format!(
        "# Written by Peerway. Peer access is off at every boot until it is proved: units take\n\
         # EnvironmentFile={ENVIRONMENT_FILE}, without a leading -, after this one.\n\
         [Unit]\n\
         Description=Peerway: peer access between GPUs is off until it is proved\n\
         DefaultDependencies=no\n\
         After=systemd-remount-fs.service\n\
         Before=sysinit.target shutdown.target {STARTERS}\n\
         Conflicts=shutdown.target\n\
         \n\
         [Service]\n\
         Type=oneshot\n\
         RemainAfterExit=yes\n\
         ExecStart={}\n",
        copies()
    )
}

/// A drop-in that has a target want units.
pub(super) fn wants(units: &[&str]) -> String {
    format!("# Written by Peerway.\n[Unit]\nWants={}\n", units.join(" "))
}

/// What the units say of a plan.
pub(super) struct Says<'a> {
    pub(super) how: &'a Lasting,
    pub(super) declared: &'a [String],
    pub(super) plan: &'a Plan,
}

impl Says<'_> {
    /// The program with the options that each command takes.
    pub(super) fn program(&self) -> String {
        let mut words = self.how.program.clone();
        for file in self.declared {
            words.push_str(" --accelerator ");
            words.push_str(file);
        }
        words
    }

    fn probe(&self) -> String {
        let probe = self.how.probe.as_ref();
        probe.map(|probe| format!(" --probe {probe}")).unwrap_or_default()
    }

    pub(super) fn recover(&self) -> String {
        format!(
            "# Written by Peerway: ends what a crash left. On a new boot nothing of it is left but the\n\
             # record. 5 is \"taken back\".\n\
             [Unit]\n\
             Description=Peerway: transactions that were cut off\n\
             Requires=peerway-safe.service\n\
             After=peerway-safe.service local-fs.target\n\
             Before={STARTERS}\n\
             \n\
             [Service]\n\
             Type=oneshot\n\
             SuccessExitStatus=5\n\
             ExecStart={} recover\n",
            self.program()
        )
    }

    /// Before udev's coldplug and the loading of modules. Where something does not fit, the driver
    /// binds under translation, and the environment stays safe.
    pub(super) fn identity(&self) -> String {
        format!(
            "# Written by Peerway: sets the domains of the confirmed plan before the driver binds. What\n\
             # is different from the host that the plan was confirmed on is refused; the environment\n\
             # stays safe until copies were seen to arrive.\n\
             [Unit]\n\
             Description=Peerway: identity domains before the GPU driver\n\
             DefaultDependencies=no\n\
             Requires=peerway-safe.service\n\
             After=peerway-safe.service systemd-remount-fs.service\n\
             Before=systemd-modules-load.service systemd-udev-trigger.service sysinit.target \
             shutdown.target\n\
             Conflicts=shutdown.target\n\
             ConditionPathExists={PLAN}\n\
             ConditionPathIsReadWrite=/var/lib/peerway\n\
             \n\
             [Service]\n\
             Type=oneshot\n\
             ExecStart={} at-boot {PLAN}\n",
            self.program()
        )
    }

    /// Once the drivers are bound: copies with checked data, and then the environment. `None`
    /// without a program that copies.
    pub(super) fn prove(&self) -> Option<String> {
        self.how.probe.as_ref()?;
        Some(format!(
            "# Written by Peerway: proves that data arrives on this boot, and only then lifts the safe\n\
             # environment.\n\
             [Unit]\n\
             Description=Peerway: proof of peer access on this boot\n\
             Requires=peerway-safe.service\n\
             Wants=systemd-udev-settle.service\n\
             After=peerway-safe.service peerway-recover.service systemd-udev-settle.service\n\
             Before={STARTERS}\n\
             ConditionPathExists={PLAN}\n\
             \n\
             [Service]\n\
             Type=oneshot\n\
             ExecStart={} verify{}\n",
            self.program(),
            self.probe()
        ))
    }

    /// A whole transaction: every gate is checked again, and what fails takes itself back.
    pub(super) fn map(&self) -> String {
        let program = self.program();
        let devices: Vec<String> = self.plan.goal.devices.iter().map(ToString::to_string).collect();
        let devices = devices.join(",");
        let file = "/run/peerway-map.json";
        format!(
            "# Written by Peerway: makes the map anew whenever the driver binds: a new plan, applied\n\
             # and proved. Until then, and where anything fails, the environment is safe. Whoever had\n\
             # this unit installed took a road that was never tried on GPUs (--unproved) with it.\n\
             [Unit]\n\
             Description=Peerway: the peer map\n\
             Requires=peerway-safe.service\n\
             After=peerway-safe.service peerway-recover.service\n\
             Before={STARTERS}\n\
             StartLimitIntervalSec=0\n\
             \n\
             [Service]\n\
             Type=oneshot\n\
             # The timer that takes back what was not confirmed outlives the commands.\n\
             KillMode=process\n\
             ExecStart={}\n\
             ExecStart=/usr/bin/rm -f {BOUND}\n\
             # A file that is there is left alone by plan: this one is of the last time that it bound.\n\
             ExecStart=/usr/bin/rm -f {file}\n\
             ExecStart={program} plan peer-map --device {devices} --stop operator -o {file}\n\
             ExecStart={program} apply {file} --unproved{}\n\
             ExecStart={program} confirm\n\
             # A driver that bound meanwhile did not start it again, since it ran.\n\
             ExecStopPost=/bin/sh -c '[ \"$$SERVICE_RESULT\" = success ] || [ ! -e {BOUND} ] || \
             exec systemctl --no-block --job-mode=fail start peerway-map.service'\n",
            copies(),
            self.probe()
        )
    }

    /// The kernel says when a driver binds and unbinds; the map is lost with the driver, so that the
    /// environment is safe before anything else.
    pub(super) fn rules(&self) -> String {
        let mut text =
            "# Written by Peerway: the map is made when the driver binds, and lost when it \
                        goes.\n"
                .to_owned();
        for device in &self.plan.goal.devices {
            let of = format!("SUBSYSTEM==\"pci\", KERNEL==\"{device}\"");
            // Writing to a String cannot fail.
            writeln!(
                text,
                "ACTION==\"bind\", {of}, TAG+=\"systemd\", RUN+=\"/usr/bin/touch {BOUND}\", \
                 ENV{{SYSTEMD_WANTS}}+=\"peerway-map.service\""
            )
            .unwrap_or_default();
            writeln!(text, "ACTION==\"unbind|remove\", {of}, RUN+=\"{}\"", copies())
                .unwrap_or_default();
        }
        text
    }
}

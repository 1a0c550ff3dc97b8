//! Whether NVIDIA's driver keeps a GPU initialised while nobody uses it: a driver that does holds it,
//! and an unbinding would wait for that for ever. The driver's own program asks and tells it, and the
//! persistence daemon where one runs (`nvidia-smi -pm`, of one GPU each time); every call opens the
//! GPU, and may not come back on one that is half dead, hence the deadlines.

use std::path::PathBuf;
use std::time::Duration;

use peerway_core::address::PciAddress;
use peerway_roads::op::Found;
use peerway_roads::{Op, Plan};

use super::LiveHost;
use super::program::{self, Ran};
use crate::mutator::{WriteError, spell};

/// Where the program is, below the root; the first that is there.
const PLACES: [&str; 3] =
    ["usr/bin/nvidia-smi", "usr/local/bin/nvidia-smi", "usr/local/nvidia/bin/nvidia-smi"];
/// Without persistence each call brings the GPU up and down again, which takes seconds.
const PATIENCE: Duration = Duration::from_mins(1);

impl LiveHost {
    fn smi(&self) -> Result<PathBuf, String> {
        let places = PLACES.map(|place| self.place.join(place));
        let found = places.into_iter().find(|place| place.try_exists().unwrap_or(false));
        found.ok_or_else(|| {
            format!(
                "whether the driver keeps the GPU open is unknown: there is no nvidia-smi (/{})",
                PLACES.join(", /")
            )
        })
    }

    /// `on` or `off`.
    pub(super) fn persistence(&self, act: &Op, device: PciAddress) -> Result<Found, WriteError> {
        self.is_persistent(device)
            .map(|on| Found::Value(if on { "on" } else { "off" }.to_owned()))
            .map_err(|why| Self::unreadable(act, why))
    }

    fn is_persistent(&self, device: PciAddress) -> Result<bool, String> {
        let program = self.smi()?;
        let gpu = device.to_string();
        let words =
            ["-i", &gpu, "--query-gpu=pci.bus_id,persistence_mode", "--format=csv,noheader"];
        let text = program::ask((&program, &words), PATIENCE)?;
        let told = told(text.trim(), device);
        told.ok_or_else(|| format!("nvidia-smi says {:?} of {device}", text.trim()))
    }

    /// Switches it, for one GPU.
    pub(super) fn switch_persistence(
        &self,
        act: &Op,
        device: PciAddress,
        on: bool,
    ) -> Result<(), WriteError> {
        let not_offered = |why: String| WriteError::NotOffered { act: spell(act), why };
        let program = self.smi().map_err(not_offered)?;
        let gpu = device.to_string();
        let words = ["-i", &gpu, "-pm", if on { "1" } else { "0" }];
        match program::run(&self.blocking, (&program, &words), &spell(act), PATIENCE) {
            Ok(Ran::Done) => Ok(()),
            Ok(Ran::Refused(said)) => Err(not_offered(format!("nvidia-smi says {said}"))),
            Ok(Ran::Hangs) => Err(WriteError::Hangs { act: spell(act) }),
            Err(why) => Err(not_offered(why)),
        }
    }

    /// Why a plan that switches it could not be carried out: nobody can tell how it is now.
    pub(super) fn persistence_refuses(&self, plan: &Plan) -> Option<String> {
        plan.steps.iter().find_map(|step| match &step.act {
            Op::Persistence { device, .. } => self.is_persistent(*device).err(),
            _ => None,
        })
    }
}

/// Whether a line says that the mode of this very GPU is on, or off. It writes domains with eight
/// digits, and letters in capitals.
fn told(line: &str, device: PciAddress) -> Option<bool> {
    let (seen, mode) = line.split_once(", ")?;
    if seen.parse() != Ok(device) {
        return None;
    }
    match mode {
        "Enabled" => Some(true),
        "Disabled" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the tree of the stand-in")]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::super::tests::{allow, host, tree};
    use super::*;
    use crate::mutator::Mutator as _;

    const GPU: &str = "0000:01:00.0";

    /// A program that keeps the mode in a file, and answers as the driver's own does.
    fn with_mode(mode: &str) -> tempfile::TempDir {
        let place = tree();
        let root = place.path();
        std::fs::create_dir_all(root.join("usr/bin")).unwrap();
        std::fs::write(root.join("mode"), mode).unwrap();
        let text = format!(
            "#!/bin/sh
PATH=/usr/bin:/bin
cd {}
case \"$*\" in
*' -pm 0') echo Disabled > mode ;;
*' -pm 1') echo Enabled > mode ;;
*persistence_mode*) echo \"0000$2, $(cat mode)\" ;;
*) exit 9 ;;
esac
",
            root.display()
        );
        let path = root.join("usr/bin/nvidia-smi");
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        place
    }

    fn switch(on: bool) -> Op {
        Op::Persistence { device: GPU.parse().unwrap(), on }
    }

    #[test]
    fn persistence_is_switched_off_and_on_again() {
        let place = with_mode("Enabled");
        let mut host = host(place.path());
        let value = |text: &str| Found::Value(text.to_owned());
        assert_eq!(host.current(&switch(false)).unwrap(), value("on"));
        assert!(matches!(host.perform(&switch(false)), Err(WriteError::NotOffered { .. })));
        allow(&mut host, &[switch(false)], "");
        host.perform(&switch(false)).unwrap();
        assert_eq!(host.current(&switch(false)).unwrap(), value("off"));
        host.perform(&switch(true)).unwrap();
        assert_eq!(host.current(&switch(false)).unwrap(), value("on"));
    }

    #[test]
    fn only_a_line_about_the_very_gpu_counts() {
        for (line, expected) in [
            ("00000000:C1:00.0, Enabled", Some(true)),
            ("00000000:C1:00.0, Disabled", Some(false)),
            ("0000:c1:00.0, Disabled", Some(false)),
            ("00000001:C1:00.0, Disabled", None),
            ("00000000:C2:00.0, Disabled", None),
            ("00000000:C1:00.0, [N/A]", None),
            ("00000000:C1:00.0, Enabled\n00000000:C2:00.0, Enabled", None),
            ("No devices were found", None),
            ("", None),
        ] {
            assert_eq!(told(line, "0000:c1:00.0".parse().unwrap()), expected, "{line}");
        }
    }

    #[track_caller]
    fn check(mode: &str, says: &str) {
        let place = with_mode(mode);
        let host = host(place.path());
        let error = host.current(&switch(false)).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }

    #[test]
    fn what_is_not_told_is_unknown() {
        check("[N/A]", "nvidia-smi says \"00000000:01:00.0, [N/A]\" of 0000:01:00.0");
        check("", "nvidia-smi says");
        let place = tree();
        let error = host(place.path()).current(&switch(false)).unwrap_err().to_string();
        assert!(error.contains("there is no nvidia-smi"), "{error}");
    }
}

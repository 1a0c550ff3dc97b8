//! The last measurement that `test` kept here, judged by the present boot and bindings.

use peerway_core::address::PciAddress;
use peerway_core::observed::Observed;
use peerway_core::snapshot::measured::{LAST_TEST, LAST_TEST_SCHEMA, LastTest, Measured};

use crate::collect::pci;
use crate::root::Root;

/// A measurement of sixteen GPUs has 240 pairs and takes a tenth of this.
const MOST: usize = 4 << 20;

/// The kept measurement; absent where none was made.
pub fn collect(root: &Root, boot_id: Option<&String>) -> Observed<Measured> {
    let bytes = match root.read(LAST_TEST, MOST) {
        Ok(bytes) => bytes,
        Err(error) => return error.observed(),
    };
    match serde_json::from_slice::<LastTest>(&bytes) {
        Ok(test) if test.schema == LAST_TEST_SCHEMA => {
            let boot_id = boot_id.map(String::as_str);
            Observed::Known(Measured::new(test, boot_id, |gpu| binding(root, gpu)))
        }
        Ok(test) => Observed::Unreadable(format!("a format that is not known: {}", test.schema)),
        Err(error) => Observed::Unreadable(format!("no measurement: {error}")),
    }
}

/// The number of a device's binding: each bind makes the link to the driver anew.
pub fn binding(root: &Root, device: PciAddress) -> Option<u64> {
    root.inode(&format!("{}/{device}/driver", pci::DEVICES)).ok()
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "fixtures on disk")]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    const GPU: &str = "0000:21:00.0";

    /// A host that keeps `text`, with a bound GPU.
    fn host(text: &str) -> tempfile::TempDir {
        let place = tempfile::tempdir().unwrap();
        let at = |path: &str| place.path().join(path.trim_start_matches('/'));
        fs::create_dir_all(at(LAST_TEST).parent().unwrap()).unwrap();
        fs::write(at(LAST_TEST), text).unwrap();
        let device = at(&format!("{}/{GPU}", pci::DEVICES));
        fs::create_dir_all(&device).unwrap();
        symlink("../../drivers/nvidia", device.join("driver")).unwrap();
        place
    }

    fn kept(binding: u64) -> String {
        format!(
            r#"{{"schema": "peerway/last-test/1", "boot_id": "one", "view": null,
                "measured_at": "2026-11-30T10:00:00Z", "pairs": [], "all_reduce": [],
                "gpus": [{{"address": "{GPU}", "uuid": "GPU-1", "binding": {binding}}}]}}"#
        )
    }

    fn look(place: &Path) -> Observed<Measured> {
        collect(&Root::open(place).unwrap(), Some(&"one".to_owned()))
    }

    #[test]
    fn a_binding_ends_what_was_measured() {
        let place = host("");
        let root = Root::open(place.path()).unwrap();
        let gpu = GPU.parse().unwrap();
        let number = binding(&root, gpu).unwrap();
        fs::write(place.path().join(LAST_TEST.trim_start_matches('/')), kept(number)).unwrap();
        assert_eq!(look(place.path()).known().unwrap().old, None);
        fs::write(place.path().join(LAST_TEST.trim_start_matches('/')), kept(number + 1)).unwrap();
        let old = look(place.path()).known().unwrap().old.clone().unwrap();
        assert!(old.contains("was bound"), "{old}");
    }

    #[test]
    fn what_is_no_measurement_is_told() {
        let said = |text: &str| look(host(text).path()).unreadable().map(str::to_owned).unwrap();
        assert!(said("{").contains("no measurement"));
        assert!(said(&kept(1).replace("last-test/1", "last-test/9")).contains("last-test/9"));
        let empty = tempfile::tempdir().unwrap();
        assert!(look(empty.path()).is_absent());
    }
}

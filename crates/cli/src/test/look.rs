//! A look at the host before anything is measured, by a child of this program: the walls that a
//! look raises forbid starting children, and a measurement is made of children.

use std::path::Path;
use std::time::Duration;

use peerway_core::address::{BusAddress, PciAddress};
use peerway_core::boards;
use peerway_gpu::{InUse, Launch, Limits, run_child};
use serde::Deserialize;

use super::watch::Known;

/// A look has deadlines of its own; this one is for a look that hangs all the same.
pub(super) const LIMIT: Duration = Duration::from_mins(1);

/// Daemons of the driver that keep device nodes open and do no work on a GPU. The kernel cuts a
/// process's name after 15 characters.
const IDLE: [&str; 2] = ["(nvidia-persiste)", "(nv-fabricmanage)"];

/// What the look saw.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Look {
    devices: Vec<Device>,
    gaps: Vec<Gap>,
    /// Why nothing was seen, if the look failed.
    #[serde(skip)]
    failed: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[expect(clippy::struct_field_names, reason = "the names of the document")]
struct Device {
    address: PciAddress,
    vendor_id: Option<String>,
    device_id: Option<String>,
    uuid: Option<String>,
    driver: Option<String>,
    claims: Vec<Claim>,
    #[serde(default)]
    upstream: Vec<PciAddress>,
    #[serde(default)]
    bars: Vec<Bar>,
}

#[derive(Clone, Debug, Deserialize)]
struct Bar {
    start: BusAddress,
    size: u64,
}

#[derive(Clone, Debug, Deserialize)]
struct Claim {
    tenant: String,
    source: String,
    active: String,
}

#[derive(Clone, Debug, Deserialize)]
struct Gap {
    source: String,
    why: String,
}

impl Look {
    /// Looks at this host, or at one whose files are below a directory. A look that failed has
    /// seen nothing, and knows it.
    pub(super) fn take(program: &Path, place: Option<&Path>, limit: Duration) -> Self {
        Self::try_take(program, place, limit)
            .unwrap_or_else(|why| Self { failed: Some(why), ..Self::default() })
    }

    fn try_take(program: &Path, place: Option<&Path>, limit: Duration) -> Result<Self, String> {
        let host = place.map_or("live".to_owned(), |place| place.display().to_string());
        let launch = Launch {
            program: program.to_owned(),
            arguments: ["scan", "--format", "json", "--host", &host].map(str::to_owned).to_vec(),
            environment: Vec::new(),
            unset: Vec::new(),
            clean: false,
        };
        let mut text = String::new();
        let limits = Limits { total: limit, quiet: limit, step: Duration::ZERO };
        let end = run_child(&launch, "", limits, &mut |line| {
            text.push_str(line);
            text.push('\n');
        })
        .map_err(|error| error.to_string())?;
        if !end.status.is_some_and(|status| status.success()) {
            let log = end.log.join(" ");
            return Err(format!("peerway scan {} {log}", end.describe()).trim_end().to_owned());
        }
        Self::parse(&text)
    }

    fn parse(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| format!("peerway scan: {error}"))
    }

    /// GPUs that the NVIDIA driver drives.
    fn driven(&self) -> impl Iterator<Item = &Device> {
        self.devices.iter().filter(|device| device.driver.as_deref() == Some("nvidia"))
    }

    /// Addresses of the GPUs that the NVIDIA driver drives; of those, a tenant's, if one is named
    /// and any is known to be its.
    pub(super) fn gpus_of(&self, tenant: Option<&str>) -> Vec<PciAddress> {
        let of = |wanted: &str| -> Vec<PciAddress> {
            self.driven()
                .filter(|device| device.claims.iter().any(|claim| claim.tenant == wanted))
                .map(|device| device.address)
                .collect()
        };
        match tenant.map(of) {
            Some(own) if !own.is_empty() => own,
            _ => self.driven().map(|device| device.address).collect(),
        }
    }

    /// What a watch needs to know of them.
    pub(super) fn known(&self) -> Vec<Known> {
        self.driven()
            .map(|device| Known {
                address: device.address,
                upstream: device.upstream.clone(),
                pcie_only: device.pcie_only(),
                bars: device.bars.iter().map(|bar| (bar.start, bar.size)).collect(),
            })
            .collect()
    }

    /// GPUs that processes hold.
    pub(super) fn in_use(&self) -> Vec<InUse> {
        self.driven()
            .filter_map(|device| {
                let mut by: Vec<String> = device
                    .claims
                    .iter()
                    .filter(|claim| claim.active == "yes" && claim.source.starts_with("process "))
                    .filter(|claim| !IDLE.iter().any(|idle| claim.source.ends_with(idle)))
                    .map(|claim| format!("{} of {}", claim.source, claim.tenant))
                    .collect();
                by.dedup();
                (!by.is_empty()).then(|| InUse { gpu: device.address, by: by.join(", ") })
            })
            .collect()
    }

    /// What keeps the list of holders from being whole.
    pub(super) fn holder_gaps(&self) -> Vec<String> {
        let failed = self.failed.iter().map(|why| {
            format!(
                "the host could not be looked at first ({why}): whether GPUs are in use is unknown"
            )
        });
        let gaps = self.unseen().map(|gap| {
            format!(
                "whether GPUs are in use is not certain: {}: {} (run it as root, outside of \
                 containers)",
                gap.source, gap.why
            )
        });
        failed.chain(gaps).collect()
    }

    /// Why GPUs of which no holder shows may have one all the same.
    pub(super) fn unknown(&self) -> Option<String> {
        let gap = || self.unseen().next().map(|gap| format!("{}: {}", gap.source, gap.why));
        self.failed.clone().or_else(gap)
    }

    fn unseen(&self) -> impl Iterator<Item = &Gap> {
        self.gaps.iter().filter(|gap| gap.source.starts_with("/proc/PID"))
    }

    /// The GPU that the operator means: an address, an index in the order of addresses, or the
    /// first characters of a UUID.
    pub(super) fn find(&self, spelling: &str) -> Result<PciAddress, String> {
        if let Ok(address) = spelling.parse() {
            return Ok(address);
        }
        let by_index = spelling.parse::<usize>().ok().and_then(|index| self.devices.get(index));
        // A number that is no index may be the first digits of a UUID.
        let found = by_index.map(|device| device.address).or_else(|| self.by_uuid(spelling));
        found.ok_or_else(|| {
            let there: Vec<String> = self
                .devices
                .iter()
                .enumerate()
                .map(|(index, device)| format!("{index} = {}", device.address))
                .collect();
            if there.is_empty() {
                "no GPU shows here; name both by their PCI addresses".to_owned()
            } else {
                format!("there are {}; a GPU UUID does too", there.join(", "))
            }
        })
    }

    fn by_uuid(&self, spelling: &str) -> Option<PciAddress> {
        let bare = |text: &str| text.strip_prefix("GPU-").unwrap_or(text).to_ascii_lowercase();
        let wanted = bare(spelling);
        if wanted.len() < 4 {
            return None;
        }
        let mut matching = self.devices.iter().filter(|device| {
            device.uuid.as_deref().is_some_and(|uuid| bare(uuid).starts_with(&wanted))
        });
        match (matching.next(), matching.next()) {
            (Some(only), None) => Some(only.address),
            _ => None,
        }
    }
}

impl Device {
    /// It is sure that nothing but PCIe carries what it sends: a board without NVLink.
    fn pcie_only(&self) -> bool {
        let digits =
            |text: &Option<String>| Some(text.as_ref()?.trim_start_matches("0x").to_owned());
        let ids = || Some(format!("{}:{}", digits(&self.vendor_id)?, digits(&self.device_id)?));
        let board = ids().and_then(|ids| boards::lookup(ids.parse().ok()?));
        board.is_some_and(|board| !board.nvlink)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two boards without NVLink, the second one held, and one in a guest.
    fn look(device_id: &str, process: &str) -> Look {
        let device = |address: &str, driver: &str, claims: &str| {
            format!(
                r#"{{"address": "{address}", "vendor_id": "0x10de", "device_id": "{device_id}",
                    "uuid": "GPU-{}", "driver": "{driver}", "claims": [{claims}]}}"#,
                address.replace([':', '.'], "")
            )
        };
        let claim =
            format!(r#"{{"tenant": "lxc:7", "source": "process 9 {process}", "active": "yes"}}"#);
        let text = format!(
            r#"{{"devices": [{}, {}, {}], "gaps": [{{"source": "/proc/PID/fd", "why": "denied"}}]}}"#,
            device("0000:21:00.0", "nvidia", ""),
            device("0000:41:00.0", "nvidia", &claim),
            device("0000:61:00.0", "vfio-pci", &claim),
        );
        Look::parse(&text).unwrap()
    }

    #[test]
    fn holders_are_named_and_idle_daemons_are_none() {
        let used = look("0x2bb5", "(python)").in_use();
        assert_eq!(used.len(), 1, "{used:?}");
        assert_eq!(used[0].by, "process 9 (python) of lxc:7");
        assert_eq!(used[0].gpu.to_string(), "0000:41:00.0");
        assert_eq!(look("0x2bb5", "(nvidia-persiste)").in_use(), []);
        assert_eq!(look("0x2bb5", "(python)").holder_gaps().len(), 1);
    }

    #[test]
    fn what_could_not_be_seen_is_not_free() {
        let gap = look("0x2bb5", "(python)").unknown();
        assert_eq!(gap.as_deref(), Some("/proc/PID/fd: denied"));
        let failed = Look::take(Path::new("/bin/false"), None, LIMIT);
        assert!(failed.unknown().is_some_and(|why| why.contains("peerway scan")), "{failed:?}");
        assert_eq!(Look::parse(r#"{"devices": [], "gaps": []}"#).unwrap().unknown(), None);
    }

    #[test]
    fn nvlink_may_carry_what_pcie_does_not() {
        let sure = |device_id| {
            let known = look(device_id, "(python)").known();
            known.iter().map(|one| one.pcie_only).collect::<Vec<_>>()
        };
        assert_eq!(sure("0x2bb5"), [true, true]);
        // A module with NVLink, and a board that is not in the table.
        assert_eq!(sure("0x2335"), [false, false]);
        assert_eq!(sure("0xffff"), [false, false]);
    }

    #[test]
    fn gpus_are_found_in_every_spelling() {
        let look = look("0x2bb5", "(python)");
        for spelling in ["0000:41:00.0", "41:00.0", "1", "GPU-000041", "000041"] {
            assert_eq!(look.find(spelling).unwrap().to_string(), "0000:41:00.0", "{spelling}");
        }
        for spelling in ["7", "GPU-0000", "none"] {
            assert!(look.find(spelling).unwrap_err().contains("0 = 0000:21:00.0"), "{spelling}");
        }
    }
}

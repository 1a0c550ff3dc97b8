//! What the host records is joined to the pair that was measured at that time.

use peerway_core::address::PciAddress;
use peerway_gpu::{Evidence, Verdict, Watch, XidSeen, measure_watched};

use crate::common::{Fake, quick};

/// Records an Xid whenever one requester is at work, and one while GPUs are looked at.
struct Scripted {
    bad: PciAddress,
    now: Option<Vec<PciAddress>>,
    samples: u32,
}

impl Watch for Scripted {
    fn begin(&mut self, gpus: &[PciAddress]) {
        assert!(self.now.is_none(), "one span at a time");
        self.now = Some(gpus.to_vec());
    }

    fn sample(&mut self) {
        assert!(self.now.is_some());
        self.samples += 1;
    }

    fn end(&mut self) -> Evidence {
        let gpus = self.now.take().unwrap();
        let first = gpus.first() == Some(&self.bad) && gpus.len() == 2;
        let xid = XidSeen { gpu: self.bad, number: 31, meaning: None, count: 1 };
        let xids = if first || gpus.is_empty() { vec![xid] } else { Vec::new() };
        Evidence { xids, ..Evidence::default() }
    }
}

#[test]
fn records_are_joined_by_time() {
    let fake = Fake::new("gpus=2");
    let bad: PciAddress = "0000:21:00.0".parse().unwrap();
    let mut watch = Scripted { bad, now: None, samples: 0 };
    let mut settings = fake.settings.clone();
    quick(&mut settings);
    settings.speed = true;
    settings.speed_bytes = 1 << 20;
    let result = measure_watched(&settings, &mut |_| {}, &mut watch);
    assert!(watch.samples > 20 && watch.now.is_none());
    for row in result.pairs.iter().chain(&result.control) {
        assert_eq!(row.verdict, Verdict::Intact, "{row:#?}");
        assert_eq!(row.evidence.is_serious(), row.from == bad, "{row:#?}");
    }
    let counts = result.pairs.iter().filter(|row| row.from == bad);
    for row in counts {
        // Once while data was checked, once while speed was taken.
        assert_eq!(row.evidence.xids[0].count, 2, "{row:#?}");
    }
    let works: Vec<&str> = result.evidence.iter().map(|one| one.work.as_str()).collect();
    assert_eq!(works, ["inventory"]);
}

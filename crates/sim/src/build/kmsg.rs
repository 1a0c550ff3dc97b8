//! The kernel log as `/dev/kmsg` gives it: one record a line, `prio,seq,usec,-;text`, and
//! dictionary lines that begin with a blank (`Documentation/ABI/testing/dev-kmsg`).

use std::fmt::Write as _;

use peerway_core::address::PciAddress;

/// Level of errors.
pub const ERROR: u8 = 3;
/// Level of warnings.
pub const WARNING: u8 = 4;
/// Level of notices.
pub const NOTICE: u8 = 5;
/// Level of information.
pub const INFO: u8 = 6;

/// Records in order.
#[derive(Clone, Debug, Default)]
pub struct Kmsg {
    records: Vec<Record>,
    now: u64,
}

#[derive(Clone, Debug)]
struct Record {
    level: u8,
    time: u64,
    text: String,
    device: Option<PciAddress>,
}

impl Kmsg {
    /// Sets the time of the next record: microseconds since boot. Time never goes back.
    pub fn at(&mut self, microseconds: u64) -> &mut Self {
        self.now = self.now.max(microseconds);
        self
    }

    /// One record.
    pub fn line(&mut self, level: u8, text: impl Into<String>) -> &mut Self {
        self.push(level, text.into(), None)
    }

    /// One record of a device, with the word before its address.
    pub fn device(
        &mut self,
        level: u8,
        word: &str,
        device: PciAddress,
        text: impl AsRef<str>,
    ) -> &mut Self {
        self.push(level, format!("{word} {device}: {}", text.as_ref()), Some(device))
    }

    fn push(&mut self, level: u8, text: String, device: Option<PciAddress>) -> &mut Self {
        self.records.push(Record { level, time: self.now, text, device });
        self.now += 37;
        self
    }

    /// Puts another log's records behind these.
    pub(super) fn append(&mut self, other: &Self) {
        for record in &other.records {
            self.now = self.now.max(record.time);
            self.records.push(Record { time: self.now, ..record.clone() });
        }
    }

    /// How many records there are.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// As text of `/dev/kmsg`; the first record has the number `first`.
    pub(super) fn text(&self, first: u64) -> String {
        let mut out = String::new();
        for (record, sequence) in self.records.iter().zip(first..) {
            let Record { level, time, text, device } = record;
            // Writing to a String cannot fail.
            let mut put = |line: std::fmt::Arguments<'_>| out.write_fmt(line).unwrap_or_default();
            put(format_args!("{level},{sequence},{time},-;{text}\n"));
            if let Some(device) = device {
                put(format_args!(" SUBSYSTEM=pci\n DEVICE=+pci:{device}\n"));
            }
        }
        out
    }
}

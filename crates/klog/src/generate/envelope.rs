//! Transports, as they print a message.

use crate::stamp;

/// Time and record number of a generated log.
#[derive(Clone, Debug)]
pub struct Clock {
    microseconds: u64,
    sequence: u64,
}

impl Default for Clock {
    fn default() -> Self {
        Self { microseconds: 1_000_000, sequence: 1 }
    }
}

impl Clock {
    /// Time goes on.
    pub const fn advance(&mut self, microseconds: u64) {
        self.microseconds += microseconds;
    }
}

macro_rules! envelopes {
    ($($(#[$about:meta])* $name:ident,)*) => {
        /// What stands around a message.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Envelope { $($(#[$about])* $name,)* }

        impl Envelope {
            /// Every one.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];
        }
    };
}

envelopes! {
    /// Nothing.
    Bare,
    /// `dmesg`.
    Dmesg,
    /// `dmesg -T`.
    DmesgCtime,
    /// `dmesg -x`.
    DmesgDecoded,
    /// `dmesg -x --time-format iso`.
    DmesgIso,
    /// `dmesg -H`.
    DmesgDelta,
    /// `dmesg -d`.
    DmesgBoth,
    /// `dmesg -r`.
    Level,
    /// With the caller (`CONFIG_PRINTK_CALLER`).
    Caller,
    /// `journalctl -k`.
    JournalShort,
    /// `journalctl -k -o short-monotonic`.
    JournalMonotonic,
    /// `journalctl -k -o short-full`.
    JournalFull,
    /// `journalctl -k -o short-unix`.
    JournalUnix,
    /// `kernel: ` alone.
    Tag,
    /// `kern.log`.
    KernLog,
    /// rsyslog with RFC 3339 time; control characters escaped.
    Rfc3339,
    /// `YYYY-MM-DD hh:mm:ss.us kernel:[…]`.
    IsoKernel,
    /// RFC 5424.
    Rfc5424,
    /// `OpenWrt`'s `logread`.
    OpenWrt,
    /// `/dev/kmsg`.
    Kmsg,
    /// `journalctl -o json`.
    JournalJson,
    /// `journalctl -o json` of a message with unprintable bytes.
    JournalJsonBytes,
    /// `dmesg --json`.
    DmesgJson,
    /// `dmesg --color=always`.
    Colour,
    /// A line end of two bytes.
    CarriageReturn,
    /// Indented.
    Indented,
    /// `grep` over a folder.
    Grep,
}

impl Envelope {
    /// Appends a message in its envelope; returns how many lines that made.
    pub fn wrap(self, message: &str, clock: &mut Clock, out: &mut Vec<u8>) -> u64 {
        clock.sequence += 1;
        let before = out.len();
        let text = self.text(message, clock);
        out.extend_from_slice(text.as_bytes());
        out.extend_from_slice(if self == Self::CarriageReturn { b"\r\n" } else { b"\n" });
        let lines = out.get(before..).map_or(0, |new| memchr::memchr_iter(b'\n', new).count());
        u64::try_from(lines).unwrap_or(0)
    }

    fn text(self, message: &str, clock: &Clock) -> String {
        let us = clock.microseconds;
        let ts = format!("{:5}.{:06}", us / 1_000_000, us % 1_000_000);
        let wall = stamp::from_unix(1_796_028_519 + us / 1_000_000, 0);
        let iso = wall.map(|wall| wall.to_string()).unwrap_or_default();
        let day = iso.get(..10).unwrap_or_default();
        let time = iso.get(11..19).unwrap_or_default();
        let micros = us % 1_000_000;
        match self {
            Self::Bare => message.to_owned(),
            Self::Dmesg => format!("[{ts}] {message}"),
            Self::DmesgCtime => format!("[Mon Nov 30 {time} 2026] {message}"),
            Self::DmesgDecoded => format!("kern  :err   : [{ts}] {message}"),
            Self::DmesgIso => format!("kern  :info  : {day}T{time},{micros:06}+00:00 {message}"),
            Self::DmesgDelta => format!("[  +0.{micros:06}] {message}"),
            Self::DmesgBoth => format!("[{ts} <    0.000012>] {message}"),
            Self::Level => format!("<3>[{ts}] {message}"),
            Self::Caller => format!("[{ts}][   T42] {message}"),
            Self::JournalShort => format!("Nov 30 {time} host kernel: {message}"),
            Self::JournalMonotonic => format!("[{ts}] host kernel: {message}"),
            Self::JournalFull => format!("Mon {day} {time} UTC host kernel: {message}"),
            Self::JournalUnix => {
                format!("{}.{micros:06} host kernel: {message}", 1_796_028_519 + us / 1_000_000)
            }
            Self::Tag => format!("kernel: {message}"),
            Self::KernLog => format!("Nov 30 {time} host kernel: [{ts}] {message}"),
            Self::Rfc3339 => {
                let message = message.replace('\t', "#011");
                format!("{day}T{time}.{micros:06}+00:00 host kernel: {message}")
            }
            Self::IsoKernel => format!("{day} {time}.{micros:06} kernel:[{ts}] {message}"),
            Self::Rfc5424 => format!("<3>1 {day}T{time}Z host kernel - - - {message}"),
            Self::OpenWrt => format!("Mon Nov 30 {time} 2026 kern.err kernel: [{ts}] {message}"),
            Self::Kmsg => {
                let message = message.replace('\t', "\\x09");
                format!("3,{},{us},-,caller=T42;{message}\n SUBSYSTEM=pci", clock.sequence)
            }
            Self::JournalJson => format!(
                "{{\"__REALTIME_TIMESTAMP\":\"{}\",\"_TRANSPORT\":\"kernel\",\"PRIORITY\":\"3\",\
                 \"MESSAGE\":\"{}\",\"_SOURCE_MONOTONIC_TIMESTAMP\":\"{us}\"}}",
                1_796_028_519_000_000 + us,
                json(message)
            ),
            Self::JournalJsonBytes => {
                let bytes: Vec<String> = message.bytes().map(|byte| byte.to_string()).collect();
                format!("{{\"_TRANSPORT\":\"kernel\",\"MESSAGE\":[{}]}}", bytes.join(","))
            }
            Self::DmesgJson => format!(
                "      {{\n         \"pri\": 3,\n         \"time\":{ts},\n         \"msg\": \"{}\"\n      }},",
                json(message)
            ),
            Self::Colour => colour(&ts, message),
            Self::CarriageReturn => format!("[{ts}] {message}"),
            Self::Indented => format!("    [{ts}] {message}"),
            Self::Grep => {
                format!("/var/log/kern.log.1:Nov 30 {time} host kernel: [{ts}] {message}")
            }
        }
    }
}

fn json(message: &str) -> String {
    message.replace('\\', "\\\\").replace('"', "\\\"").replace('\t', "\\t")
}

/// The stamp green, the part up to the first colon yellow, the rest red.
fn colour(ts: &str, message: &str) -> String {
    let (front, rest) = message.split_once(": ").unwrap_or(("", message));
    if front.is_empty() {
        return format!("\u{1b}[32m[{ts}] \u{1b}[0m\u{1b}[31m{rest}\u{1b}[0m");
    }
    format!("\u{1b}[32m[{ts}] \u{1b}[0m\u{1b}[33m{front}: \u{1b}[0m\u{1b}[31m{rest}\u{1b}[0m")
}

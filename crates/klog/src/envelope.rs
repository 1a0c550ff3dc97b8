//! What transports put around a kernel message: time stamps, host names, levels, colours.
//!
//! An envelope is a row of pieces (a level, a stamp, a host, `kernel:`, another stamp …) in any
//! combination; each piece is taken off where it is recognised.

use crate::stamp::{self, Stamp};
use crate::text;

/// More pieces than any known transport writes; bounds the work on hostile lines.
const PIECES: usize = 12;

/// A line without its envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unwrapped<'a> {
    pub(crate) stamp: Stamp,
    pub(crate) message: &'a [u8],
    /// The envelope names a program: the kernel did not print this.
    pub(crate) of_user_space: bool,
    /// The envelope says that the hypervisor printed this.
    pub(crate) of_hypervisor: bool,
}

/// Head of a `/dev/kmsg` record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KmsgHead<'a> {
    pub(crate) priority: u32,
    pub(crate) sequence: u64,
    pub(crate) monotonic_us: u64,
    pub(crate) message: &'a [u8],
}

/// Takes everything off that is not the kernel's message.
#[inline]
pub(crate) fn strip(line: &[u8]) -> Unwrapped<'_> {
    let mut stamp = Stamp::default();
    let mut rest = line;
    let mut host_seen = false;
    let mut of_user_space = false;
    let mut of_hypervisor = false;
    for _ in 0..PIECES {
        let Some(first) = rest.first() else { break };
        let next = match first {
            b' ' | b'\t' => Some(text::trim_start(rest)),
            b'[' => bracket(rest, &mut stamp),
            b'<' => level(rest),
            b'0'..=b'9' => {
                // Facility 0 is the kernel's; the level takes the lowest three bits.
                let user = kmsg_head(rest).is_some_and(|head| head.priority > 7);
                of_user_space |= user && stamp.is_none();
                digits(rest, &mut stamp)
            }
            b'a'..=b'z' | b'A'..=b'Z' => word(rest, &mut stamp, &mut host_seen),
            b'(' => {
                of_hypervisor = true;
                rest.strip_prefix(b"(XEN) ")
            }
            b'>' | b'|' => rest.get(1..).filter(|tail| tail.starts_with(b" ")),
            b'/' | b'.' => file_name(rest),
            _ => None,
        };
        match next {
            Some(next) => rest = next,
            None => break,
        }
    }
    of_user_space |= stamp.wall.is_some() && !host_seen && names_program(rest);
    Unwrapped { stamp, message: rest, of_user_space, of_hypervisor }
}

/// `[   12.345678] `, `[Fri Jul 19 17:05:08 2019] `, `[  +0.000006] `, `[Jul19 17:05] `,
/// `[12.345678 <0.000006>] `, and the caller's `[    T7]` after a stamp.
#[inline]
fn bracket<'a>(input: &'a [u8], stamp: &mut Stamp) -> Option<&'a [u8]> {
    let inner = text::trim_start(input.strip_prefix(b"[")?);
    let rest = match inner.first()? {
        b'0'..=b'9' => {
            if let Some((us, rest)) = stamp::seconds(inner) {
                stamp.monotonic_us = Some(us);
                rest
            } else {
                let (clock, rest) = stamp::iso(inner)?;
                stamp.wall = Some(clock);
                rest
            }
        }
        b'+' => {
            let (us, rest) = stamp::seconds(inner.strip_prefix(b"+")?)?;
            stamp.since_previous_us = Some(us);
            rest
        }
        b'T' | b'C' if inner.get(1).is_some_and(u8::is_ascii_digit) => {
            // The caller (CONFIG_PRINTK_CALLER) stands behind a stamp only.
            stamp.monotonic_us?;
            text::decimal(inner.get(1..)?)?.2
        }
        _ => {
            let (clock, rest) = stamp::weekday_form(inner).or_else(|| stamp::human_form(inner))?;
            stamp.wall = Some(clock);
            rest
        }
    };
    let rest = match rest {
        [b']', tail @ ..] => tail,
        // `dmesg -d`: the time since the line before.
        [b' ', b'<', tail @ ..] => text::split_once(tail, b">]")?.1,
        _ => return None,
    };
    Some(rest.strip_prefix(b" ").unwrap_or(rest))
}

/// `<3>`, and `<3>1 ` in front of a date (RFC 5424).
fn level(input: &[u8]) -> Option<&[u8]> {
    let (_, digits, rest) = text::decimal(input.strip_prefix(b"<")?)?;
    if digits > 3 {
        return None;
    }
    let rest = rest.strip_prefix(b">")?;
    match rest {
        [b'1', b' ', tail @ ..] if tail.first().is_some_and(u8::is_ascii_digit) => Some(tail),
        _ => Some(rest),
    }
}

/// A date that begins with its year, seconds since 1970, or the head of a `/dev/kmsg` record.
fn digits<'a>(input: &'a [u8], stamp: &mut Stamp) -> Option<&'a [u8]> {
    if let Some((clock, rest)) = stamp::iso(input) {
        stamp.wall = Some(clock);
        return rest.strip_prefix(b" ");
    }
    if let Some(head) = kmsg_head(input) {
        stamp.monotonic_us = Some(head.monotonic_us);
        return Some(head.message);
    }
    // `journalctl -o short-unix`: ten digits of seconds.
    let (seconds, count, rest) = text::decimal(input)?;
    if count != 10 || stamp.wall.is_some() {
        return None;
    }
    let (microsecond, rest) = stamp::fraction(rest.strip_prefix(b".")?)?;
    stamp.wall = Some(stamp::from_unix(seconds, microsecond)?);
    rest.strip_prefix(b" ")
}

/// `prio,seq,usec,flags[,more];text`.
pub(crate) fn kmsg_head(input: &[u8]) -> Option<KmsgHead<'_>> {
    let (priority, rest) = text::number::<u32>(input)?;
    let (sequence, rest) = text::number::<u64>(rest.strip_prefix(b",")?)?;
    let (monotonic_us, rest) = text::number::<u64>(rest.strip_prefix(b",")?)?;
    let rest = rest.strip_prefix(b",")?;
    let (more, message) = text::until(rest, |byte| byte == b';');
    // A facility has 8 bits and a level 3; longer lists of fields than this are no record.
    if priority > 0x7ff || more.is_empty() || more.len() > 128 {
        return None;
    }
    Some(KmsgHead { priority, sequence, monotonic_us, message: message.strip_prefix(b";")? })
}

/// A piece that begins with a letter.
#[inline]
fn word<'a>(input: &'a [u8], stamp: &mut Stamp, host_seen: &mut bool) -> Option<&'a [u8]> {
    if let Some(rest) = input.strip_prefix(b"kernel") {
        return kernel_tag(rest);
    }
    if stamp.wall.is_none() {
        let dated = stamp::syslog(input).or_else(|| stamp::weekday_form(input));
        if let Some((clock, rest)) = dated {
            stamp.wall = Some(clock);
            return rest.strip_prefix(b" ");
        }
    }
    if stamp.is_none() {
        return decoded_level(input);
    }
    // A host name, or a facility and level, if the kernel's tag comes next.
    let (name, rest) = text::until(input, |byte| byte == b' ' || byte == b':');
    let rest = rest.strip_prefix(b" ")?;
    if name.starts_with(b"kern.") && rest.starts_with(b"kernel") {
        return Some(rest);
    }
    if *host_seen {
        return None;
    }
    let tagged = rest.starts_with(b"kernel") || {
        let (level, rest) = text::until(rest, |byte| byte == b' ');
        level.contains(&b'.') && level.len() < 20 && rest.starts_with(b" kernel")
    };
    if tagged {
        *host_seen = true;
        return Some(rest);
    }
    None
}

/// `host program[123]: ` where the kernel's tag would stand. QEMU's words are wanted, though.
fn names_program(input: &[u8]) -> bool {
    let read = || {
        let (_, rest) = text::until(input, |byte| byte == b' ');
        let (program, rest) = text::until(rest.strip_prefix(b" ")?, |byte| byte == b'[');
        let (_, _, rest) = text::decimal(rest.strip_prefix(b"[")?)?;
        text::name(program)?;
        // A relayed message still has the kernel's own stamp.
        let relayed = rest.starts_with(b"]: [");
        Some(rest.starts_with(b"]: ") && !relayed && !program.starts_with(b"qemu"))
    };
    read().unwrap_or(false)
}

/// After `kernel`: a colon, `[0]:`, or the empty fields of RFC 5424.
fn kernel_tag(rest: &[u8]) -> Option<&[u8]> {
    let rest = match rest {
        [b':', tail @ ..] => tail,
        [b'[', tail @ ..] => text::decimal(tail)?.2.strip_prefix(b"]:")?,
        _ => {
            let rest = rest.strip_prefix(b" - - - ").or_else(|| rest.strip_prefix(b" - - -"))?;
            return Some(rest);
        }
    };
    Some(rest.strip_prefix(b" ").unwrap_or(rest))
}

/// `kern  :err   : ` (`dmesg -x`).
fn decoded_level(input: &[u8]) -> Option<&[u8]> {
    let mut rest = input;
    for _ in 0..2 {
        let (name, tail) = text::until(rest, |byte| !byte.is_ascii_lowercase());
        if name.is_empty() || name.len() > 8 {
            return None;
        }
        rest = text::trim_start(tail).strip_prefix(b":")?;
    }
    rest.strip_prefix(b" ")
}

/// `/var/log/kern.log:` or `/var/log/kern.log:12:`, as `grep` prints it in front of a line that
/// has a stamp of its own.
fn file_name(input: &[u8]) -> Option<&[u8]> {
    let (path, rest) = text::until(input, |byte| byte == b':' || byte == b' ');
    let rest = rest.strip_prefix(b":")?;
    if path.len() < 2 {
        return None;
    }
    match text::decimal(rest) {
        Some((_, _, [b':', tail @ ..])) => Some(tail),
        _ => Some(rest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: &str) {
        let Unwrapped { stamp, message, .. } = strip(line.as_bytes());
        let mut seen = Vec::new();
        if let Some(us) = stamp.monotonic_us {
            seen.push(format!("{us}us"));
        }
        if let Some(wall) = stamp.wall {
            seen.push(wall.to_string());
        }
        if let Some(us) = stamp.since_previous_us {
            seen.push(format!("+{us}us"));
        }
        seen.push(String::from_utf8_lossy(message).into_owned());
        assert_eq!(seen.join(" | "), expected, "{line}");
    }

    #[test]
    fn dmesg_in_all_its_options() {
        check("[   12.345678] nvidia x", "12345678us | nvidia x");
        check("[411161.437562] [drm] x", "411161437562us | [drm] x");
        check("[    1.234567][   T123] x", "1234567us | x");
        check("[    1.234567][    C0] x", "1234567us | x");
        check("<3>[    1.234567] x", "1234567us | x");
        check("<3>x", "x");
        check("kern  :err   : [    1.234567] x", "1234567us | x");
        check(
            "kern  :info  : 2026-11-30T08:48:39,554114+00:00 x",
            "2026-11-30T08:48:39.554114Z | x",
        );
        check("[Fri Jul 19 17:05:08 2019] x", "2019-07-19T17:05:08 | x");
        check("[Jul19 17:05] x", "Jul 19 17:05:00 | x");
        check("[ +0.000398] x", "+398us | x");
        check("[   12.345678 <    0.000006>] x", "12345678us | x");
        check("    [   12.345678] x", "12345678us | x");
        check("> [   12.345678] x", "12345678us | x");
    }

    #[test]
    fn journals_and_system_logs() {
        check("Nov 01 16:52:04 host kernel: x", "Nov 01 16:52:04 | x");
        check("Nov  1 16:52:04 host kernel: [   12.345678] x", "12345678us | Nov 01 16:52:04 | x");
        check("[   12.345678] host kernel: x", "12345678us | x");
        check("[   12.345678] kernel: pci x", "12345678us | pci x");
        check("kernel: [   12.345678] x", "12345678us | x");
        check("kernel: x", "x");
        check(
            "2026-08-16T09:49:06.440253-05:00 host kernel: [   12.345678] x",
            "12345678us | 2026-08-16T09:49:06.440253-05:00 | x",
        );
        check(
            "2026-11-30 08:48:39.554114 kernel:[   12.345678] x",
            "12345678us | 2026-11-30T08:48:39.554114 | x",
        );
        check("<3>1 2026-11-30T08:48:39Z host kernel - - - x", "2026-11-30T08:48:39Z | x");
        check("1796028519.554114 host kernel: x", "2026-11-30T08:48:39.554114Z | x");
        check("Fri 2019-07-19 17:05:08 UTC host kernel: x", "2019-07-19T17:05:08Z | x");
        check(
            "Thu May 14 19:29:14 2020 kern.info kernel: [ 2545.359831] x",
            "2545359831us | 2020-05-14T19:29:14 | x",
        );
        check(
            "May 14 19:29:14 host kern.err kernel: [ 2545.359831] x",
            "2545359831us | May 14 19:29:14 | x",
        );
        check("(XEN) [2026-11-30 08:48:39] AMD-Vi: x", "2026-11-30T08:48:39 | AMD-Vi: x");
        check("(XEN) [   12.345678] x", "12345678us | x");
        check("/var/log/kern.log:7:Nov 01 16:52:04 h kernel: x", "Nov 01 16:52:04 | x");
        check("6,1234,12345678,-,caller=T1;x", "12345678us | x");
    }

    #[test]
    fn what_is_no_envelope_stays() {
        check("nvidia 0000:01:00.0: x", "nvidia 0000:01:00.0: x");
        check("[drm] x", "[drm] x");
        check("[T1] x", "[T1] x");
        check("[ 12.x] y", "[ 12.x] y");
        check("", "");
        check("DMAR:[DMA Read] x", "DMAR:[DMA Read] x");
    }
}

//! Every refusal that can be brought about, by its code.

use anyhow::Result;

use super::{Facts, Proof, Step, expect_walks, held, lines, shell};
use crate::lab::script;

/// What is asked, what is done before and after it in the guest, and the code of the refusal.
struct Refusal {
    what: &'static str,
    before: &'static str,
    command: &'static str,
    after: &'static str,
    code: &'static str,
}

const fn plain(what: &'static str, command: &'static str, code: &'static str) -> Refusal {
    Refusal { what, before: ":", command, after: ":", code }
}

const REFUSALS: [Refusal; 31] = [
    plain("an unknown command", "burn", "syntax"),
    plain("nothing", "", "nothing was asked"),
    plain("a map without words", "map", "syntax"),
    plain("a word too few", "map 0000:01:00.0 0000:11:00.1 2 0", "syntax"),
    plain("a number that is none", "map 0000:01:00.0 0000:11:00.1 2 0 many", "syntax"),
    plain("a negative number", "map 0000:01:00.0 0000:11:00.1 2 -4096 4096", "syntax"),
    plain("an address in another spelling", "map 01:00.0 0000:11:00.1 2 0 4096", "syntax"),
    plain("a slot beyond 1f", "map 0000:01:20.0 0000:11:00.1 2 0 4096", "syntax"),
    plain("words after clear", "clear all", "syntax"),
    plain("requester and target alike", "map 0000:01:00.0 0000:01:00.0 2 0 4096", "same-device"),
    plain("another segment", "map 0000:01:00.0 0001:11:00.1 2 0 4096", "other-segment"),
    plain("no such target", "map 0000:01:00.0 0000:77:00.1 2 0 4096", "no-such-device"),
    plain(
        "a port as target",
        "map 0000:01:00.0 0000:10:00.0 2 0 4096 0000:01:00.1",
        "not-an-endpoint",
    ),
    plain("an unbound target", "map 0000:01:00.0 0000:00:1f.3 2 0 4096 0000:01:00.1", "unbound"),
    plain(
        "a target on vfio-pci",
        "map 0000:01:00.0 0000:81:00.1 2 0 4096 0000:01:00.1",
        "user-space-driver",
    ),
    plain(
        "a requester on vfio-pci",
        "map 0000:81:00.0 0000:01:00.1 2 0 4096 0000:81:00.1",
        "user-space-driver",
    ),
    plain("BAR 7", "map 0000:01:00.0 0000:11:00.1 7 0 4096 0000:01:00.1", "not-a-bar"),
    plain(
        "a BAR that is not there",
        "map 0000:01:00.0 0000:11:00.1 5 0 4096 0000:01:00.1",
        "not-memory",
    ),
    plain("no length", "map 0000:01:00.0 0000:11:00.1 2 0 0 0000:01:00.1", "not-whole-pages"),
    plain(
        "part of a page",
        "map 0000:01:00.0 0000:11:00.1 2 0 4097 0000:01:00.1",
        "not-whole-pages",
    ),
    plain(
        "beyond the BAR",
        "map 0000:01:00.0 0000:11:00.1 2 0x7ffff000 0x2000 0000:01:00.1",
        "outside-the-bar",
    ),
    plain(
        "an end beyond all numbers",
        "map 0000:01:00.0 0000:11:00.1 2 0xfffffffffffff000 0x2000 0000:01:00.1",
        "outside-the-bar",
    ),
    plain(
        "a group member not named",
        "map 0000:01:00.0 0000:11:00.1 2 0 4096",
        "group-member-not-named",
    ),
    plain(
        "a BAR below 4 GiB under another host bridge",
        "map 0000:01:00.0 0000:11:00.0 0 0 4096 0000:01:00.1",
        "below-4g",
    ),
    Refusal {
        what: "an entry that is there already",
        before: "entry map 01 11 >/dev/null",
        command: "map 0000:01:00.0 0000:11:00.1 2 0 0x80000000 0000:01:00.1",
        after: "entry unmap 01 11 >/dev/null",
        code: "exists",
    },
    Refusal {
        what: "part of a range that is there already",
        before: "entry map 01 11 >/dev/null",
        command: "map 0000:01:00.0 0000:11:00.1 2 0x1000 0x1000 0000:01:00.1",
        after: "entry unmap 01 11 >/dev/null",
        code: "already-mapped",
    },
    Refusal {
        what: "a range whose last page somebody else mapped",
        before: "last=$(printf '0x%x' $(($(range 11 | cut -d' ' -f1) + 0x7ffff000))); \
                 dma \"raw-map 0000:01:00.0 $last 0x1000\" >/dev/null",
        command: "map 0000:01:00.0 0000:11:00.1 2 0 0x80000000 0000:01:00.1",
        after: "dma \"raw-unmap 0000:01:00.0 $last 0x1000\" >/dev/null",
        code: "already-mapped",
    },
    Refusal {
        what: "a device whose lock is held",
        before: "dma 'lock 0000:11:00.1' >/dev/null",
        command: "map 0000:01:00.0 0000:11:00.1 2 0 4096 0000:01:00.1",
        after: "dma 'unlock 0000:11:00.1' >/dev/null",
        code: "device-busy",
    },
    Refusal {
        what: "a mask whose top is near",
        before: "dma \"mask 0000:01:00.0 $(bits 11)\" >/dev/null",
        command: "map 0000:01:00.0 0000:11:00.1 2 0 4096 0000:01:00.1",
        after: "dma 'mask 0000:01:00.0 32' >/dev/null",
        code: "near-the-top",
    },
    plain(
        "an unmap of what is not there",
        "unmap 0000:01:00.0 0000:11:00.1 2 0 4096",
        "no-such-entry",
    ),
    Refusal {
        what: "a verify after the mask was raised",
        before: "entry map 01 11 >/dev/null; dma 'mask 0000:01:00.0 64' >/dev/null",
        command: "verify",
        after: "dma 'mask 0000:01:00.0 32' >/dev/null; entry unmap 01 11 >/dev/null",
        code: "mask-changed",
    },
];

/// Uid 0 of a user namespace of its own, and another user on an open device file.
const OUTSIDERS: &str = "chmod 666 $MAP; \
    unshare -U -r sh -c 'id -u; (echo clear >/dev/peerway-map) 2>&1 | grep -o \"not permitted\"'; \
    su nobody -s /bin/sh -c '(echo clear >/dev/peerway-map) 2>&1 | grep -o \"not permitted\"'; \
    chmod 600 $MAP; stat -c %a $MAP";
const TOO_LONG: &str = "head -c 2000 /dev/zero | tr '\\0' x >/tmp/long; \
    dd if=/tmp/long of=$MAP bs=2000 count=1 2>/dev/null; echo $?; sed -n 's/^last [0-9]* //p' $MAP; \
    printf 'clear\\0map' >/tmp/zero; \
    dd if=/tmp/zero of=$MAP bs=2000 count=1 2>/dev/null; echo $?; sed -n 's/^last [0-9]* //p' $MAP";

/// Single pages of one BAR until the module holds no more.
const TOO_MANY: &str = "n=0; while echo \"map 0000:01:00.0 0000:11:00.1 2 $((n * 4096)) 4096 0000:01:00.1\" 2>/dev/null >$MAP; \
    do n=$((n + 1)); done; echo $n; sed -n 's/^last [0-9]* //p' $MAP; say clear";

pub(super) fn prove(proof: &Proof<'_>, facts: &mut Facts) -> Result<()> {
    let mut steps: Vec<Step> = vec![shell("walk first", "walks 01 11")];
    for one in &REFUSALS {
        let text = format!("{}; say '{}'; {}", one.before, one.command, one.after);
        steps.push(shell(one.what, &text));
    }
    steps.push(shell("outsiders", OUTSIDERS));
    steps.push(shell("too long", TOO_LONG));
    steps.push(shell("too many", TOO_MANY));
    steps.push(script::start("guest", &["lab-vfio", "0000:81:00.0", "0000:91:00.0", "--wait"]));
    for (from, to) in [("01", "81"), ("81", "01"), ("81", "91")] {
        steps.push(shell(&format!("held {from} {to}"), &format!("entry map {from} {to}")));
    }
    steps.push(script::stop("guest"));
    steps.push(shell("state", "state"));
    steps.push(shell("walk", "walks 01 11"));
    let report = proof.boot("large", steps, facts)?;
    let mut rows = Vec::new();
    for one in &REFUSALS {
        let line = report.stdout(one.what)?.trim();
        // A write of nothing reaches no driver.
        if one.command.is_empty() {
            continue;
        }
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let mut words = rest.splitn(3, ' ');
        let code = words.next().unwrap_or_default();
        facts.expect(&format!("{}: answer", one.what), &word, &"refused");
        facts.expect(&format!("{}: code", one.what), &code, &one.code);
        let number = words.next().unwrap_or_default().to_owned();
        let text = words.next().unwrap_or_default().to_owned();
        rows.push(vec![one.what.to_owned(), format!("`{code}`"), number, text]);
    }
    facts.table(&["asked for", "code", "errno", "the module's words"], &rows);
    for (from, to) in [("01", "81"), ("81", "01"), ("81", "91")] {
        let name = format!("held {from} {to}");
        let line = report.stdout(&name)?;
        facts.expect(&name, &line.starts_with("refused user-space-driver 16 "), &true);
    }
    facts.expect(
        "outsiders",
        &lines(&report, "outsiders")?,
        &vec!["0", "not permitted", "not permitted", "600"],
    );
    let long = lines(&report, "too long")?;
    facts.expect("too long", &long.first(), &Some(&"1"));
    facts.expect(
        "too long: code",
        &long.get(1).is_some_and(|l| l.starts_with("too-long 7 ")),
        &true,
    );
    facts.expect("zero byte", &long.get(2), &Some(&"1"));
    facts.expect(
        "zero byte: code",
        &long.get(3).is_some_and(|l| l.starts_with("syntax 22 ")),
        &true,
    );
    let many = lines(&report, "too many")?;
    facts.expect("too many: entries", &many.first(), &Some(&"1024"));
    let refused = many.get(1).is_some_and(|line| line.starts_with("too-many 28 "));
    facts.expect("too many: code", &refused, &true);
    facts.expect("entries", &held(&report, "state")?, &Some(0));
    expect_walks(facts, &report, "walk first", 0)?;
    expect_walks(facts, &report, "walk", 0)?;
    facts.say(
        "Refused too: an entry beyond 1024 (`too-many`); any map from or to an accelerator that a guest's monitor holds (three pairs, \
         `user-space-driver`); a command of 2000 bytes (`too-long`) and one with a zero byte in it; uid \
         0 of a user namespace of its own, and another user on a device file that was opened up to \
         them (both \"not permitted\"). No entry and no translated page was left.",
    );
    Ok(())
}

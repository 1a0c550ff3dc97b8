//! PW0702: the kernel log was not looked at.

use super::support;
use crate::code::LOG_NOT_READ;
use crate::diagnose::finding::{Finding, Severity};
use crate::diagnose::{Context, Rule};
use crate::judge::Confidence;
use crate::observed::Observed;

pub(super) const RULE: Rule = Rule {
    code: LOG_NOT_READ,
    title: "the kernel log was not read",
    page: "\
The kernel log of this boot could not be read, or the material at hand holds none. The verdicts here
come from what the host shows in files; the log would add what has happened already.

What it would settle:

- whether SEV-SNP is on, and if not, why (only the log says why);
- whether SME is active;
- whether IOMMU faults occur at addresses inside a peer's memory region, which is the most certain
  sign of raw peer addresses under translation;
- Xid events, failed starts of GPUs, link errors;
- whether firmware reserved the table that SNP needs.

How it was seen: reading `/dev/kmsg` failed, with the reason in the evidence. With
`kernel.dmesg_restrict` set, as most distributions have it, only root may read it. A recording holds
the log if it was made as root.

Why it matters: \"no faults found\" on a host whose log was not read means nothing, and this program
does not say it.

What helps: run as root; or give the log to `peerway faults`, which takes `dmesg` and journal output
in any common form.

What not to believe: a log whose beginning was overwritten as complete. The ring buffer loses its
oldest lines first, and a stream of faults empties it of boot lines within minutes.

Sources: `kernel/printk/printk.c`, `check_syslog_permissions`; `Documentation/ABI/testing/dev-kmsg`.",
    check,
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let snapshot = context.snapshot;
    if !support::has_accelerators(snapshot) {
        return Vec::new();
    }
    let why = match &snapshot.kernel.log_facts {
        Observed::Known(_) => return Vec::new(),
        Observed::Absent => "there is none here".to_owned(),
        Observed::Unreadable(why) => format!("unknown ({why})"),
    };
    let finding = Finding::new(
        RULE.code,
        Severity::Info,
        Confidence::Certain,
        "the kernel log was not read: faults and boot lines are missing from this picture",
    )
    .about("host")
    .seen("kernel log", support::cut(&why));
    vec![finding.remedy(if snapshot.origin.privileged {
        "give the log to peerway faults: dmesg or journal output, in any common form"
    } else {
        "run as root, or give the output of dmesg to peerway faults"
    })]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::testing::{Host, fires, silent, value};

    #[test]
    fn unread_or_none() {
        let unread = Host::amd().edit(|snapshot| {
            snapshot.kernel.log_facts = Observed::Unreadable("permission denied".to_owned());
        });
        assert_eq!(value(&fires(&RULE, &unread), "kernel log"), "unknown (permission denied)");
        fires(&RULE, &Host::amd().edit(|snapshot| snapshot.kernel.log_facts = Observed::Absent));
    }

    #[test]
    fn read_even_if_it_says_nothing() {
        silent(&RULE, &Host::amd());
        let empty = |log: Vec<String>| {
            Host::amd().edit(|snapshot| snapshot.kernel.log_facts = Observed::Known(log))
        };
        silent(&RULE, &empty(Vec::new()));
    }
}

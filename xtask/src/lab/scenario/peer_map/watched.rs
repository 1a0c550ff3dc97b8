//! On a kernel that watches itself: that its checks are on and stay on, and that no memory is left behind.

use anyhow::Result;

use super::{Facts, Proof, lines, shell};

/// What the kernel says of each check when it comes up.
const CHECKS: [&str; 4] = [
    "KernelAddressSanitizer initialized",
    "Lock dependency validator",
    "ODEBUG: selftest passed",
    "kmemleak: ",
];
/// A leak is one that two scans in a row find, of memory older than five seconds.
const SCAN: &str = "sleep 6; echo scan >/sys/kernel/debug/kmemleak; sleep 6; \
    echo scan >/sys/kernel/debug/kmemleak; cat /sys/kernel/debug/kmemleak >/tmp/leaks; \
    echo $(grep -c '^unreferenced' /tmp/leaks) $(grep -c peerway /tmp/leaks)";

pub(super) fn prove(proof: &Proof<'_>, facts: &mut Facts) -> Result<()> {
    let cycles = "n=0; while [ $n -lt 20 ]; do entry map 01 11; entry map 11 01; say verify; \
        entry unmap 01 11; say clear; n=$((n + 1)); done | cut -d' ' -f1-2 | sort | uniq -c; state";
    let settings = "zcat /proc/config.gz | grep -E \
        '^CONFIG_(KASAN|KASAN_GENERIC|KASAN_INLINE|KASAN_VMALLOC|PROVE_LOCKING|DEBUG_ATOMIC_SLEEP|DEBUG_OBJECTS.*|DEBUG_LIST|DEBUG_KMEMLEAK|DMA_API_DEBUG)='";
    let steps = vec![
        shell("settings", settings),
        shell("checks", "dmesg"),
        shell("cycles", cycles),
        shell("unload", "rmmod peerway_map; echo $?"),
        shell("leaks", SCAN),
        shell("locks", "grep -E 'debug_locks|lock-classes' /proc/lockdep_stats"),
    ];
    let report = proof.boot("large", steps, facts)?;
    let said = lines(&report, "checks")?;
    let shown: Vec<&str> = said
        .iter()
        .copied()
        .filter(|line| CHECKS.iter().any(|check| line.contains(check)))
        .collect();
    for check in CHECKS {
        let found = shown.iter().any(|line| line.contains(check));
        facts.expect(&format!("{check}: said"), &found, &true);
    }
    facts.say("The checks, by the kernel's configuration and its own words at boot:");
    facts.quote(lines(&report, "settings")?);
    facts.quote(shown);
    facts.say("Twenty rounds of mapping both ways, verifying, unmapping and clearing:");
    facts.quote(lines(&report, "cycles")?);
    facts.expect("unload", &report.stdout("unload")?.trim(), &"0");
    let leaks = report.stdout("leaks")?.trim();
    let ours = leaks.split(' ').nth(1);
    facts.expect("leaks of the module", &ours, &Some("0"));
    let locks = lines(&report, "locks")?;
    let on = locks.iter().any(|line| line.contains("debug_locks:") && line.trim().ends_with('1'));
    facts.expect("lock checks are still on", &on, &true);
    facts.say(format!(
        "Memory that nothing points to after the module was unloaded: {} objects in the whole kernel, {} \
         of them the module's. The lock checker turns itself off at its first complaint; at the end of \
         the boot it was on:",
        leaks.split(' ').next().unwrap_or_default(),
        ours.unwrap_or_default()
    ));
    facts.quote(locks);
    Ok(())
}

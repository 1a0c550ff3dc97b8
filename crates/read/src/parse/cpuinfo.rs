//! `/proc/cpuinfo` of x86 (`arch/x86/kernel/cpu/proc.c`, `show_cpuinfo`).

use peerway_core::observed::Observed;
use peerway_core::snapshot::kernel::Cpu;

/// Flags that bear on this program: memory encryption, virtualisation, interrupts.
const FLAGS: [&str; 17] = [
    "sme",
    "sev",
    "sev_es",
    "sev_snp",
    "svm",
    "vmx",
    "x2apic",
    "hypervisor",
    "avic",
    "x2avic",
    "v_spec_ctrl",
    "debug_swap",
    "tme",
    "tdx_guest",
    "tdx_host_platform",
    "rmpread",
    "la57",
];

/// The first processor's block, and how many processors there are.
pub fn parse(text: &str) -> Cpu {
    let mut cpu = Cpu {
        vendor: Observed::Absent,
        family: Observed::Absent,
        model: Observed::Absent,
        name: Observed::Absent,
        flags: Observed::Absent,
        physical_bits: Observed::Absent,
        threads: Observed::Absent,
    };
    let first = text.split("\n\n").next().unwrap_or_default();
    for line in first.lines() {
        let Some((key, value)) = line.split_once(':') else { continue };
        let value = value.trim();
        match key.trim_end() {
            "vendor_id" => cpu.vendor = Observed::Known(value.to_owned()),
            "cpu family" => cpu.family = number(value),
            "model" => cpu.model = number(value),
            "model name" => cpu.name = Observed::Known(value.to_owned()),
            "flags" => cpu.flags = Observed::Known(flags(value)),
            "address sizes" => cpu.physical_bits = physical_bits(value),
            _ => {}
        }
    }
    let threads =
        text.lines().filter(|line| line.starts_with("processor") && line.contains(':')).count();
    if threads > 0 {
        cpu.threads = u32::try_from(threads).map_or_else(
            |_| Observed::Unreadable("too many processors".to_owned()),
            Observed::Known,
        );
    }
    cpu
}

fn number(value: &str) -> Observed<u32> {
    value
        .parse()
        .map_or_else(|_| Observed::Unreadable(format!("{value:?} is no number")), Observed::Known)
}

fn flags(value: &str) -> Vec<String> {
    let mut flags: Vec<String> = Vec::new();
    for flag in value.split_ascii_whitespace().filter(|flag| FLAGS.contains(flag)) {
        // Each counts once, so that a hostile list is no longer than ours.
        if !flags.iter().any(|seen| seen == flag) {
            flags.push(flag.to_owned());
        }
    }
    flags
}

/// `52 bits physical, 57 bits virtual`.
fn physical_bits(value: &str) -> Observed<u32> {
    match value.split_once(" bits physical") {
        Some((bits, _)) => number(bits.trim()),
        None => Observed::Unreadable(format!("{value:?} names no physical address bits")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let cpu = parse(text);
        let flags = cpu.flags.map(|flags| flags.join(" "));
        let seen = format!(
            "{} family {} model {} {} [{flags}] {} bits, {} threads",
            cpu.vendor, cpu.family, cpu.model, cpu.name, cpu.physical_bits, cpu.threads
        );
        assert_eq!(seen, expected);
    }

    #[test]
    fn processors() {
        let block = |number: u32| {
            format!(
                "processor\t: {number}\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\n\
                 model name\t: AMD EPYC 9354\nflags\t\t: fpu sme sev sev_snp svm npt ssbd\n\
                 bugs\t\t: sysret_ss_attrs\naddress sizes\t: 52 bits physical, 57 bits virtual\n\n"
            )
        };
        check(
            &(block(0) + &block(1)),
            "AuthenticAMD family 25 model 17 AMD EPYC 9354 [sme sev sev_snp svm] 52 bits, 2 threads",
        );
        check(
            "processor\t: 0\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\n",
            "none family none model none none [none] none bits, 1 threads",
        );
        check(
            "processor : 0\nvendor_id : GenuineIntel\ncpu family : six\nflags :\naddress sizes : wide\n",
            "GenuineIntel family unknown (\"six\" is no number) model none none [] \
             unknown (\"wide\" names no physical address bits) bits, 1 threads",
        );
        check("", "none family none model none none [none] none bits, none threads");
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "(processor|flags|model|:|\t|\n| |[0-9a-z]{0,4}|é){0,60}") {
            let cpu = parse(&text);
            let most = u32::try_from(text.len()).unwrap();
            prop_assert!(cpu.threads.known().is_none_or(|threads| *threads <= most));
        }
    }
}

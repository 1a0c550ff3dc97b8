//! Command lines of our own making.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

#[track_caller]
fn check(command_line: &str, expected: &[(&str, &[Effect])]) {
    let words = parse(command_line);
    let seen: Vec<(&str, &[Effect])> = words
        .iter()
        .filter(|word| word.meaning.is_relevant())
        .map(|word| (word.text.as_str(), word.meaning.effects))
        .collect();
    assert_eq!(seen, expected);
}

#[test]
fn amd() {
    check("root=/dev/sda1 quiet amd_iommu=on", &[("amd_iommu=on", &[Effect::NoSuchOption])]);
    check(
        "amd_iommu=fullflush,pgtbl_v2,wild iommu=pt",
        &[
            ("amd_iommu=fullflush", &[Effect::Flush]),
            ("amd_iommu=pgtbl_v2", &[Effect::TableForm, Effect::DisablesSnp]),
            ("amd_iommu=wild", &[Effect::NoSuchOption]),
            ("iommu=pt", &[Effect::PassThrough, Effect::DisablesSnp]),
        ],
    );
    check("amd-iommu=off", &[("amd-iommu=off", &[Effect::IommuOff, Effect::DisablesSnp])]);
    assert!(
        parse("amd_iommu=on")
            .iter()
            .any(|word| word.meaning.text.contains("Unknown option - 'on'"))
    );
}

#[test]
fn translation() {
    check(
        "iommu.passthrough=Y",
        &[("iommu.passthrough=Y", &[Effect::PassThrough, Effect::DisablesSnp])],
    );
    check("iommu.passthrough=off", &[("iommu.passthrough=off", &[Effect::Translates])]);
    check("iommu.passthrough=maybe", &[]);
    check(
        "iommu=soft,pt",
        &[
            ("iommu=soft", &[Effect::NoEffect]),
            ("iommu=pt", &[Effect::PassThrough, Effect::DisablesSnp]),
        ],
    );
    check(
        "intel_iommu=on,sm_on intel_iommu=pt",
        &[
            ("intel_iommu=on", &[Effect::Translates]),
            ("intel_iommu=sm_on", &[Effect::TableForm]),
            ("intel_iommu=pt", &[Effect::NoSuchOption]),
        ],
    );
}

#[test]
fn encryption() {
    check(
        "mem_encrypt=on kvm-amd.sev=1 kvm_amd.sev_snp=0 sev=debug,nosnp",
        &[
            ("mem_encrypt=on", &[Effect::Sme]),
            ("kvm-amd.sev=1", &[Effect::Sev]),
            ("kvm_amd.sev_snp=0", &[Effect::Sev, Effect::Snp]),
            ("sev=debug", &[Effect::Log]),
            ("sev=nosnp", &[Effect::DisablesSnp]),
        ],
    );
}

#[test]
fn acs() {
    check(
        "pci=noats,noacs,earlydump pcie_acs_override=downstream,multifunction",
        &[
            ("pci=noats", &[Effect::AtsOff, Effect::SetsAcs]),
            ("pci=noacs", &[Effect::NoSuchOption]),
            ("pcie_acs_override=downstream,multifunction", &[Effect::PretendsIsolation]),
        ],
    );
    check(
        "\"pci=disable_acs_redir=0000:40:01.1;0000:41:00.0\"",
        &[("pci=disable_acs_redir=0000:40:01.1;0000:41:00.0", &[Effect::ClearsRedirect])],
    );
    // With commas only the first device counts.
    check(
        "pci=disable_acs_redir=0000:40:01.1,0000:41:00.0,0000:42:00.0",
        &[
            ("pci=disable_acs_redir=0000:40:01.1", &[Effect::ClearsRedirect]),
            ("pci=0000:41:00.0", &[Effect::NoSuchOption]),
            ("pci=0000:42:00.0", &[Effect::NoSuchOption]),
        ],
    );
    check(
        "pci=config_acs=x0x0@40:01.1",
        &[("pci=config_acs=x0x0@40:01.1", &[Effect::ClearsRedirect, Effect::SetsAcs])],
    );
}

#[test]
fn modules() {
    check(
        "vfio-pci.ids=10de:2331 nvidia.NVreg_RegistryDwords=\"ForceP2P=0x0; A=1\" nvidia-drm.modeset=1 nomodeset",
        &[
            ("vfio-pci.ids=10de:2331", &[Effect::Binding]),
            ("nvidia.NVreg_RegistryDwords=ForceP2P=0x0; A=1", &[Effect::NvidiaParameter]),
            ("nvidia-drm.modeset=1", &[Effect::NvidiaParameter, Effect::Display]),
            ("nomodeset", &[Effect::Display]),
        ],
    );
}

#[test]
fn what_follows_two_hyphens_is_no_parameter() {
    check("quiet -- iommu=pt", &[]);
    assert_eq!(parse("quiet --").len(), 1);
}

#[track_caller]
fn check_split(command_line: &str, expected: &[(&str, Option<&str>)]) {
    let words = split(command_line);
    let seen: Vec<(&str, Option<&str>)> =
        words.iter().map(|(key, value)| (key.as_str(), value.as_deref())).collect();
    assert_eq!(seen, expected);
}

#[test]
fn words_of_a_line() {
    check_split("", &[]);
    check_split("  a  b=1\tc= \n", &[("a", None), ("b", Some("1")), ("c", Some(""))]);
    check_split("x=\"a b\" \"y=c d\" z", &[("x", Some("a b")), ("y", Some("c d")), ("z", None)]);
    check_split("x=\"open to the end", &[("x", Some("open to the end"))]);
}

#[test]
fn the_last_value_counts() {
    assert_eq!(last_value("mem_encrypt=on mem-encrypt=off", "mem_encrypt").as_deref(), Some("off"));
    assert_eq!(last_value("mem_encrypted=on", "mem_encrypt"), None);
    assert_eq!(last_value("quiet", "quiet"), None);
}

#[test]
fn switches() {
    for (text, expected) in [
        ("1", Some(true)),
        ("yes", Some(true)),
        ("ON", Some(true)),
        ("true", Some(true)),
        ("0", Some(false)),
        ("No", Some(false)),
        ("off", Some(false)),
        ("f", Some(false)),
        ("", None),
        ("o", None),
        ("2", None),
    ] {
        assert_eq!(switch(text), expected, "{text:?}");
    }
}

/// Every entry can be reached: none is hidden by one before it.
#[test]
fn no_entry_hides_another() {
    let texts: BTreeSet<&str> = [
        "amd_iommu=off",
        "iommu=off",
        "intremap=off",
        "intremap=nosid",
        "efi=disable_early_pci_dma",
        "efi=noruntime",
        "kvm_amd.sev=0",
        "kvm_amd.sev=1",
        "pci=realloc=off",
        "pci=realloc",
        "pci=pcie_bus_peer2peer",
        "pci=pcie_bus_safe",
        "vfio_pci.ids=1:2",
        "vfio_pci.disable_vga=1",
        "nvidia.NVreg_DmaRemapPeerMmio=0",
        "nvidia.NVreg_Other=1",
    ]
    .into_iter()
    .flat_map(parse)
    .map(|word| word.meaning.text)
    .collect();
    assert_eq!(texts.len(), 16);
}

proptest! {
    #[test]
    fn any_line_is_read(line in "(iommu=|pci=|amd_|disable_acs_redir=|config_acs=|[a-z0-9:.;,=\"-]{0,4}|é| |\n){0,40}") {
        for word in parse(&line) {
            prop_assert!(!word.text.is_empty());
            prop_assert!(word.meaning.is_relevant() != word.meaning.text.is_empty());
        }
    }
}

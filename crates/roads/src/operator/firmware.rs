//! Firmware settings to look for. Names differ by board and version; what Linux cannot read is
//! called so.

use crate::guide::Guide;
use crate::scene::Scene;

/// What vendors call transparent memory encryption.
const TSME: [(&str, &str); 4] = [
    ("supermicro", "TSME"),
    ("dell", "Transparent Secure Memory Encryption"),
    ("lenovo", "TSME"),
    ("hp", "TSME"),
];

fn tsme(scene: &Scene<'_>) -> &'static str {
    let firmware = &scene.snapshot().firmware;
    let vendors = ["board_vendor", "sys_vendor"];
    let seen = vendors.iter().filter_map(|name| firmware.dmi_value(name));
    let seen = seen.map(str::to_ascii_lowercase).collect::<Vec<_>>().join(" ");
    TSME.iter()
        .find(|(vendor, _)| seen.contains(vendor))
        .map_or("AMD CBS, UMC (DDR) Options, Security: TSME", |(_, name)| name)
}

fn board(scene: &Scene<'_>) -> String {
    let value = |name| scene.snapshot().firmware.dmi_value(name).unwrap_or("unknown");
    format!(
        "# board: {} {}, firmware {}",
        value("board_vendor"),
        value("board_name"),
        value("bios_version")
    )
}

/// Settings for the place and size of memory regions. They do not cure translation.
pub(crate) fn addresses(scene: &Scene<'_>) -> Guide {
    let regions: Vec<String> = scene
        .devices()
        .iter()
        .filter_map(|device| {
            let (memory, bar) = scene.snapshot().peer_memory(device)?;
            Some(format!("{} at {}: {} MiB", memory.address, bar.start, bar.size >> 20))
        })
        .collect();
    Guide::new("firmware settings to look for: size and place of memory regions", &[])
        .line(board(scene))
        .line(
            "# Above 4G Decoding (Memory Mapped I/O above 4GB, 64-bit resource allocation), \
             Resizable BAR Support, MMIO High Base and its size, or the like",
        )
        .line(format!("# as read: {}", crate::gates::some_of(&regions)))
        .line(
            "# none of these makes a translating IOMMU pass a raw address; every change needs a \
             reboot, and so stops every tenant",
        )
}

/// How SME goes without SNP going.
pub(crate) fn without_sme(scene: &Scene<'_>) -> Guide {
    let guide = Guide::new(
        "without the encryption bit in entries for peer memory",
        &["# a kernel of 7.0 or later leaves the bit out; or boot without mem_encrypt=on, which \
             SEV-SNP does not need. Both need a reboot that every tenant agrees to"],
    )
    .line(board(scene))
    .line(format!(
        "# to keep all memory encrypted without it, firmware has {}, or the like (cannot be \
         read from Linux before 6.13). It stands in the attestation report: ask the owner of a \
         confidential guest first",
        tsme(scene)
    ));
    super::boot::words("", "mem_encrypt=on").into_iter().fold(guide, |guide, piece| {
        let guide = guide.line(format!("# {}", piece.title));
        piece.lines.into_iter().fold(guide, Guide::line)
    })
}

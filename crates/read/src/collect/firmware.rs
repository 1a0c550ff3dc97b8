//! What firmware tells about itself and about the IOMMU.

use peerway_core::observed::Observed;
use peerway_core::snapshot::firmware::Firmware;

use crate::error::observe;
use crate::parse::acpi;
use crate::root::Root;

/// Names under `/sys/class/dmi/id` that anybody may read and that identify no single machine:
/// serial numbers and UUIDs are left out.
const DMI: [&str; 11] = [
    "bios_date",
    "bios_release",
    "bios_vendor",
    "bios_version",
    "board_name",
    "board_vendor",
    "board_version",
    "chassis_type",
    "product_name",
    "product_version",
    "sys_vendor",
];

/// Tables of the largest hosts have a few tens of KiB.
const MOST_TABLE: usize = 4 << 20;

/// DMI names and the tables `IVRS` and `DMAR`.
pub fn collect(root: &Root) -> Firmware {
    Firmware {
        dmi: dmi(root),
        ivrs: table(root, "IVRS", acpi::ivrs),
        dmar: table(root, "DMAR", acpi::dmar),
    }
}

fn dmi(root: &Root) -> Vec<(String, String)> {
    let Ok(directory) = root.directory("/sys/class/dmi/id") else { return Vec::new() };
    DMI.iter()
        .filter_map(|name| {
            let value = directory.observe(name).known()?.trim().to_owned();
            (!value.is_empty()).then(|| ((*name).to_owned(), value))
        })
        .collect()
}

fn table<T>(
    root: &Root,
    name: &str,
    parse: fn(&[u8]) -> Result<T, acpi::TableError>,
) -> Observed<T> {
    let bytes = observe(root.read(&format!("/sys/firmware/acpi/tables/{name}"), MOST_TABLE));
    bytes.and_then(|bytes| match parse(&bytes) {
        Ok(table) => Observed::Known(table),
        Err(error) => Observed::Unreadable(error.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::holders::fixture::root;

    #[test]
    fn names_and_tables() {
        let firmware = collect(&root(
            "//- /sys/class/dmi/id/board_name\nH13 \n//- /sys/class/dmi/id/bios_version\n\n\
             //- /sys/class/dmi/id/product_serial\nS1234\n//- /sys/class/dmi/id/sys_vendor !EACCES\n\
             //- /sys/firmware/acpi/tables/IVRS hex 48\n0: 49565253300000000000000000000000\n10: 00000000000000000000000000000000\n20: 00000000020000000000000000000000\n\
             //- /sys/firmware/acpi/tables/DMAR !EACCES\n",
        ));
        assert_eq!(firmware.dmi, [("board_name".to_owned(), "H13".to_owned())]);
        assert_eq!(
            firmware.ivrs.as_ref().map(|ivrs| (ivrs.efr_valid, ivrs.dma_remap)),
            Observed::Known((false, true))
        );
        assert_eq!(firmware.dmar, Observed::Unreadable("permission denied".to_owned()));
    }

    #[test]
    fn nothing_there_and_cut() {
        let nothing = collect(&root("//- /proc/cmdline\nquiet\n"));
        assert_eq!((nothing.dmi.len(), &nothing.ivrs), (0, &Observed::Absent));
        let cut = collect(&root("//- /sys/firmware/acpi/tables/DMAR hex 8\n0: 444d415264000000\n"));
        assert_eq!(
            cut.dmar,
            Observed::Unreadable("the table is cut: 100 bytes announced, 8 there".to_owned())
        );
    }
}

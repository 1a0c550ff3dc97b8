//! Listings of IOMMU groups, as the common scripts print them.

use peerway_core::address::PciAddress;

use super::{Material, lspci};

/// Reads a listing; whether it is one.
pub fn read(text: &str, material: &mut Material) -> bool {
    let mut current: Option<u32> = None;
    let mut found = false;
    for line in text.lines() {
        let bare = line.trim();
        if let Some((group, device)) = by_path(bare) {
            material.groups.entry(group).or_default().push(device);
            material.devices.entry(device).or_default();
            found = true;
            continue;
        }
        let mut rest = bare;
        if let Some(tail) = after_group(bare) {
            let digits: String = tail.chars().take_while(char::is_ascii_digit).collect();
            let Ok(group) = digits.parse() else { continue };
            current = Some(group);
            rest =
                tail.get(digits.len()..).unwrap_or_default().trim_start_matches([':', ' ', '\t']);
        }
        let (Some(group), Some((address, rest))) = (current, device(rest)) else { continue };
        found = true;
        material.groups.entry(group).or_default().push(address);
        lspci::line(rest, material);
    }
    found
}

/// The first device that a line names, and the line from there on; some scripts put numbers and
/// marks in front.
fn device(line: &str) -> Option<(PciAddress, &str)> {
    let starts = line.match_indices([' ', '\t']).map(|(at, _)| at + 1);
    std::iter::once(0).chain(starts).find_map(|at| {
        let rest = line.get(at..)?;
        let (address, after) = PciAddress::parse_prefix(rest.as_bytes())?;
        let ends = after.first().is_none_or(u8::is_ascii_whitespace);
        ends.then_some((address, rest))
    })
}

fn after_group(line: &str) -> Option<&str> {
    ["IOMMU Group ", "IOMMU group ", "Group:", "Group "]
        .iter()
        .find_map(|front| line.strip_prefix(front))
        .map(str::trim_start)
        .filter(|rest| rest.starts_with(|character: char| character.is_ascii_digit()))
}

/// `/sys/kernel/iommu_groups/12/devices/0000:01:00.0`.
fn by_path(line: &str) -> Option<(u32, PciAddress)> {
    let (_, rest) = line.split_once("iommu_groups/")?;
    let (group, rest) = rest.split_once("/devices/")?;
    let (device, _) = PciAddress::parse_prefix(rest.as_bytes())?;
    Some((group.parse().ok()?, device))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[(u32, &str)]) {
        let mut material = Material::default();
        assert_eq!(read(text, &mut material), !expected.is_empty(), "{text}");
        let seen: Vec<(u32, String)> = material
            .groups
            .iter()
            .flat_map(|(group, all)| all.iter().map(|one| (*group, one.to_string())))
            .collect();
        let expected: Vec<(u32, String)> =
            expected.iter().map(|(group, one)| (*group, (*one).to_owned())).collect();
        assert_eq!(seen, expected);
    }

    #[test]
    fn three_scripts() {
        let device = "01:00.0 VGA compatible controller [0300]: NVIDIA Corporation X [10de:2482]";
        check(&format!("IOMMU Group 1:\n\t{device}\n"), &[(1, "0000:01:00.0")]);
        check(&format!("IOMMU Group 12 {device}\n"), &[(12, "0000:01:00.0")]);
        check("/sys/kernel/iommu_groups/3/devices/0000:02:00.1\n", &[(3, "0000:02:00.1")]);
        check(&format!("Group:  7   {device}\n"), &[(7, "0000:01:00.0")]);
        check(
            "Group 3:\t[10de:2482] [R] 01:00.0  VGA compatible controller\n",
            &[(3, "0000:01:00.0")],
        );
        check("01:00.0 VGA compatible controller [0300]: x\n", &[]);
    }
}

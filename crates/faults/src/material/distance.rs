//! What a user-space copy of the kernel's peer-to-peer check says about a pair
//! (`drivers/pci/p2pdma.c`, `calc_map_type_and_dist`).

use peerway_core::address::PciAddress;

/// One answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distance {
    /// Ports whose redirect decides.
    pub redirecting: Vec<PciAddress>,
    /// Whether the host bridge is on the kernel's list; `None` where that is not said.
    pub bridge_listed: Option<bool>,
    /// Whether the kernel would allow it.
    pub supported: Option<bool>,
}

/// Reads an answer.
pub fn read(text: &str) -> Option<Distance> {
    if !text.contains("PCI_P2PDMA_MAP_") {
        return None;
    }
    let mut found = Distance::default();
    for line in text.lines() {
        let line = line.trim();
        if let Some((_, ports)) = line.split_once("ACS redirect is enabled on:") {
            let ports = ports.split(',').filter_map(|port| port.trim().parse::<PciAddress>().ok());
            found.redirecting.extend(ports);
        }
        if line.contains("host bridge") && line.contains("listed") {
            found.bridge_listed = Some(!line.contains("NOT"));
        }
        if let Some((_, kind)) = line.split_once("PCI_P2PDMA_MAP_") {
            found.supported = Some(!kind.starts_with("NOT_SUPPORTED"));
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirect_and_bridge() {
        let text = "ACS redirect is enabled on: 0000:02:00.0, 0000:03:01.0\n  host bridge \
                    0000:00:00.0 (8086:1234): NOT whitelisted\nmap_type = \
                    PCI_P2PDMA_MAP_NOT_SUPPORTED\n";
        let found = read(text).unwrap();
        assert_eq!(found.redirecting.len(), 2);
        assert_eq!((found.bridge_listed, found.supported), (Some(false), Some(false)));
        assert_eq!(read("map_type = PCI_P2PDMA_MAP_BUS_ADDR").unwrap().supported, Some(true));
        assert_eq!(read("x"), None);
    }
}

//! `nvidia-smi topo -p2p`: what the driver says about pairs.

/// The words of the table, without its legend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// Status of each ordered pair, or (`-m`) what lies between the two.
    pub pairs: Vec<String>,
}

impl Topology {
    /// Whether any pair has this status.
    pub fn has(&self, status: &str) -> bool {
        self.pairs.iter().any(|pair| pair == status)
    }
}

/// Statuses that the table of `-p2p` has.
const STATUSES: [&str; 7] = ["OK", "CNS", "GNS", "TNS", "NS", "DR", "U"];
/// What the table of `-m` says lies between two devices.
const BETWEEN: [&str; 5] = ["SYS", "NODE", "PHB", "PXB", "PIX"];

/// Reads a table. The legend below it holds the same words and is none of it.
pub fn read(text: &str) -> Option<Topology> {
    let rows: Vec<Vec<&str>> = text.lines().filter_map(row).collect();
    let mut pairs = Vec::new();
    for cells in &rows {
        // Behind the GPUs' columns stand adapters and affinities.
        let own: Vec<&str> = cells.iter().take(rows.len()).copied().collect();
        let known = |cell: &&str| {
            *cell == "X" || STATUSES.contains(cell) || BETWEEN.contains(cell) || is_nvlink(cell)
        };
        if own.iter().all(known) {
            pairs.extend(own.iter().filter(|cell| **cell != "X").map(|cell| (*cell).to_owned()));
        }
    }
    (!pairs.is_empty()).then_some(Topology { pairs })
}

/// The cells of a GPU's row; the head has GPUs in it.
fn row(line: &str) -> Option<Vec<&str>> {
    let mut words = line.split_whitespace();
    let index = words.next()?.strip_prefix("GPU")?;
    index.parse::<u32>().ok()?;
    let cells: Vec<&str> = words.collect();
    (!cells.is_empty() && !cells.iter().any(|cell| cell.starts_with("GPU"))).then_some(cells)
}

/// `NV18`: that many links.
fn is_nvlink(cell: &str) -> bool {
    cell.strip_prefix("NV").is_some_and(|links| links.parse::<u32>().is_ok())
}

impl Topology {
    /// Whether the table says what lies between devices, and for every pair more than a bridge:
    /// the host's own interconnect, or a host bridge.
    pub fn only_through_host(&self) -> bool {
        self.pairs.iter().all(|pair| ["SYS", "NODE", "PHB"].contains(&pair.as_str()))
    }

    /// Whether any pair is below one bridge or has links of its own.
    pub fn has_direct_way(&self) -> bool {
        self.pairs.iter().any(|pair| is_nvlink(pair) || pair == "PIX" || pair == "PXB")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_and_not_the_legend() {
        let text = " \tGPU0\tGPU1\t\n GPU0\tX\tGNS\t\n GPU1\tOK\tX\t\n\nLegend:\n\n  OK = Status Ok\n  \
                    TNS = Topology not supported\n";
        let found = read(text).unwrap();
        assert_eq!(found.pairs, ["GNS", "OK"]);
        assert!(found.has("GNS") && !found.has("TNS"));
        assert_eq!(read("GPU0 is fine\n"), None);
    }

    #[test]
    fn what_lies_between() {
        let far = "\tGPU0\tGPU1\tNIC0\tCPU Affinity\nGPU0\tX\tSYS\tNODE\t0-31\nGPU1\tSYS\tX\tSYS\t\
                   32-63\nNIC0\tNODE\tSYS\tX\n";
        let found = read(far).unwrap();
        assert_eq!(found.pairs, ["SYS", "SYS"]);
        assert!(found.only_through_host() && !found.has_direct_way());
        let near = read("GPU0\tX\tNV18\t0-31\nGPU1\tNV18\tX\t0-31\n").unwrap();
        assert!(near.has_direct_way() && !near.only_through_host());
    }
}

//! `nvidia-smi topo -p2p`: what the driver says about pairs.

/// The words of the table, without its legend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// Status of each ordered pair.
    pub pairs: Vec<String>,
}

impl Topology {
    /// Whether any pair has this status.
    pub fn has(&self, status: &str) -> bool {
        self.pairs.iter().any(|pair| pair == status)
    }
}

/// Statuses that the table of `-p2p` has; that of `-m` has others.
const STATUSES: [&str; 7] = ["OK", "CNS", "GNS", "TNS", "NS", "DR", "U"];

/// Reads a table. The legend below it holds the same words and is none of it.
pub fn read(text: &str) -> Option<Topology> {
    let mut found = Topology::default();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let Some(first) = words.next() else { continue };
        let of_gpu = first.strip_prefix("GPU").is_some_and(|index| index.parse::<u32>().is_ok());
        let cells: Vec<&str> = words.collect();
        if !of_gpu || cells.is_empty() || cells.iter().any(|cell| cell.starts_with("GPU")) {
            continue;
        }
        if cells.iter().all(|cell| *cell == "X" || STATUSES.contains(cell)) {
            found
                .pairs
                .extend(cells.iter().filter(|cell| **cell != "X").map(|cell| (*cell).to_owned()));
        }
    }
    (!found.pairs.is_empty()).then_some(found)
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
        assert_eq!(read("GPU0\tX\tNV18\t\nGPU1\tNV18\tX\t\n"), None);
    }
}

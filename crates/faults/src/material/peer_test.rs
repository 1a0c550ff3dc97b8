//! `simpleP2P`, and programs that print like it.

use std::collections::BTreeSet;

/// Faster than any PCIe link of sixteen lanes (generation 5: 63 GB/s), GB/s.
const ABOVE_PCIE: f64 = 64.0;

/// What a test of peer access says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PeerTest {
    /// Boards that it names.
    pub boards: BTreeSet<String>,
    /// Pairs for which the driver says yes.
    pub yes: u32,
    /// Pairs for which it says no.
    pub no: u32,
    /// Copy speed, GB/s.
    pub speed: Option<f64>,
    /// Data was compared and right.
    pub passed: bool,
    /// Data was compared and wrong.
    pub failed: bool,
    /// The test was not run.
    pub waived: bool,
}

impl PeerTest {
    /// A speed that no PCIe link has, between boards without NVLink: the copies did not reach the
    /// peer.
    pub fn is_impossible(&self) -> bool {
        self.speed.is_some_and(|speed| speed > ABOVE_PCIE)
            && self.boards.iter().any(|board| !has_nvlink(board))
    }
}

/// Boards that reach each other by NVLink may be faster than PCIe.
fn has_nvlink(board: &str) -> bool {
    const WITHOUT: [&str; 9] =
        ["RTX PRO", "RTX 40", "RTX 50", "Ada", "L40", "L4", "T4", "A40 ", "A10"];
    !WITHOUT.iter().any(|name| board.contains(name))
}

/// Whether a statement says that data did not reach the memory that it was written to.
pub fn says_not_arrived(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    let absent = ["zeros", "zeroes", "unchanged", "stale", "does not see", "not arrive"];
    text.contains("owner") && absent.iter().any(|word| text.contains(word))
}

/// Reads a test's output.
pub fn read(text: &str) -> Option<PeerTest> {
    let mut test = PeerTest::default();
    let mut is_test = text.contains("simpleP2P") || text.contains("writer read-back");
    let mut written: Option<&str> = None;
    for line in text.lines() {
        let line = line.trim();
        if let Some(rest) = line.trim_start_matches("> ").strip_prefix("Peer access from ") {
            is_test = true;
            if let Some((pair, answer)) = rest.rsplit_once(':') {
                test.yes += u32::from(answer.trim() == "Yes");
                test.no += u32::from(answer.trim() == "No");
                for board in pair.split("->").filter_map(|end| end.split(" (").next()) {
                    test.boards.insert(board.trim().to_owned());
                }
            }
        }
        if let Some((_, speed)) = line.rsplit_once("between GPU0 and GPU1: ") {
            test.speed = speed.trim_end_matches("GB/s").trim().parse().ok();
        }
        // A writer that reads its own data back proves nothing; what the owner sees does.
        if let Some((_, data)) = line.split_once("writer read-back:") {
            written = Some(data.trim());
        } else if let Some((_, data)) =
            line.split_once("owner sees:").or_else(|| line.split_once("owner:"))
            && let Some(written) = written
        {
            test.passed |= data.trim() == written;
            test.failed |= data.trim() != written;
        }
        // The tests of NCCL compare by value and count what differs.
        if line.contains("Out of bounds values :") {
            is_test = true;
            test.failed |= line.ends_with("FAILED");
            test.passed |= line.ends_with("OK");
        }
        // What CUDA answers where there is no peer access to be had.
        if line.contains("peer access is not supported between these two devices") {
            is_test = true;
            test.no += 1;
        }
        test.failed |= line.starts_with("Verification error") || line == "Test failed!";
        test.passed |= line == "Test passed";
        test.waived |= line.contains("waiving test");
    }
    test.passed &= !test.failed;
    is_test.then_some(test)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAIR: &str = "[./simpleP2P] - Starting...\n\
        > Peer access from NVIDIA RTX PRO 6000 (GPU0) -> NVIDIA RTX PRO 6000 (GPU1) : Yes\n";

    #[test]
    fn passed_failed_waived_and_impossible() {
        let passed = read(&format!("{PAIR}Test passed\n")).unwrap();
        assert!(passed.passed && !passed.failed && passed.yes == 1);
        let failed = read(&format!(
            "{PAIR}Verification error @ element 1: val = 0.000000, ref = 4.000000\nTest failed!\n"
        ));
        assert!(failed.unwrap().failed);
        let fast = "cudaMemcpyPeer / cudaMemcpy between GPU0 and GPU1: 120.5GB/s\n";
        let fast = read(&format!("{PAIR}{fast}")).unwrap();
        assert!(fast.is_impossible() && !fast.passed);
        assert!(
            read("> Peer access from A (GPU0) -> B (GPU1) : No\nwaiving test.\n").unwrap().waived
        );
        assert_eq!(read("something else"), None);
    }

    #[test]
    fn other_programs() {
        assert!(read("# Out of bounds values : 12 FAILED\n").unwrap().failed);
        assert!(read("# Out of bounds values : 0 OK\n").unwrap().passed);
        let refused = "RuntimeError: peer access is not supported between these two devices\n";
        assert_eq!(read(refused).unwrap().no, 1);
    }

    #[test]
    fn only_the_owner_s_view_counts() {
        let alone = read("dir 0->1 writer read-back: c0ffee01\n").unwrap();
        assert!(!alone.passed && !alone.failed);
        let mirrored = "dir 0->1 writer read-back: c0ffee01\ndir 0->1 owner sees: 00000000\n";
        assert!(read(mirrored).unwrap().failed);
        assert!(read(&mirrored.replace("00000000", "c0ffee01")).unwrap().passed);
        assert!(says_not_arrived("the writer reads it back; the owner sees zeros"));
        assert!(!says_not_arrived("the owner sees the data"));
    }

    #[test]
    fn nvlink_may_be_that_fast() {
        let text = "> Peer access from NVIDIA H100 80GB HBM3 (GPU0) -> NVIDIA H100 80GB HBM3 (GPU1) \
                    : Yes\ncudaMemcpyPeer / cudaMemcpy between GPU0 and GPU1: 350.1GB/s\n";
        assert!(!read(text).unwrap().is_impossible());
    }
}

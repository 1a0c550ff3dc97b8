//! Files that a transaction was begun with, kept beside its journal: what becomes of the operator's
//! own does not bear on the way back.

use std::path::PathBuf;

use rustix::io::Errno;

use crate::place;

/// Directory of the copies, in the state directory.
const DIRECTORY: &str = "accelerators";
/// Longer than any such file.
const MOST_BYTES: usize = 1 << 20;
/// More than any command is given.
const MOST_FILES: usize = 1000;

/// The copies of all transactions.
#[derive(Debug)]
pub(super) struct Kept {
    state: PathBuf,
}

impl Kept {
    pub(super) fn below(state: PathBuf) -> Self {
        Self { state }
    }

    fn directory(&self, id: &str) -> PathBuf {
        self.state.join(DIRECTORY).join(id)
    }

    /// Copies files for a transaction that is about to begin. Copies of one with the same name that
    /// never began are replaced.
    pub(super) fn keep(&self, id: &str, files: &[PathBuf]) -> Result<(), String> {
        let directory = self.directory(id);
        for old in self.of(id)? {
            let shown = old.display().to_string();
            rustix::fs::unlink(&old)
                .map_err(|errno| format!("cannot remove {shown}: {}", words(errno)))?;
        }
        if files.is_empty() {
            return Ok(());
        }
        place::make_directories(&directory).map_err(|error| error.to_string())?;
        for (number, file) in files.iter().enumerate() {
            let bytes = peerway_cli_read::host::read_option_file(file, MOST_BYTES)
                .map_err(|why| format!("cannot keep {}: {why}", file.display()))?;
            place::replace(&directory, &number.to_string(), &bytes)
                .map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// The copies of a transaction, in order; none where it had none.
    pub(super) fn of(&self, id: &str) -> Result<Vec<PathBuf>, String> {
        let directory = self.directory(id);
        let mut files = Vec::new();
        while files.len() < MOST_FILES {
            let file = directory.join(files.len().to_string());
            match rustix::fs::stat(&file) {
                Ok(_) => files.push(file),
                Err(Errno::NOENT) => break,
                Err(errno) => {
                    return Err(format!("cannot look at {}: {}", file.display(), words(errno)));
                }
            }
        }
        Ok(files)
    }
}

fn words(errno: Errno) -> String {
    std::io::Error::from(errno).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_keeps_what_its_files_said() {
        let place = tempfile::tempdir().unwrap();
        let kept = Kept::below(place.path().to_owned());
        let [one, other] = ["one", "other"].map(|name| place.path().join(name));
        let read = |id: &str| -> Vec<String> {
            let files = kept.of(id).unwrap();
            files.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect()
        };
        std::fs::write(&one, "first").unwrap();
        std::fs::write(&other, "second").unwrap();
        kept.keep("t000001", &[one.clone(), other.clone()]).unwrap();
        std::fs::write(&one, "changed").unwrap();
        std::fs::remove_file(&other).unwrap();
        assert_eq!(read("t000001"), ["first", "second"]);
        assert_eq!(read("t000002"), Vec::<String>::new());
        // One that never began leaves nothing to the next of its name.
        kept.keep("t000001", std::slice::from_ref(&one)).unwrap();
        assert_eq!(read("t000001"), ["changed"]);
        kept.keep("t000001", &[]).unwrap();
        assert_eq!(read("t000001"), Vec::<String>::new());
        let error = kept.keep("t000003", &[other]).unwrap_err();
        assert!(error.contains("cannot keep"), "{error}");
    }
}

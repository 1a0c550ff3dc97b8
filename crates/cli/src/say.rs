//! How commands of the binary end: an answer, or one line that says why not.

use peerway_cli_read::Exit;
use peerway_cli_read::output::{Output, complain};

/// Prints an answer.
pub(crate) fn print(text: &str, exit: Exit) -> Exit {
    let mut output = Output::stdout();
    output.line(text.trim_end());
    match output.finish() {
        Ok(()) => exit,
        // The reader of a pipe went away: nothing is wrong with the answer.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => exit,
        Err(error) => refuse(&format!("cannot write the answer: {error}"), Exit::Internal),
    }
}

/// Says why there is no answer.
pub(crate) fn refuse(why: &str, exit: Exit) -> Exit {
    complain(&format!("peerway: {why}\n"));
    exit
}

/// Wrong use.
pub(crate) fn usage(why: &str) -> Exit {
    refuse(why, Exit::Usage)
}

/// Nothing could be decided.
pub(crate) fn undecided(why: &str) -> Exit {
    refuse(why, Exit::Undecided)
}

/// A defect of this program.
pub(crate) fn internal(why: &str) -> Exit {
    refuse(why, Exit::Internal)
}

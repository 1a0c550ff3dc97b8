//! `verify`: whether the last confirmed change is in force, and, if asked, whether data arrives.

use peerway_cli_read::Exit;
use peerway_cli_read::output::Output;
use peerway_write::transaction::{TransactionError, in_force};
use peerway_write::{Host, WriteGrant, proof, recovery};

use super::ChangeError;

/// Runs the command; `copies` says whether it copies as well.
pub(super) fn run(
    grant: &WriteGrant<'_>,
    host: &mut dyn Host,
    copies: bool,
    output: &mut Output,
) -> Result<Exit, ChangeError> {
    // What nobody can see may be lost: new jobs begin without peer access.
    let closed = |host: &mut dyn Host, error: TransactionError| match recovery::close(grant, host)
        .map_err(TransactionError::from)
    {
        Ok(()) => ChangeError::from(error),
        Err(worse) => worse.into(),
    };
    let looked = in_force(grant, host).map_err(|error| closed(host, error))?;
    let Some((id, mut problems)) = looked else {
        output.line("nothing was confirmed on this boot");
        return Ok(Exit::Undecided);
    };
    let mut copied = String::new();
    if copies && problems.is_empty() {
        match proof::by_copies(grant, host) {
            Ok((count, lost)) => {
                copied = format!("; {count} copies arrived intact");
                problems = lost;
            }
            // Somebody works with the devices: nothing was tried, and nothing is known to be lost.
            Err(error @ TransactionError::Held(_)) => return Err(error.into()),
            Err(error) => return Err(closed(host, error)),
        }
    }
    if problems.is_empty() {
        output.line(&format!("{id}: in force, and nobody else was touched{copied}"));
        return Ok(Exit::Fine);
    }
    // New jobs begin without peer access, whatever is done about it.
    recovery::close(grant, host).map_err(TransactionError::from)?;
    output.line(&format!("{id}: NOT as it was confirmed; the safe environment is written"));
    for problem in problems {
        output.line(&format!("  {problem}"));
    }
    Ok(Exit::Findings)
}

//! `completions` and `man`, from the definitions of the arguments themselves.

use crate::error::CliError;
use crate::exit::Exit;
use crate::output::Output;

/// Shell completions.
pub fn completions(
    shell: clap_complete::Shell,
    mut cli: clap::Command,
    output: &mut Output,
) -> Result<Exit, CliError> {
    let mut bytes = Vec::new();
    clap_complete::generate(shell, &mut cli, "peerway", &mut bytes);
    output.push(&String::from_utf8_lossy(&bytes));
    Ok(Exit::Fine)
}

/// The manual page.
pub fn man(cli: clap::Command, output: &mut Output) -> Result<Exit, CliError> {
    let mut bytes = Vec::new();
    clap_mangen::Man::new(cli).render(&mut bytes).map_err(|source| CliError::Output { source })?;
    output.push(&String::from_utf8_lossy(&bytes));
    Ok(Exit::Fine)
}

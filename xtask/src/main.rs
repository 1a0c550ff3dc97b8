//! Every chore of the project: `cargo xtask help` lists them.

use std::process::ExitCode;

const HELP: &str = "\
usage: cargo xtask COMMAND

  test   everything that must be right: format, lints, fuzzing, tests, the lab
  bench  figures beside those of the peers: cargo xtask bench scan
  docs   write the documents that are made from the code
  fuzz   fuzz every parser: cargo xtask fuzz [SECONDS]
  hardware  a page from a measurement on real hardware: cargo xtask hardware NAME
  lab    machines with a real kernel and IOMMU driver: fetch, run, facts (cargo xtask lab --help)
  help   this text";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let command = arguments.next().unwrap_or_else(|| "help".to_owned());
    let result = match command.as_str() {
        "bench" => xtask::bench::main(arguments),
        "docs" => xtask::docs::write(),
        "fuzz" => xtask::fuzz::main(arguments),
        "hardware" => xtask::hardware::main(arguments),
        "lab" => xtask::lab::main(arguments),
        "test" => xtask::suite::main(arguments),
        "help" | "--help" | "-h" => {
            println!("{HELP}");
            Ok(())
        }
        other => Err(anyhow::anyhow!("no command {other:?}; `cargo xtask help` lists them")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

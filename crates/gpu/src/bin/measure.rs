//! The measurement as a program of its own, for hosts where only this has to be run: one command,
//! one JSON document on standard output, progress on standard error. It changes no setting of any
//! GPU, and nothing of it outlives it.

use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use peerway_gpu::{Depth, Launch, ProbeQuestion, Progress, Settings, measure, probe};

const USAGE: &str = "\
usage: peerway-gpu-measure all   [--cuda PATH] [--nccl PATH] [--depth quick|standard|full]
                                 [--gpus A,B,...] [--loopback] [--child-limit SECONDS]
       peerway-gpu-measure plan  [the same]      what would run, without running it
       peerway-gpu-measure probe --from A --to B [--bytes N] [--deadline-ms N]
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((command, rest)) = arguments.split_first() else { return usage("no command") };
    match command.as_str() {
        // Before anything else: this is the process that loads the driver.
        "child" => peerway_gpu::child_main(),
        "enter" => {
            let rest: Vec<_> = rest.iter().map(std::ffi::OsString::from).collect();
            peerway_gpu::enter_main(&rest)
        }
        "all" => match settings(rest) {
            Ok(settings) => all(&settings),
            Err(error) => usage(&error),
        },
        "plan" => match settings(rest) {
            Ok(settings) => {
                let lines = settings.outline(settings.gpus.len().max(2));
                print(&format!("{}\n", lines.join("\n")))
            }
            Err(error) => usage(&error),
        },
        "probe" => match (ProbeQuestion::parse(rest), settings(&[])) {
            (Ok(question), Ok(settings)) => {
                let answer = probe(question, &settings, &mut |_| {});
                let text = serde_json::to_string(&answer).unwrap_or_default();
                print(&format!("{text}\n"))
            }
            (Err(error), _) => usage(&error.to_string()),
            (_, Err(error)) => usage(&error),
        },
        other => usage(&format!("{other} is no command")),
    }
}

fn usage(problem: &str) -> ExitCode {
    say(&format!("error: {problem}\n\n{USAGE}"));
    ExitCode::from(2)
}

fn say(text: &str) {
    // Nobody may be listening; the document matters, not the progress.
    drop(std::io::stderr().write_all(text.as_bytes()));
}

fn print(text: &str) -> ExitCode {
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn settings(arguments: &[String]) -> Result<Settings, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut settings = Settings::new(Launch {
        program,
        arguments: vec!["child".to_owned()],
        environment: Vec::new(),
        unset: Vec::new(),
        clean: false,
    });
    let mut rest = arguments.iter();
    while let Some(name) = rest.next() {
        if name == "--loopback" {
            settings.loopback = true;
            continue;
        }
        let value = rest.next().ok_or_else(|| format!("{name} needs a value behind it"))?;
        match name.as_str() {
            "--cuda" => settings.cuda = Some(value.into()),
            "--nccl" => settings.nccl = Some(value.into()),
            "--depth" => {
                settings.depth = match value.as_str() {
                    "quick" => Depth::Quick,
                    "standard" => Depth::Standard,
                    "full" => Depth::Full,
                    _ => return Err(format!("{value} is no depth")),
                }
            }
            "--child-limit" => {
                let seconds = value.parse::<u64>().map_err(|error| format!("{name}: {error}"))?;
                settings.child_limit = Duration::from_secs(seconds);
            }
            "--gpus" => {
                let gpu = |text: &str| text.parse().map_err(|error| format!("{name}: {error}"));
                settings.gpus = value.split(',').map(gpu).collect::<Result<_, String>>()?;
            }
            _ => return Err(format!("{name} is no option")),
        }
    }
    Ok(settings)
}

fn all(settings: &Settings) -> ExitCode {
    let start = Instant::now();
    let measured = measure(settings, &mut |progress| {
        if let Progress::Begin { work, .. } = progress {
            say(&format!("{:7.2} s  {work}\n", start.elapsed().as_secs_f64()));
        }
    });
    say(&format!("{:7.2} s  done\n", start.elapsed().as_secs_f64()));
    match serde_json::to_string_pretty(&measured) {
        Ok(text) => print(&format!("{text}\n")),
        Err(error) => {
            say(&format!("error: {error}\n"));
            ExitCode::FAILURE
        }
    }
}

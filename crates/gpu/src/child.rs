//! The child process: the only one that opens a GPU.

use std::io::{BufRead, PipeWriter, Write};
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use rustix::process::Signal;

use crate::driver::Driver;
use crate::precondition::Precondition;
use crate::protocol::{Event, Request, Work};
use crate::report::Reporter;
use crate::status::GpuError;
use crate::{all_reduce, inventory, pair, partner, self_check, speed, together};

/// Runs one request from standard input; the program's hidden subcommand calls this and nothing
/// else. Events go to standard output.
pub fn main() -> ExitCode {
    match guarded() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn guarded() -> Result<(), GpuError> {
    die_with_parent()?;
    let mut out = own_output()?;
    let mut input = std::io::stdin().lock();
    let mut line = String::new();
    input.read_line(&mut line).map_err(GpuError::Pipe)?;
    let request: Request =
        serde_json::from_str(&line).map_err(|error| GpuError::Request(error.to_string()))?;
    run(&request, &mut input, &mut out)
}

/// If the parent is killed, nothing of the measurement stays behind.
pub(crate) fn die_with_parent() -> Result<(), GpuError> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| GpuError::Pipe(error.into()))
}

/// Takes standard output for the protocol alone: what libraries print there goes to standard error.
fn own_output() -> Result<PipeWriter, GpuError> {
    const FIRST_FREE: i32 = 3;
    let pipe = |error: rustix::io::Errno| GpuError::Pipe(error.into());
    let kept =
        rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), FIRST_FREE).map_err(pipe)?;
    rustix::stdio::dup2_stdout(rustix::stdio::stderr()).map_err(pipe)?;
    Ok(PipeWriter::from(kept))
}

/// Does the work and reports how it ended.
pub(crate) fn run(
    request: &Request,
    input: &mut dyn BufRead,
    out: &mut dyn Write,
) -> Result<(), GpuError> {
    if let Work::AllReduce(work) = &request.work
        && work.apart
    {
        // The ranks open GPUs, this process none.
        let mut out = Reporter::new(out);
        let done = all_reduce::processes::lead(request, work, &mut out);
        return finish(done, &mut out);
    }
    let driver = match Driver::open(request.cuda.as_deref()) {
        Ok(driver) => Rc::new(driver),
        Err(error) => {
            let mut out = Reporter::new(out);
            out.emit(&Event::Unmet(Precondition::of_start(&error)))?;
            out.emit(&failed(&error))?;
            return Err(error);
        }
    };
    if let Work::Partner { gpu, number } = request.work {
        return partner::serve(&driver, (gpu, number), input, out);
    }
    if let Work::Rank(work) = &request.work {
        let nccl = request.nccl.as_deref();
        return all_reduce::processes::serve(&driver, nccl, work, input, out);
    }
    let mut out = Reporter::new(out);
    let done = match &request.work {
        Work::Inventory { wanted, needed_bytes } => {
            inventory::run(&driver, wanted, *needed_bytes, &mut out)
        }
        Work::SelfCheck { gpu } => self_check::run(&driver, *gpu, &mut out),
        Work::Pair(work) => pair::correctness(&driver, request, work, &mut out),
        Work::Together(work) => together::at_once(&driver, work, &mut out),
        Work::Speed(work) => speed::of_pair(&driver, work, &mut out),
        Work::Host { gpu, bytes, limit_ms } => {
            speed::host(&driver, *gpu, *bytes, Duration::from_millis(*limit_ms), &mut out)
        }
        Work::AllReduce(work) => all_reduce::run(&driver, request.nccl.as_deref(), work, &mut out),
        Work::Partner { .. } | Work::Rank(_) => Ok(()),
    };
    finish(done, &mut out)
}

/// The last word about the work.
fn finish(done: Result<(), GpuError>, out: &mut Reporter<'_>) -> Result<(), GpuError> {
    match &done {
        Ok(()) => out.emit(&Event::End)?,
        Err(error) => out.emit(&failed(error))?,
    }
    done
}

fn failed(error: &GpuError) -> Event {
    Event::Failed {
        code: error.cuda_code(),
        hung: matches!(error, GpuError::Hung { .. }),
        text: error.to_string(),
    }
}

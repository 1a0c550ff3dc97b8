//! The second process of an IPC test: the requester. It belongs to the same process group as the
//! first, so that one kill ends both, and ends itself when its input closes.

use std::io::{BufRead, Write};
use std::rc::Rc;
use std::time::Duration;

use peerway_core::address::PciAddress;
use serde::{Deserialize, Serialize};

use crate::check::Arena;
use crate::driver::{Driver, IPC_HANDLE_BYTES, IpcHandle};
use crate::gpu::Gpu;
use crate::pair::REQUESTER;
use crate::plan::Mover;
use crate::protocol::{Request, Work};
use crate::report::send;
use crate::result::DamageReport;
use crate::sibling::{Answers, Sibling, next};
use crate::status::GpuError;
use crate::transfer::{Local, Order, ProduceOrder, Requester};

/// What the first process asks for.
#[derive(Serialize, Deserialize)]
enum Ask {
    Open { handle: Vec<u8>, own_bytes: u64 },
    Write(Order),
    Read(Order),
    Look { mover: Mover, unit: u64 },
    Produce(ProduceOrder),
}

/// What the second process answers.
#[derive(Serialize, Deserialize)]
enum Reply {
    Done,
    Checked(Option<DamageReport>),
    Unit([u8; 16]),
    Failed { code: Option<i32>, lost: bool, hung: bool, text: String },
}

/// The first process's hold on the second.
pub(crate) struct Remote {
    sibling: Sibling,
    from: Answers,
}

impl Remote {
    /// Starts the second process and has it open the handle.
    pub(crate) fn start(
        request: &Request,
        requester: PciAddress,
        handle: IpcHandle,
        own_bytes: u64,
    ) -> Result<Self, GpuError> {
        let work = Work::Partner { gpu: requester, number: REQUESTER };
        let (sibling, from) = Sibling::start(request, work)?;
        let mut remote = Self { sibling, from };
        let open = Ask::Open { handle: handle.0.to_vec(), own_bytes };
        match remote.ask(&open)? {
            Reply::Done => Ok(remote),
            reply => Err(unexpected(reply)),
        }
    }

    fn ask(&mut self, ask: &Ask) -> Result<Reply, GpuError> {
        self.sibling.tell(ask)?;
        next(&mut self.from)?.ok_or_else(|| self.sibling.end())
    }
}

/// An answer that is an error or does not fit the question.
fn unexpected(reply: Reply) -> GpuError {
    match reply {
        Reply::Failed { hung: true, text, .. } => {
            GpuError::Hung { what: format!("the second process: {text}"), limit: Duration::ZERO }
        }
        Reply::Failed { code: Some(code), lost: false, .. } => {
            GpuError::Cuda { call: "a call of the second process", code }
        }
        Reply::Failed { text, .. } => GpuError::Partner(text),
        Reply::Done | Reply::Checked(_) | Reply::Unit(_) => {
            GpuError::Partner("an answer that does not fit".to_owned())
        }
    }
}

impl Requester for Remote {
    fn write(&mut self, order: Order) -> Result<(), GpuError> {
        match self.ask(&Ask::Write(order))? {
            Reply::Done => Ok(()),
            reply => Err(unexpected(reply)),
        }
    }

    fn read(&mut self, order: Order) -> Result<Option<DamageReport>, GpuError> {
        match self.ask(&Ask::Read(order))? {
            Reply::Checked(report) => Ok(report),
            reply => Err(unexpected(reply)),
        }
    }

    fn look_through(&mut self, mover: Mover, unit: u64) -> Result<[u8; 16], GpuError> {
        match self.ask(&Ask::Look { mover, unit })? {
            Reply::Unit(unit) => Ok(unit),
            reply => Err(unexpected(reply)),
        }
    }

    fn produce(&mut self, order: ProduceOrder) -> Result<(), GpuError> {
        match self.ask(&Ask::Produce(order))? {
            Reply::Done => Ok(()),
            reply => Err(unexpected(reply)),
        }
    }
}

/// The second process: answers until its input closes.
pub(crate) fn serve(
    driver: &Rc<Driver>,
    (address, number): (PciAddress, u16),
    input: &mut dyn BufRead,
    out: &mut dyn Write,
) -> Result<(), GpuError> {
    let gpu = match Gpu::open(driver, address, number) {
        Ok(gpu) => gpu,
        Err(error) => {
            // The question has to be taken before it can be answered.
            next::<Ask>(input)?;
            return send(out, &failed(driver, &error));
        }
    };
    let mut local: Option<Local<'_>> = None;
    while let Some(ask) = next(input)? {
        let reply = match (&ask, &mut local) {
            (Ask::Open { handle, own_bytes }, slot) => {
                open(&gpu, handle, *own_bytes).map(|opened| {
                    *slot = Some(opened);
                    Reply::Done
                })
            }
            (_, None) => Err(GpuError::Request("nothing is open".to_owned())),
            (Ask::Write(order), Some(local)) => local.write(*order).map(|()| Reply::Done),
            (Ask::Read(order), Some(local)) => local.read(*order).map(Reply::Checked),
            (Ask::Look { mover, unit }, Some(local)) => {
                local.look_through(*mover, *unit).map(Reply::Unit)
            }
            (Ask::Produce(order), Some(local)) => local.produce(*order).map(|()| Reply::Done),
        };
        send(out, &reply.unwrap_or_else(|error| failed(driver, &error)))?;
    }
    if let Some(local) = &local
        && !driver.is_lost()
    {
        gpu.enter()?;
        driver.ipc_close(local.window);
    }
    Ok(())
}

fn open<'g>(gpu: &'g Gpu, handle: &[u8], own_bytes: u64) -> Result<Local<'g>, GpuError> {
    let handle = handle
        .first_chunk::<IPC_HANDLE_BYTES>()
        .ok_or_else(|| GpuError::Request("a handle that is too short".to_owned()))?;
    gpu.enter()?;
    let base = gpu.driver().ipc_open(IpcHandle(*handle))?;
    let arena = Arena { base, bytes: 0 };
    Ok(Local { gpu, own: gpu.alloc(own_bytes)?, window: arena.base, staged: None })
}

fn failed(driver: &Driver, error: &GpuError) -> Reply {
    Reply::Failed {
        code: error.cuda_code(),
        lost: driver.is_lost(),
        hung: matches!(error, GpuError::Hung { .. }),
        text: error.to_string(),
    }
}

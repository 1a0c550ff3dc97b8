//! An inference server without a model, for tests and benchmarks.
//!
//! It speaks the streaming dialects of SGLang, vLLM, llama.cpp's server, TGI and TensorRT-LLM, paces
//! tokens, writes its own time stamps into the chunks, and misbehaves as a [`Script`] says. What an
//! answer holds follows from its prompt alone, so that two runs can be compared.

mod answer;
mod request;
mod script;
mod serve;
mod tls;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

pub use script::{BadScript, Dialect, Fault, Script};

/// What has been asked of a server so far.
#[derive(Debug, Default)]
pub struct Seen {
    pub(crate) connections: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) tokens: AtomicU64,
    pub(crate) running: AtomicU64,
    pub(crate) waiting: AtomicU64,
    pub(crate) most_running: AtomicU64,
}

impl Seen {
    /// Connections accepted.
    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    /// Requests for tokens received whole.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Tokens sent.
    pub fn tokens(&self) -> u64 {
        self.tokens.load(Ordering::Relaxed)
    }

    /// Most requests that ran at one time.
    pub fn most_running(&self) -> u64 {
        self.most_running.load(Ordering::Relaxed)
    }
}

/// A running server. It ends when this is dropped.
#[derive(Debug)]
pub struct Mock {
    address: SocketAddr,
    seen: Arc<Seen>,
    tls: bool,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Mock {
    /// Starts a server on a free port of the loopback interface.
    ///
    /// # Errors
    /// No socket, no thread, or no certificate to be had.
    pub fn start(script: Script) -> std::io::Result<Self> {
        Self::start_on(script, 0)
    }

    /// Starts a server on a port of the loopback interface.
    ///
    /// # Errors
    /// No socket, no thread, or no certificate to be had.
    pub fn start_on(script: Script, port: u16) -> std::io::Result<Self> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let tls = script.tls;
        let acceptor = if tls { Some(tls::acceptor()?) } else { None };
        let seen = Arc::new(Seen::default());
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = std::thread::Builder::new().name("load-mock".to_owned()).spawn({
            let seen = Arc::clone(&seen);
            move || {
                let local = tokio::task::LocalSet::new();
                local.spawn_local(serve::accept(listener, script, acceptor, seen));
                // Told to stop, or nobody is left who could tell.
                drop(local.block_on(&runtime, stopped));
            }
        })?;
        Ok(Self { address, seen, tls, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its URL.
    pub fn url(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// What it has been asked.
    pub fn seen(&self) -> &Seen {
        &self.seen
    }
}

impl Drop for Mock {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // Dropped is as good as sent: the thread waits for either.
            drop(stop);
        }
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

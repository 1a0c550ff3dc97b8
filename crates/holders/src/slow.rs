//! Files that may never answer, read by a child with a deadline for each request.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use peerway_walls::Report;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::child::{self, SpawnError};
use protocol::{Answer, Request};

mod protocol;
pub(crate) mod server;

pub use protocol::{EntryKind, SlowEntry};

/// The hidden first argument.
pub(crate) const COMMAND: &str = "__slow-reader";

/// What a slow reader reads, and how long it is waited for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowOptions {
    /// The directory that stands for `/`; links and `..` do not lead out of it.
    pub root: PathBuf,
    /// The trees below the root that are read. One reader for each tree that can hang by itself,
    /// since one that hangs takes its reader with it.
    pub trees: Vec<PathBuf>,
    /// How long one request may take.
    pub patience: Duration,
    /// Whether to open named pipes and devices too, and to wait for them. For tests, which need a
    /// file that never answers; on a host it would disturb whoever uses the pipe.
    pub open_special: bool,
}

impl SlowOptions {
    /// Trees of the running host, with a second for each request.
    pub fn live(trees: &[&str]) -> Self {
        Self {
            root: PathBuf::from("/"),
            trees: trees.iter().map(PathBuf::from).collect(),
            patience: Duration::from_secs(1),
            open_special: false,
        }
    }
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SlowError {
    /// A request was not answered in time, this one or one before it: the child hangs, and
    /// everything that it would have read is unknown.
    #[error("not answered: \"{hung}\" took longer than {patience:?}")]
    NotAnswered {
        /// The path that was not answered.
        hung: String,
        /// How long it was waited for.
        patience: Duration,
    },
    /// The kernel refused, by error number.
    #[error("{}", Errno::from_raw_os_error(*.0))]
    Errno(i32),
    /// It is a named pipe, a socket or a device, and was not opened.
    #[error("not a regular file")]
    NotRegular,
    /// The file is longer than asked for.
    #[error("longer than {limit} bytes")]
    TooLong {
        /// The limit.
        limit: usize,
    },
    /// The child ended or says what cannot be understood.
    #[error("the child that reads slow files failed: {0}")]
    Child(String),
}

/// A child that reads files which may never answer.
///
/// Requests are made one at a time. The first that is not answered is the last: the child is
/// given up, and every later request fails at once. A child that is given up ends, unless it hangs
/// where the kernel lets no signal through.
#[derive(Debug)]
pub struct SlowReader {
    requests: ChildStdin,
    patience: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    child: Child,
    /// `None` once the child is given up.
    answers: Option<ChildStdout>,
    walls: Option<Report>,
    given_up: Option<SlowError>,
}

impl State {
    /// Closing the pipe is what ends the child.
    fn give_up(&mut self, why: &SlowError) {
        self.answers = None;
        child::let_go(&mut self.child);
        self.given_up = Some(why.clone());
    }
}

impl SlowReader {
    /// Starts the child. To be called before the walls go up.
    pub fn spawn(options: &SlowOptions) -> Result<Self, SpawnError> {
        Self::spawn_program(None, options)
    }

    /// The same with another program that calls [`crate::dispatch`].
    pub fn spawn_program(
        program: Option<&Path>,
        options: &SlowOptions,
    ) -> Result<Self, SpawnError> {
        let mut child = child::start(program, COMMAND, options, Stdio::piped())?;
        let requests = child.stdin.take().ok_or(SpawnError::Pipes)?;
        let answers = child.stdout.take().ok_or(SpawnError::Pipes)?;
        let state = State { child, answers: Some(answers), walls: None, given_up: None };
        Ok(Self { requests, patience: options.patience, state: Mutex::new(state) })
    }

    /// The descriptor that requests are written to, for [`peerway_walls::Plan::write_to`].
    pub fn requests(&self) -> BorrowedFd<'_> {
        self.requests.as_fd()
    }

    /// The content of a file below the root, if it is no longer than `limit`.
    pub fn read(&self, path: &str, limit: usize) -> Result<Vec<u8>, SlowError> {
        let request = Request::Read { path: path.to_owned(), limit };
        match self.ask(&request)? {
            Answer::Content(bytes) => Ok(bytes),
            Answer::TooLong => Err(SlowError::TooLong { limit }),
            other => Err(self.misunderstood(&other)),
        }
    }

    /// The entries of a directory below the root, by name.
    pub fn list(&self, path: &str) -> Result<Vec<SlowEntry>, SlowError> {
        match self.ask(&Request::List { path: path.to_owned() })? {
            Answer::Entries(entries) => Ok(entries),
            other => Err(self.misunderstood(&other)),
        }
    }

    /// What a symbolic link below the root says.
    pub fn read_link(&self, path: &str) -> Result<String, SlowError> {
        match self.ask(&Request::Link { path: path.to_owned() })? {
            Answer::Content(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            other => Err(self.misunderstood(&other)),
        }
    }

    /// The walls that the child stands behind, once it has answered.
    pub fn walls(&self) -> Option<Report> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).walls.clone()
    }

    fn ask(&self, request: &Request) -> Result<Answer, SlowError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(why) = &state.given_up {
            return Err(why.clone());
        }
        let deadline = Instant::now() + self.patience;
        let answer = self.exchange(&mut state, request, deadline);
        match answer {
            Ok(Answer::Errno(errno)) => Err(SlowError::Errno(errno)),
            Ok(Answer::NotRegular) => Err(SlowError::NotRegular),
            Ok(answer) => Ok(answer),
            Err(why) => {
                state.give_up(&why);
                Err(why)
            }
        }
    }

    fn exchange(
        &self,
        state: &mut State,
        request: &Request,
        deadline: Instant,
    ) -> Result<Answer, SlowError> {
        let failed = |e: &dyn std::fmt::Display| SlowError::Child(e.to_string());
        // A child that waits for requests has an empty pipe, and one request fits into it.
        let frame = protocol::frame(&request.to_bytes()).map_err(|e| failed(&e))?;
        child::write_all(&self.requests, &frame).map_err(|e| failed(&e))?;
        let answers = state.answers.as_ref().ok_or_else(|| failed(&"it was given up"))?;
        loop {
            let payload = receive(answers, deadline).map_err(|e| match e {
                Received::Late => SlowError::NotAnswered {
                    hung: request.path().to_owned(),
                    patience: self.patience,
                },
                Received::Failed(why) => SlowError::Child(why),
            })?;
            match Answer::from_bytes(&payload).map_err(|e| failed(&e))? {
                Answer::Walls(json) => {
                    let walls = serde_json::from_slice(&json).map_err(|e| failed(&e))?;
                    state.walls = Some(walls);
                }
                Answer::Failed(why) => return Err(SlowError::Child(why)),
                answer => return Ok(answer),
            }
        }
    }

    /// An answer to another question: from here on no answer can be trusted.
    fn misunderstood(&self, answer: &Answer) -> SlowError {
        let why = SlowError::Child(format!("it answered out of turn: {}", answer.name()));
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.give_up(&why);
        why
    }
}

impl Drop for SlowReader {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        state.answers = None;
        child::let_go(&mut state.child);
    }
}

enum Received {
    Late,
    Failed(String),
}

/// One frame, by the deadline.
fn receive(answers: &ChildStdout, deadline: Instant) -> Result<Vec<u8>, Received> {
    let failed = |e: &dyn std::fmt::Display| Received::Failed(e.to_string());
    let mut wanted = protocol::HEADER;
    let mut bytes = Vec::with_capacity(4096);
    loop {
        if bytes.len() == protocol::HEADER {
            let length = protocol::length(&bytes).map_err(|e| failed(&e))?;
            wanted = protocol::HEADER.saturating_add(length);
        }
        if bytes.len() >= wanted && wanted > protocol::HEADER {
            bytes.drain(..protocol::HEADER);
            return Ok(bytes);
        }
        match child::wait_readable(answers, deadline) {
            Ok(true) => {}
            Ok(false) => return Err(Received::Late),
            Err(e) => return Err(failed(&e)),
        }
        // Never beyond the frame, so that the next one begins where it should.
        let mut chunk = vec![0_u8; wanted.saturating_sub(bytes.len()).min(64 << 10)];
        match rustix::io::read(answers, &mut chunk) {
            Ok(0) => return Err(Received::Failed("it ended".to_owned())),
            Ok(read) => bytes.extend_from_slice(chunk.get(..read).unwrap_or_default()),
            Err(Errno::INTR) => {}
            Err(e) => return Err(failed(&e)),
        }
    }
}

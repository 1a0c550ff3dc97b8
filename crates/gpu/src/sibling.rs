//! Further processes of one test: started by the first, in its process group, so that one kill ends
//! all of them; each ends itself when its input closes.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::protocol::{Request, Work};
use crate::report::send;
use crate::status::GpuError;

/// The first process's hold on another.
pub(crate) struct Sibling {
    child: Child,
    to: Option<ChildStdin>,
    /// Not waited for: that could take for ever.
    abandoned: bool,
}

/// What a sibling answers, line by line.
pub(crate) type Answers = BufReader<ChildStdout>;

impl Sibling {
    /// Starts a process for `work`; everything else is as in `request`.
    pub(crate) fn start(request: &Request, work: Work) -> Result<(Self, Answers), GpuError> {
        // By the link itself: in a container's view the program is a file in memory without a path.
        #[expect(clippy::disallowed_methods, reason = "tests between processes need several")]
        let mut child = Command::new("/proc/self/exe")
            .args(&request.arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(GpuError::Pipe)?;
        let (to, from) = (child.stdin.take(), child.stdout.take());
        let from = from.ok_or_else(|| GpuError::Partner("it has no output".to_owned()))?;
        let mut sibling = Self { child, to, abandoned: false };
        sibling.tell(&Request { work, ..request.clone() })?;
        Ok((sibling, BufReader::new(from)))
    }

    /// Sends one line.
    pub(crate) fn tell(&mut self, value: &impl Serialize) -> Result<(), GpuError> {
        let to = self.to.as_mut().ok_or_else(|| GpuError::Partner("it is gone".to_owned()))?;
        send(to, value)
    }

    /// Closes its input, at which it ends; does not wait for that.
    pub(crate) fn close(&mut self) {
        self.to = None;
    }

    /// How it ended, where its output did.
    pub(crate) fn end(&mut self) -> GpuError {
        match self.child.wait() {
            Ok(status) => GpuError::Partner(format!("it ended: {status}")),
            Err(error) => GpuError::Pipe(error),
        }
    }
}

impl Sibling {
    /// Leaves it to the parent, which ends the whole group.
    pub(crate) fn abandon(mut self) {
        self.abandoned = true;
    }
}

impl Drop for Sibling {
    fn drop(&mut self) {
        // Its input closes, so it ends; if the driver holds it, the parent's deadline ends the
        // whole group.
        self.to = None;
        if !self.abandoned {
            drop(self.child.wait());
        }
    }
}

/// The next line as a value; none where the other side closed.
pub(crate) fn next<T: DeserializeOwned>(from: &mut dyn BufRead) -> Result<Option<T>, GpuError> {
    let mut line = String::new();
    if from.read_line(&mut line).map_err(GpuError::Pipe)? == 0 {
        return Ok(None);
    }
    serde_json::from_str(&line).map(Some).map_err(|error| GpuError::Request(error.to_string()))
}

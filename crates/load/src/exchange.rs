//! One request and its answer over a connection, within its deadlines.

use std::cell::RefCell;
use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::clock::{nanoseconds, now};
use crate::reply::{Outcome, Reading, Reply, Then};
use crate::stats::Times;
use crate::stream::Stream;
use crate::target::Connector;

/// How long anything may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// To connect.
    pub connect: Duration,
    /// From the request to the first token.
    pub first: Duration,
    /// From token to token. Comments are no tokens.
    pub idle: Duration,
    /// In all.
    pub total: Duration,
    /// From the end marker to the end of the body.
    pub after_done: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            first: Duration::from_mins(2),
            idle: Duration::from_mins(1),
            total: Duration::from_mins(10),
            after_done: Duration::from_secs(2),
        }
    }
}

/// What became of a request.
#[derive(Clone, Debug)]
pub struct Exchanged {
    /// When the request was written, whole.
    pub sent: Option<u64>,
    /// When the answer, or the waiting, ended.
    pub ended: u64,
    /// How.
    pub outcome: Outcome,
    /// Whether a connection was opened for it.
    pub connected: bool,
    /// Whether it was sent once more, since the server had closed a connection that was kept.
    pub resent: bool,
}

/// What all requests of a run share.
pub(crate) struct Line {
    pub(crate) connector: Connector,
    pub(crate) limits: Limits,
    pub(crate) reading: Reading,
    /// Where every socket is read into: what came is used up at once.
    pub(crate) room: RefCell<Box<[u8]>>,
    /// From the server's own time stamps to the moment of reading.
    pub(crate) stamp_lag: RefCell<Times>,
}

enum End {
    Whole,
    Closed,
    Failed(std::io::Error),
    Overdue(Outcome),
}

impl Line {
    pub(crate) fn new(connector: Connector, limits: Limits, reading: Reading) -> Self {
        Self {
            connector,
            limits,
            reading,
            room: RefCell::new(vec![0; 64 << 10].into_boxed_slice()),
            stamp_lag: RefCell::default(),
        }
    }

    /// Sends `request` and reads the answer into `reply`. `kept` is a connection from before, and
    /// holds the connection afterwards where it can be used once more.
    pub(crate) async fn exchange(
        &self,
        kept: &mut Option<Stream>,
        request: &[u8],
        reply: &mut Reply,
    ) -> Exchanged {
        reply.reset();
        let mut done = Exchanged {
            sent: None,
            ended: 0,
            outcome: Outcome::NoConnection,
            connected: false,
            resent: false,
        };
        loop {
            let (mut stream, old) = match kept.take() {
                Some(stream) => (stream, true),
                None => match self.connector.connect().await {
                    Ok(stream) => {
                        done.connected = true;
                        (stream, false)
                    }
                    Err(error) => {
                        reply.story.error = Some(error.to_string());
                        done.ended = now();
                        return done;
                    }
                },
            };
            // Before the first byte goes out: taken afterwards, a busy machine would make a server
            // look faster than it is.
            let sent = now();
            let end = match tokio::time::timeout(self.limits.first, stream.write(request)).await {
                Ok(Ok(())) => {
                    done.sent = Some(sent);
                    self.receive(&mut stream, reply, sent).await
                }
                Ok(Err(error)) => End::Failed(error),
                Err(_) => End::Overdue(Outcome::NoFirstToken),
            };
            // A server may close a connection at any time between two requests. It has then read
            // nothing of this one, which goes out once more; it is still one request.
            let unread = reply.untouched() && matches!(end, End::Closed | End::Failed(_));
            if unread && old {
                done.resent = true;
                continue;
            }
            done.ended = now();
            done.outcome = self.judge(&end, reply);
            if matches!(end, End::Whole) && reply.reusable() {
                *kept = Some(stream);
            }
            return done;
        }
    }

    fn judge(&self, end: &End, reply: &mut Reply) -> Outcome {
        match end {
            End::Whole => reply.outcome(),
            // All had come, and the closing of the body was not worth waiting for.
            End::Overdue(_) if reply.story.done_at.is_some() => reply.outcome(),
            End::Overdue(outcome) => {
                let comments = match reply.story.comments {
                    0 => String::new(),
                    comments => format!(", only {comments} comments"),
                };
                let seconds = |limit: Duration| limit.as_secs_f64();
                reply.story.error = Some(match outcome {
                    Outcome::NoFirstToken => {
                        format!("no token within {} s{comments}", seconds(self.limits.first))
                    }
                    Outcome::Stalled => {
                        format!("no further token within {} s{comments}", seconds(self.limits.idle))
                    }
                    _ => format!("no end within {} s", seconds(self.limits.total)),
                });
                *outcome
            }
            End::Closed => {
                let mut lag = self.stamp_lag.borrow_mut();
                let proper = reply.closed(now(), &self.reading, &mut lag);
                drop(lag);
                let outcome = reply.outcome();
                if !proper && outcome == Outcome::NoConnection {
                    reply.story.error = Some("the server closed without an answer".to_owned());
                } else if !proper && matches!(outcome, Outcome::Complete | Outcome::Truncated) {
                    reply.story.error = Some("the connection closed within the answer".to_owned());
                    return Outcome::Truncated;
                }
                outcome
            }
            End::Failed(error) => {
                let lost = format!("the connection broke: {error}");
                let outcome =
                    if reply.head().is_some() { Outcome::Truncated } else { Outcome::NoConnection };
                reply.story.error = Some(lost);
                outcome
            }
        }
    }

    async fn receive(&self, stream: &mut Stream, reply: &mut Reply, sent: u64) -> End {
        let begun = Instant::now();
        let mut alarm = pin!(sleep_until(begun + self.due(reply, sent).1));
        poll_fn(|context| {
            loop {
                let mut room = self.room.borrow_mut();
                match stream.poll_read(context, &mut room) {
                    Poll::Ready(Ok(0)) => return Poll::Ready(End::Closed),
                    Poll::Ready(Ok(read)) => {
                        crate::gather::came();
                        let bytes = room.get(..read).unwrap_or_default();
                        let mut lag = self.stamp_lag.borrow_mut();
                        if reply.accept(bytes, now(), &self.reading, &mut lag) == Then::Ended {
                            return Poll::Ready(End::Whole);
                        }
                    }
                    Poll::Ready(Err(error)) => return Poll::Ready(End::Failed(error)),
                    Poll::Pending => break,
                }
            }
            // The alarm is set anew only when it rings: tokens move what is due, not the alarm.
            while alarm.as_mut().poll(context).is_ready() {
                let (outcome, due) = self.due(reply, sent);
                if nanoseconds(due) <= now().saturating_sub(sent) {
                    return Poll::Ready(End::Overdue(outcome));
                }
                // At the earliest by the clock of the alarm, which counts in milliseconds.
                alarm.as_mut().reset(begun + due + Duration::from_millis(1));
            }
            Poll::Pending
        })
        .await
    }

    /// What is due next, and when, counted from the sending.
    fn due(&self, reply: &Reply, sent: u64) -> (Outcome, Duration) {
        let story = &reply.story;
        let since = |at: u64| Duration::from_nanos(at.saturating_sub(sent));
        let (outcome, due) = match (story.done_at, story.tokens.first(), story.moved_at) {
            (Some(done), _, _) => (Outcome::Stalled, since(done) + self.limits.after_done),
            (None, Some(_), Some(moved)) => (Outcome::Stalled, since(moved) + self.limits.idle),
            _ => (Outcome::NoFirstToken, self.limits.first),
        };
        if due > self.limits.total { (Outcome::TooLong, self.limits.total) } else { (outcome, due) }
    }
}

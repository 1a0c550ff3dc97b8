//! What reading alone costs: waits, reads what is there, and looks at none of it but its end. No client that
//! reads each token as it comes can take less than this of the kernel's time.
//!
//! `bare URL CONCURRENCY REQUESTS_PER_SLOT TOKENS`; one warm-up request a slot is not counted.

#![expect(clippy::disallowed_types, clippy::disallowed_methods, reason = "a program of its own")]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Instant;

use rustix::event::epoll;
use rustix::time::{ClockId, clock_gettime};

/// What ends an answer: the last chunk.
const LAST: &[u8] = b"0\r\n\r\n";

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Fallible<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [url, slots, rounds, tokens] = words.as_slice() else {
        return Err("usage: bare URL CONCURRENCY REQUESTS_PER_SLOT TOKENS".into());
    };
    let (slots, rounds, tokens): (usize, u32, u64) =
        (slots.parse()?, rounds.parse()?, tokens.parse()?);
    let authority = url.strip_prefix("http://").ok_or("http:// only")?.trim_end_matches('/');
    let mut streams = Streams::open(authority, slots, tokens)?;
    streams.answers(1)?;
    let (began, taken) = (Instant::now(), processor());
    streams.answers(rounds)?;
    let (wall, taken) = (began.elapsed().as_secs_f64(), processor() - taken);
    let read = u64::try_from(slots)? * u64::from(rounds) * tokens;
    writeln!(
        std::io::stdout(),
        r#"{{"version": "reading alone", "tokens": {read}, "processor_ns": {taken}, "wall_s": {wall}}}"#
    )?;
    Ok(())
}

fn processor() -> i64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

struct Streams {
    all: Vec<TcpStream>,
    poll: rustix::fd::OwnedFd,
    request: Vec<u8>,
}

impl Streams {
    fn open(authority: &str, slots: usize, tokens: u64) -> Fallible<Self> {
        let body = format!(
            r#"{{"model":"mock","messages":[{{"role":"user","content":"a few words"}}],"max_tokens":{tokens},"temperature":0,"stream":true,"stream_options":{{"include_usage":true}}}}"#
        );
        let request = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: {authority}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut all = Vec::new();
        for slot in 0..slots {
            let stream = TcpStream::connect(authority)?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let data = epoll::EventData::new_u64(u64::try_from(slot)?);
            epoll::add(&poll, &stream, data, epoll::EventFlags::IN | epoll::EventFlags::ET)?;
            all.push(stream);
        }
        Ok(Self { all, poll, request: request.into_bytes() })
    }

    /// So many requests a stream, each behind the answer to the one before.
    fn answers(&mut self, rounds: u32) -> Fallible<()> {
        let mut left = vec![rounds; self.all.len()];
        let mut open = self.all.len();
        for stream in &mut self.all {
            stream.write_all(&self.request)?;
        }
        let mut buffer = vec![0; 1 << 16];
        let mut events = Vec::with_capacity(self.all.len());
        while open > 0 {
            events.clear();
            epoll::wait(&self.poll, rustix::buffer::spare_capacity(&mut events), None)?;
            for event in &events {
                let slot = usize::try_from(event.data.u64())?;
                let (Some(stream), Some(left)) = (self.all.get_mut(slot), left.get_mut(slot))
                else {
                    continue;
                };
                if !read(stream, &mut buffer)? {
                    continue;
                }
                *left -= 1;
                if *left == 0 {
                    open -= 1;
                } else {
                    stream.write_all(&self.request)?;
                }
            }
        }
        Ok(())
    }
}

/// Reads what is there; whether an answer ended with it.
fn read(stream: &mut TcpStream, buffer: &mut [u8]) -> Fallible<bool> {
    let mut ended = false;
    loop {
        let count = match stream.read(buffer) {
            Ok(0) => return Err("the server closed a stream".into()),
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(ended),
            Err(error) => return Err(error.into()),
        };
        ended = buffer.get(..count).is_some_and(|bytes| bytes.ends_with(LAST));
        // Less than there was room for: nothing is left, and asking again would be one call more.
        if count < buffer.len() {
            return Ok(ended);
        }
    }
}

//! Connections and what is answered on them.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use crate::Seen;
use crate::answer::Answer;
use crate::request::{self, Request};
use crate::script::{Dialect, Fault, Script};

/// What connections share.
struct Shared {
    script: Script,
    seen: Arc<Seen>,
    room: Semaphore,
    begun: Instant,
}

/// Whether a connection goes on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    Stay,
    Close,
}

/// Accepts connections until the socket fails.
pub(crate) async fn accept(
    listener: std::net::TcpListener,
    script: Script,
    tls: Option<TlsAcceptor>,
    seen: Arc<Seen>,
) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    let room = Semaphore::new(script.capacity.unwrap_or(Semaphore::MAX_PERMITS));
    let shared = Rc::new(Shared { script, seen, room, begun: Instant::now() });
    while let Ok((stream, _)) = listener.accept().await {
        shared.seen.connections.fetch_add(1, Ordering::Relaxed);
        if stream.set_nodelay(true).is_err() {
            continue;
        }
        let (shared, tls) = (Rc::clone(&shared), tls.clone());
        tokio::task::spawn_local(async move {
            match tls {
                None => connection(stream, &shared).await,
                Some(tls) => {
                    if let Ok(stream) = tls.accept(stream).await {
                        connection(stream, &shared).await;
                    }
                }
            }
        });
    }
}

async fn connection(mut stream: impl AsyncRead + AsyncWrite + Unpin, shared: &Shared) {
    let mut buffer = Vec::new();
    while let Some(request) = request::read(&mut stream, &mut buffer).await {
        let then = if request.post && request.path.ends_with("/completions") {
            tokens(&mut stream, shared, &request).await
        } else {
            other(&mut stream, shared, &request).await
        };
        if !matches!(then, Ok(Then::Stay)) {
            break;
        }
    }
    // The client is gone or is to see that this is the end.
    drop(stream.shutdown().await);
}

/// Counts a request as running for as long as it lives.
struct Counter<'a>(&'a AtomicU64);

impl<'a> Counter<'a> {
    fn up(of: &'a AtomicU64) -> (Self, u64) {
        let now = of.fetch_add(1, Ordering::Relaxed) + 1;
        (Self(of), now)
    }
}

impl Drop for Counter<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn tokens(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    shared: &Shared,
    request: &Request,
) -> io::Result<Then> {
    let (script, seen) = (&shared.script, &*shared.seen);
    let number = seen.requests.fetch_add(1, Ordering::Relaxed) + 1;
    let fault = script.fault_of(number);
    let asked = request.asked();
    match fault {
        Some(Fault::Drop) => return Ok(Then::Close),
        Some(Fault::Silent) => return forever().await,
        Some(Fault::Strict) if asked.extras => {
            let body =
                r#"{"detail":[{"type":"extra_forbidden","msg":"Extra inputs are not permitted"}]}"#;
            return whole(stream, 400, "application/json", body, "").await;
        }
        Some(Fault::Status(status)) => {
            let header = format!("retry-after: {}\r\n", script.retry_after);
            let body = r#"{"error":{"message":"the mock is told to refuse","code":0}}"#;
            return whole(stream, status, "application/json", body, &header).await;
        }
        Some(Fault::Plain) => {
            let body = r#"{"choices":[{"message":{"content":"all at once"}}]}"#;
            return whole(stream, 200, "application/json", body, "").await;
        }
        _ => {}
    }
    let permit = {
        let _waiting = Counter::up(&seen.waiting);
        shared.room.acquire().await.map_err(io::Error::other)?
    };
    let (_running, running) = Counter::up(&seen.running);
    seen.most_running.fetch_max(running, Ordering::Relaxed);
    let prompt = u64::try_from(request.body.len() / 5).unwrap_or(0);
    let answer = Answer { script, asked, fault, prompt, number };
    let then = stream_out(stream, &answer, shared).await;
    drop(permit);
    then
}

async fn stream_out(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    answer: &Answer<'_>,
    shared: &Shared,
) -> io::Result<Then> {
    let (script, fault, seen) = (answer.script, answer.fault, &shared.seen);
    let mut next = Instant::now() + script.first;
    stream
        .write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\nserver: load-mock\r\ntransfer-encoding: chunked\r\n\r\n")
        .await?;
    let (mut out, mut framed) = (Vec::new(), Vec::new());
    let wanted = match fault {
        Some(Fault::Endless) => u64::MAX,
        _ => script.tokens.unwrap_or(answer.asked.tokens),
    };
    let (mut sent, mut chunks) = (0, 0);
    if !script.first.is_zero() {
        tokio::time::sleep_until(next).await;
    }
    answer.role(&mut out);
    while sent < wanted {
        if let Some(fault) = fault.filter(|_| sent >= answer.script.at)
            && let Some(then) = misbehave(stream, fault, answer, &mut out).await?
        {
            return Ok(then);
        }
        chunks += 1;
        if script.comments > 0 && chunks % script.comments == 0 {
            out.extend_from_slice(b": still here\n\n");
        }
        let until = (sent + script.per_chunk).min(wanted);
        answer.tokens(&mut out, sent, until, until == wanted);
        seen.tokens.fetch_add(until - sent, Ordering::Relaxed);
        sent = until;
        write(stream, &mut out, &mut framed, script.split).await?;
        if !script.pace.is_zero() && sent < wanted {
            next += script.pace;
            if script.step {
                next = step(shared.begun, next, script.pace);
            }
            tokio::time::sleep_until(next).await;
        }
    }
    answer.close(&mut out, sent);
    write(stream, &mut out, &mut framed, script.split).await?;
    stream.write_all(b"0\r\n\r\n").await?;
    Ok(if fault == Some(Fault::Close) { Then::Close } else { Then::Stay })
}

/// The last common moment that is not after `wanted`: whole paces since the server began.
fn step(begun: Instant, wanted: Instant, pace: Duration) -> Instant {
    let since = wanted.saturating_duration_since(begun).as_nanos();
    let over = since % pace.as_nanos().max(1);
    wanted.checked_sub(Duration::from_nanos(u64::try_from(over).unwrap_or(0))).unwrap_or(wanted)
}

/// What a fault does at its moment; `None` where the answer goes on.
async fn misbehave(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    fault: Fault,
    answer: &Answer<'_>,
    out: &mut Vec<u8>,
) -> io::Result<Option<Then>> {
    let mut framed = Vec::new();
    match fault {
        Fault::Stall => {
            write(stream, out, &mut framed, 0).await?;
            forever().await.map(Some)
        }
        Fault::KeepAlives => loop {
            out.extend_from_slice(b": keep-alive\n\n");
            write(stream, out, &mut framed, 0).await?;
            tokio::time::sleep(Duration::from_millis(20)).await;
        },
        Fault::Cut => {
            write(stream, out, &mut framed, 0).await?;
            Ok(Some(Then::Close))
        }
        Fault::Half => {
            out.extend_from_slice(
                "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"é".as_bytes(),
            );
            out.pop();
            write(stream, out, &mut framed, 0).await?;
            Ok(Some(Then::Close))
        }
        Fault::Error | Fault::RawError => {
            let data = if fault == Fault::Error { "data: " } else { "" };
            out.extend_from_slice(
                format!("{data}{{\"error\":{{\"message\":\"the mock ran out of memory\",\"code\":500}}}}\n\ndata: [DONE]\n\n").as_bytes(),
            );
            write(stream, out, &mut framed, answer.script.split).await?;
            stream.write_all(b"0\r\n\r\n").await?;
            Ok(Some(Then::Stay))
        }
        Fault::Garbage => {
            out.extend_from_slice(b"data: {\"choices\":[{\"delta\":\n\n");
            Ok(None)
        }
        Fault::BadChunk => {
            write(stream, out, &mut framed, 0).await?;
            stream.write_all(b"not a size\r\n").await?;
            Ok(Some(Then::Close))
        }
        _ => Ok(None),
    }
}

/// Writes what was collected as one chunk of the body, in pieces of `split` bytes where it is not 0.
async fn write(
    stream: &mut (impl AsyncWrite + Unpin),
    out: &mut Vec<u8>,
    framed: &mut Vec<u8>,
    split: usize,
) -> io::Result<()> {
    if out.is_empty() {
        return Ok(());
    }
    framed.clear();
    framed.extend_from_slice(format!("{:x}\r\n", out.len()).as_bytes());
    framed.append(out);
    framed.extend_from_slice(b"\r\n");
    if split == 0 {
        stream.write_all(framed).await?;
        return stream.flush().await;
    }
    for piece in framed.chunks(split) {
        stream.write_all(piece).await?;
        stream.flush().await?;
        // So that the client reads what there is.
        tokio::task::yield_now().await;
    }
    Ok(())
}

async fn whole(
    stream: &mut (impl AsyncWrite + Unpin),
    status: u16,
    kind: &str,
    body: &str,
    headers: &str,
) -> io::Result<Then> {
    let text = format!(
        "HTTP/1.1 {status} Mock\r\ncontent-type: {kind}\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(text.as_bytes()).await?;
    Ok(Then::Stay)
}

/// Until the client goes, which drops the task's connection with the server.
async fn forever() -> io::Result<Then> {
    tokio::time::sleep(Duration::from_hours(1)).await;
    Ok(Then::Close)
}

/// Everything but tokens.
async fn other(
    stream: &mut (impl AsyncWrite + Unpin),
    shared: &Shared,
    request: &Request,
) -> io::Result<Then> {
    let json = "application/json";
    match request.path.as_str() {
        "/v1/models" => {
            let owner = match shared.script.dialect {
                Dialect::Sglang => "sglang",
                Dialect::Vllm => "vllm",
                Dialect::LlamaCpp => "llamacpp",
                Dialect::Tgi => "text-generation-inference",
                Dialect::TensorRtLlm => "tensorrt_llm",
            };
            let body = format!(
                r#"{{"object":"list","data":[{{"id":"mock","object":"model","owned_by":"{owner}"}}]}}"#
            );
            whole(stream, 200, json, &body, "").await
        }
        "/version" if shared.script.dialect == Dialect::Vllm => {
            whole(stream, 200, json, r#"{"version":"0.0.0-mock"}"#, "").await
        }
        "/metrics" => {
            let body = metrics(shared.script.dialect, &shared.seen);
            whole(stream, 200, "text/plain; version=0.0.4", &body, "").await
        }
        _ => whole(stream, 404, json, r#"{"error":"no such path"}"#, "").await,
    }
}

fn metrics(dialect: Dialect, seen: &Seen) -> String {
    let (running, waiting) =
        (seen.running.load(Ordering::Relaxed), seen.waiting.load(Ordering::Relaxed));
    let tokens = seen.tokens();
    match dialect {
        Dialect::Sglang => format!(
            "# TYPE sglang:num_running_reqs gauge\nsglang:num_running_reqs{{model_name=\"mock\"}} {running}.0\n\
             sglang:num_queue_reqs{{model_name=\"mock\"}} {waiting}.0\nsglang:token_usage{{model_name=\"mock\"}} 0.25\n\
             sglang:spec_accept_length{{model_name=\"mock\"}} 2.5\nsglang:generation_tokens_total{{model_name=\"mock\"}} {tokens}\n"
        ),
        Dialect::LlamaCpp => format!(
            "llamacpp:requests_processing {running}\nllamacpp:requests_deferred {waiting}\n\
             llamacpp:tokens_predicted_total {tokens}\n"
        ),
        Dialect::Tgi => format!("tgi_batch_current_size {running}\ntgi_queue_size {waiting}\n"),
        Dialect::Vllm | Dialect::TensorRtLlm => format!(
            "vllm:num_requests_running{{engine=\"0\"}} {running}\nvllm:num_requests_waiting{{engine=\"0\"}} {waiting}\n\
             vllm:kv_cache_usage_perc{{engine=\"0\"}} 0.5\nvllm:generation_tokens_total{{engine=\"0\"}} {tokens}\n\
             vllm:spec_decode_num_drafts_total{{engine=\"0\"}} {tokens}\nvllm:spec_decode_num_accepted_tokens_total{{engine=\"0\"}} {tokens}\n"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Asked;

    #[test]
    fn counters_go_down_again() {
        let of = AtomicU64::new(0);
        let (counter, now) = Counter::up(&of);
        assert_eq!((now, of.load(Ordering::Relaxed)), (1, 1));
        drop(counter);
        assert_eq!(of.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn asked_is_found_in_bodies() {
        let request = Request {
            path: "/v1/chat/completions".to_owned(),
            post: true,
            body: br#"{"messages":[{"role":"user","content":"a"}],"max_tokens":32,"stream_options":{"include_usage":true}}"#.to_vec(),
        };
        let Asked { chat, tokens, usage, count_along, extras, .. } = request.asked();
        assert_eq!((chat, tokens, usage, count_along, extras), (true, 32, true, false, false));
    }
}

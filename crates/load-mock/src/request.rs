//! Requests, as far as a server without a model needs them.

use tokio::io::{AsyncRead, AsyncReadExt as _};

/// A request.
#[derive(Debug, Default)]
pub(crate) struct Request {
    pub(crate) path: String,
    pub(crate) post: bool,
    pub(crate) body: Vec<u8>,
}

/// What a request for tokens asks.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "what a request may ask for, each by itself")]
pub(crate) struct Asked {
    pub(crate) chat: bool,
    pub(crate) tokens: u64,
    pub(crate) usage: bool,
    pub(crate) count_along: bool,
    /// Whether it has fields that OpenAI's interface does not have.
    pub(crate) extras: bool,
    /// A number made of the prompt alone.
    pub(crate) prompt: u64,
}

/// Reads the next request; `None` where the client has gone or speaks no HTTP.
pub(crate) async fn read(
    stream: &mut (impl AsyncRead + Unpin),
    buffer: &mut Vec<u8>,
) -> Option<Request> {
    let mut request = Request::default();
    loop {
        if let Some((head, length)) = head(buffer, &mut request)? {
            let end = head + length;
            while buffer.len() < end {
                more(stream, buffer).await?;
            }
            request.body.clear();
            request.body.extend_from_slice(buffer.get(head..end)?);
            buffer.drain(..end);
            return Some(request);
        }
        more(stream, buffer).await?;
    }
}

async fn more(stream: &mut (impl AsyncRead + Unpin), buffer: &mut Vec<u8>) -> Option<()> {
    buffer.reserve(4096);
    stream.read_buf(buffer).await.ok().filter(|read| *read > 0).map(drop)
}

/// Lengths of head and body; the outer `None` for what is no HTTP.
#[expect(clippy::option_option, reason = "no HTTP, not yet, and this")]
fn head(bytes: &[u8], request: &mut Request) -> Option<Option<(usize, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut parsed = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(head) = parsed.parse(bytes).ok()? else { return Some(None) };
    request.post = parsed.method == Some("POST");
    parsed.path.unwrap_or_default().clone_into(&mut request.path);
    let length = parsed
        .headers
        .iter()
        .find(|header| header.name.eq_ignore_ascii_case("content-length"))
        .and_then(|header| std::str::from_utf8(header.value).ok()?.parse().ok())
        .unwrap_or(0);
    Some(Some((head, length)))
}

impl Request {
    /// What is asked. Looked up by name, which is enough for bodies that this project writes.
    pub(crate) fn asked(&self) -> Asked {
        // Some clients write a space behind each colon.
        let text = String::from_utf8_lossy(&self.body).replace("\": ", "\":");
        let yes = |name: &str| text.contains(&format!("\"{name}\":true"));
        let after = |name: &str| text.find(name).and_then(|at| text.get(at + name.len()..));
        let number = |name: &str| {
            let rest = after(&format!("\"{name}\":"))?;
            let end = rest.find(|character: char| !character.is_ascii_digit())?;
            rest.get(..end)?.parse().ok()
        };
        let prompt = after("\"content\":").or_else(|| after("\"prompt\":")).unwrap_or_default();
        let prompt = prompt.split("\"}").next().unwrap_or_default();
        Asked {
            chat: self.path.contains("/chat/"),
            tokens: number("max_tokens").unwrap_or(16),
            usage: yes("include_usage"),
            count_along: yes("continuous_usage_stats"),
            extras: text.contains("continuous_usage_stats") || text.contains("ignore_eos"),
            prompt: prompt.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            }),
        }
    }
}

//! HTTP/1.1 as a client of one stream a connection needs it: the head of an answer, and its body
//! piece by piece without a copy (RFC 9112). Head lines are parsed by `httparse`.

/// Longest head.
const LONGEST_HEAD: usize = 64 << 10;
/// Most header lines.
const MOST_HEADERS: usize = 64;

/// What is not HTTP/1.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotHttp {
    /// The head.
    #[error("the head of the answer is no HTTP/1.1")]
    Head,
    /// The head has no end.
    #[error("the head of the answer is longer than {} KiB", LONGEST_HEAD >> 10)]
    LongHead,
    /// The chunks of the body.
    #[error("the chunks of the body are malformed")]
    Chunks,
}

/// The head of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Status code.
    pub status: u16,
    /// How the body ends.
    pub body: Body,
    /// Whether the connection can carry a further request.
    pub keep_alive: bool,
    /// Seconds of `Retry-After`; dates are not read.
    pub retry_after: Option<u64>,
    /// Whether the body is an event stream.
    pub event_stream: bool,
    /// `Server`.
    pub server: Option<String>,
}

/// Looks for a whole head at the beginning of `bytes`. Returns it with its length.
///
/// # Errors
/// Bytes that are no head, or that go on for too long.
pub fn head(bytes: &[u8]) -> Result<Option<(Head, usize)>, NotHttp> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let length = match response.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if bytes.len() > LONGEST_HEAD => {
            return Err(NotHttp::LongHead);
        }
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(NotHttp::Head),
    };
    let status = response.code.ok_or(NotHttp::Head)?;
    let mut head = Head {
        status,
        body: Body::Close,
        keep_alive: response.version == Some(1),
        retry_after: None,
        event_stream: false,
        server: None,
    };
    let (mut chunked, mut length_said) = (false, None);
    for header in response.headers.iter() {
        let value = String::from_utf8_lossy(header.value);
        let value = value.trim();
        let has = |word: &str| value.split(',').any(|part| part.trim().eq_ignore_ascii_case(word));
        match header.name.to_ascii_lowercase().as_str() {
            "transfer-encoding" => chunked |= has("chunked"),
            "content-length" => {
                let said: u64 = value.parse().map_err(|_| NotHttp::Head)?;
                if length_said.is_some_and(|before| before != said) {
                    return Err(NotHttp::Head);
                }
                length_said = Some(said);
            }
            "connection" if has("close") => head.keep_alive = false,
            "connection" if has("keep-alive") => head.keep_alive = true,
            "retry-after" => head.retry_after = value.parse().ok(),
            "content-type" => {
                let kind = value.split(';').next().unwrap_or_default().trim();
                head.event_stream = kind.eq_ignore_ascii_case("text/event-stream");
            }
            "server" => head.server = Some(value.to_owned()),
            _ => {}
        }
    }
    head.body = match (status, chunked, length_said) {
        (100..=199 | 204 | 304, _, _) => Body::Length(0),
        (_, true, _) => Body::chunked(),
        (_, false, Some(length)) => Body::Length(length),
        (_, false, None) => {
            head.keep_alive = false;
            Body::Close
        }
    };
    Ok(Some((head, length)))
}

/// Where a body stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// So many bytes are to come.
    Length(u64),
    /// Until the connection closes.
    Close,
    /// In chunks.
    Chunked(Chunked),
}

/// Where a body in chunks stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunked {
    /// In the size of a chunk: what was read of it, and digits.
    Size(u64, u8),
    /// Behind the size, before the end of its line.
    Extension(u64),
    /// In the chunk: bytes to come.
    Data(u64),
    /// At the line end behind a chunk.
    Behind,
    /// In the lines behind the last chunk: whether the line has begun.
    Trailer(bool),
    /// At the end.
    End,
}

impl Body {
    fn chunked() -> Self {
        Self::Chunked(Chunked::Size(0, 0))
    }

    /// Whether all of it has come. Of a body that the closing ends, that is never known before.
    pub fn ended(&self) -> bool {
        matches!(self, Self::Length(0) | Self::Chunked(Chunked::End))
    }

    /// Whether the closing of the connection is its proper end.
    pub fn may_close(&self) -> bool {
        self.ended() || *self == Self::Close
    }

    /// Takes bytes off the front of `rest`, and returns the next piece of the body among them.
    /// `None` where `rest` is used up, or where the body has ended: what is left then is no part of it.
    ///
    /// # Errors
    /// Chunks that are malformed.
    #[inline]
    pub fn next<'b>(&mut self, rest: &mut &'b [u8]) -> Result<Option<&'b [u8]>, NotHttp> {
        match self {
            Self::Length(left) => Ok(take(left, rest)),
            Self::Close => Ok(Some(std::mem::take(rest)).filter(|piece| !piece.is_empty())),
            Self::Chunked(at) => {
                while !matches!(at, Chunked::End) {
                    if let Chunked::Data(left) = at {
                        let piece = take(left, rest);
                        if *left == 0 {
                            *at = Chunked::Behind;
                        }
                        if piece.is_some() || *at != Chunked::Behind {
                            return Ok(piece);
                        }
                    }
                    let Some((byte, behind)) = rest.split_first() else { return Ok(None) };
                    *at = at.step(*byte).ok_or(NotHttp::Chunks)?;
                    *rest = behind;
                }
                Ok(None)
            }
        }
    }
}

/// Up to `left` bytes off the front of `rest`.
#[inline]
fn take<'b>(left: &mut u64, rest: &mut &'b [u8]) -> Option<&'b [u8]> {
    let length = usize::try_from(*left).unwrap_or(usize::MAX).min(rest.len());
    let (piece, behind) = rest.split_at(length);
    *rest = behind;
    *left -= u64::try_from(length).unwrap_or(0);
    (!piece.is_empty()).then_some(piece)
}

impl Chunked {
    /// One byte outside the data of a chunk.
    #[inline]
    fn step(self, byte: u8) -> Option<Self> {
        Some(match (self, byte) {
            (Self::Size(size, digits), b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                let digit = match byte {
                    b'0'..=b'9' => byte - b'0',
                    b'a'..=b'f' => byte - b'a' + 10,
                    _ => byte - b'A' + 10,
                };
                if digits >= 15 {
                    return None;
                }
                Self::Size((size << 4) | u64::from(digit), digits + 1)
            }
            (Self::Size(_, 0), _) => return None,
            (Self::Size(size, _), b'\r' | b' ' | b'\t' | b';') | (Self::Extension(size), _)
                if byte != b'\n' =>
            {
                Self::Extension(size)
            }
            (Self::Size(0, _) | Self::Extension(0), b'\n') => Self::Trailer(false),
            (Self::Size(size, _) | Self::Extension(size), b'\n') => Self::Data(size),
            (Self::Behind, b'\r') => Self::Behind,
            (Self::Behind, b'\n') => Self::Size(0, 0),
            (Self::Trailer(begun), b'\r') => Self::Trailer(begun),
            (Self::Trailer(false), b'\n') => Self::End,
            (Self::Trailer(true), b'\n') => Self::Trailer(false),
            (Self::Trailer(_), _) => Self::Trailer(true),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What a body says, with the bytes behind it; `None` where it is malformed.
    fn body(mut body: Body, pieces: &[&[u8]]) -> Option<(String, bool, usize)> {
        let (mut said, mut behind) = (Vec::new(), 0);
        for piece in pieces {
            let mut rest = *piece;
            while let Some(part) = body.next(&mut rest).ok()? {
                said.extend_from_slice(part);
            }
            behind += rest.len();
        }
        Some((String::from_utf8(said).unwrap(), body.ended(), behind))
    }

    #[track_caller]
    fn check(text: &str, expected: Option<(&str, bool, usize)>) {
        let expected = expected.map(|(said, ended, behind)| (said.to_owned(), ended, behind));
        assert_eq!(body(Body::chunked(), &[text.as_bytes()]), expected);
        let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
        assert_eq!(body(Body::chunked(), &bytes), expected, "byte by byte");
    }

    #[test]
    fn chunks() {
        check("5\r\nhello\r\n3\r\n yo\r\n0\r\n\r\n", Some(("hello yo", true, 0)));
        check("1;a=b\r\nx\r\n0\r\nExpires: never\r\n\r\n", Some(("x", true, 0)));
        check("A\n0123456789\n0\n\n", Some(("0123456789", true, 0)));
        check("1\r\nx\r\n0\r\n\r\nHTTP", Some(("x", true, 4)));
        check("5\r\nhel", Some(("hel", false, 0)));
        check("\r\n", None);
        check("zz\r\n", None);
        check("1\r\nxy\r\n", None);
        check("ffffffffffffffffff\r\n", None);
    }

    #[test]
    fn heads() {
        let parse = |text: &str| head(text.as_bytes());
        let text = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\nServer: x\r\n\r\nrest";
        let (found, length) = parse(text).unwrap().unwrap();
        assert_eq!(&text[length..], "rest");
        assert!(found.event_stream && found.keep_alive);
        assert_eq!((found.status, found.body), (200, Body::chunked()));
        let text = "HTTP/1.1 429 Slow down\r\nretry-after: 7\r\nconnection: close\r\ncontent-length: 3\r\n\r\n";
        let (found, _) = parse(text).unwrap().unwrap();
        assert_eq!((found.retry_after, found.keep_alive), (Some(7), false));
        assert_eq!(found.body, Body::Length(3));
        let (found, _) = parse("HTTP/1.0 200 OK\r\n\r\n").unwrap().unwrap();
        assert_eq!((found.body, found.keep_alive), (Body::Close, false));
        let (found, _) = parse("HTTP/1.1 204 None\r\n\r\n").unwrap().unwrap();
        assert_eq!((found.body, found.keep_alive), (Body::Length(0), true));
        assert_eq!(parse("HTTP/1.1 200 OK\r\nA: b\r\n"), Ok(None));
        assert_eq!(parse("SSH-2.0-x\r\n"), Err(NotHttp::Head));
        let twice = "HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\n";
        assert_eq!(parse(twice), Err(NotHttp::Head));
        let endless = format!("HTTP/1.1 200 OK\r\nA: {}", "x".repeat(LONGEST_HEAD));
        assert_eq!(parse(&endless), Err(NotHttp::LongHead));
    }

    proptest! {
        #[test]
        fn cut_anywhere_a_body_is_the_same(
            parts in prop::collection::vec("[a-z]{1,40}", 0..8),
            cuts in prop::collection::vec(0_usize..500, 0..20),
        ) {
            let mut text: String =
                parts.iter().map(|part| format!("{:x}\r\n{part}\r\n", part.len())).collect();
            text += "0\r\n\r\n";
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> =
                cuts.windows(2).map(|pair| &text.as_bytes()[pair[0]..pair[1]]).collect();
            prop_assert_eq!(body(Body::chunked(), &pieces), Some((parts.concat(), true, 0)));
        }
    }
}

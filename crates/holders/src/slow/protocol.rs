//! What a slow reader and its parent say to each other: frames of a length (four bytes, little
//! end first) and as many bytes.

use serde::{Deserialize, Serialize};

/// Bytes of a frame's length.
pub(super) const HEADER: usize = 4;

/// No frame is longer: a file of the trees meant for this is some kilobytes long.
pub(super) const FRAME_LIMIT: usize = 16 << 20;

/// A frame that cannot be.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum FrameError {
    #[error("a frame of {0} bytes is none of ours")]
    Length(usize),
    #[error("a frame begins with {0:?}")]
    Kind(Option<u8>),
    #[error("a frame is broken")]
    Broken,
}

/// What an entry of a directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// Anything else, or not known.
    Other,
}

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlowEntry {
    /// Its name; bytes that are no text are replaced.
    pub name: String,
    /// What it is.
    pub kind: EntryKind,
}

/// What the parent asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Request {
    Read { path: String, limit: usize },
    List { path: String },
    Link { path: String },
}

/// What the child answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    Content(Vec<u8>),
    TooLong,
    Entries(Vec<SlowEntry>),
    Errno(i32),
    NotRegular,
    /// Once, before the first answer: its walls, as JSON.
    Walls(Vec<u8>),
    /// It cannot work at all.
    Failed(String),
}

pub(super) fn frame(payload: &[u8]) -> Result<Vec<u8>, FrameError> {
    let too_long = || FrameError::Length(payload.len());
    let length = u32::try_from(payload.len()).map_err(|_| too_long())?;
    if payload.len() > FRAME_LIMIT {
        return Err(too_long());
    }
    Ok([&length.to_le_bytes(), payload].concat())
}

/// The length in a frame's header. There is no empty frame.
pub(super) fn length(header: &[u8]) -> Result<usize, FrameError> {
    let bytes: [u8; HEADER] = header.try_into().map_err(|_| FrameError::Broken)?;
    let length = usize::try_from(u32::from_le_bytes(bytes)).map_err(|_| FrameError::Broken)?;
    if length == 0 || length > FRAME_LIMIT { Err(FrameError::Length(length)) } else { Ok(length) }
}

impl Request {
    pub(super) fn path(&self) -> &str {
        match self {
            Self::Read { path, .. } | Self::List { path } | Self::Link { path } => path,
        }
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Read { path, limit } => {
                let limit = u64::try_from(*limit).unwrap_or(u64::MAX).to_le_bytes();
                [b"r".as_slice(), &limit, path.as_bytes()].concat()
            }
            Self::List { path } => [b"l", path.as_bytes()].concat(),
            Self::Link { path } => [b"k", path.as_bytes()].concat(),
        }
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self, FrameError> {
        let (kind, rest) = bytes.split_first().ok_or(FrameError::Kind(None))?;
        let path = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).map_err(|_| FrameError::Broken);
        match kind {
            b'r' => {
                let (limit, rest) = rest.split_first_chunk::<8>().ok_or(FrameError::Broken)?;
                let limit = usize::try_from(u64::from_le_bytes(*limit)).unwrap_or(usize::MAX);
                Ok(Self::Read { path: path(rest)?, limit })
            }
            b'l' => Ok(Self::List { path: path(rest)? }),
            b'k' => Ok(Self::Link { path: path(rest)? }),
            other => Err(FrameError::Kind(Some(*other))),
        }
    }
}

impl Answer {
    /// For messages.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Content(_) => "content",
            Self::TooLong => "too long",
            Self::Entries(_) => "entries",
            Self::Errno(_) => "an error",
            Self::NotRegular => "not regular",
            Self::Walls(_) => "walls",
            Self::Failed(_) => "failed",
        }
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Content(bytes) => [b"c".as_slice(), bytes].concat(),
            Self::TooLong => b"t".to_vec(),
            Self::Entries(entries) => {
                let mut out = b"e".to_vec();
                for entry in entries {
                    out.push(match entry.kind {
                        EntryKind::File => b'f',
                        EntryKind::Directory => b'd',
                        EntryKind::Link => b'l',
                        EntryKind::Other => b'o',
                    });
                    // No name holds a zero byte.
                    out.extend_from_slice(entry.name.as_bytes());
                    out.push(0);
                }
                out
            }
            Self::Errno(errno) => [b"n".as_slice(), &errno.to_le_bytes()].concat(),
            Self::NotRegular => b"s".to_vec(),
            Self::Walls(json) => [b"w".as_slice(), json].concat(),
            Self::Failed(why) => [b"x", why.as_bytes()].concat(),
        }
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self, FrameError> {
        let (kind, rest) = bytes.split_first().ok_or(FrameError::Kind(None))?;
        match kind {
            b'c' => Ok(Self::Content(rest.to_vec())),
            b't' if rest.is_empty() => Ok(Self::TooLong),
            b'e' => entries(rest).map(Self::Entries),
            b'n' => {
                let errno = rest.try_into().map_err(|_| FrameError::Broken)?;
                Ok(Self::Errno(i32::from_le_bytes(errno)))
            }
            b's' if rest.is_empty() => Ok(Self::NotRegular),
            b'w' => Ok(Self::Walls(rest.to_vec())),
            b'x' => {
                let why = String::from_utf8(rest.to_vec()).map_err(|_| FrameError::Broken)?;
                Ok(Self::Failed(why))
            }
            other => Err(FrameError::Kind(Some(*other))),
        }
    }
}

fn entries(bytes: &[u8]) -> Result<Vec<SlowEntry>, FrameError> {
    let Some(bytes) = bytes.strip_suffix(b"\0") else {
        return if bytes.is_empty() { Ok(Vec::new()) } else { Err(FrameError::Broken) };
    };
    bytes
        .split(|b| *b == 0)
        .map(|entry| {
            let (kind, name) = entry.split_first().ok_or(FrameError::Broken)?;
            let kind = match kind {
                b'f' => EntryKind::File,
                b'd' => EntryKind::Directory,
                b'l' => EntryKind::Link,
                b'o' => EntryKind::Other,
                _ => return Err(FrameError::Broken),
            };
            let name = String::from_utf8(name.to_vec()).map_err(|_| FrameError::Broken)?;
            Ok(SlowEntry { name, kind })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn kinds() -> impl Strategy<Value = EntryKind> {
        use EntryKind::{Directory, File, Link, Other};
        prop_oneof![Just(File), Just(Directory), Just(Link), Just(Other)]
    }

    fn answers() -> impl Strategy<Value = Answer> {
        let bytes = proptest::collection::vec(any::<u8>(), 0..50);
        let entry = (kinds(), "[^\0]{0,9}").prop_map(|(kind, name)| SlowEntry { name, kind });
        prop_oneof![
            bytes.clone().prop_map(Answer::Content),
            Just(Answer::TooLong),
            proptest::collection::vec(entry, 0..9).prop_map(Answer::Entries),
            any::<i32>().prop_map(Answer::Errno),
            Just(Answer::NotRegular),
            bytes.prop_map(Answer::Walls),
            ".{0,20}".prop_map(Answer::Failed),
        ]
    }

    proptest! {
        #[test]
        fn answers_come_back_as_they_were_sent(answer in answers()) {
            prop_assert_eq!(Answer::from_bytes(&answer.to_bytes()), Ok(answer));
        }

        #[test]
        fn requests_come_back_as_they_were_sent(path in ".{0,40}", limit in any::<usize>()) {
            for request in [
                Request::Read { path: path.clone(), limit },
                Request::List { path: path.clone() },
                Request::Link { path: path.clone() },
            ] {
                prop_assert_eq!(Request::from_bytes(&request.to_bytes()), Ok(request));
            }
        }

        #[test]
        fn any_bytes_are_taken(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            if let Ok(answer) = Answer::from_bytes(&bytes) {
                prop_assert_eq!(answer.to_bytes(), bytes.clone());
            }
            if let Ok(request) = Request::from_bytes(&bytes) {
                prop_assert_eq!(request.to_bytes(), bytes);
            }
        }
    }

    #[test]
    fn frames_have_a_length_that_can_be() {
        assert_eq!(frame(b"abc"), Ok(b"\x03\0\0\0abc".to_vec()));
        assert_eq!(length(b"\x03\0\0\0"), Ok(3));
        assert_eq!(length(b"\0\0\0\0"), Err(FrameError::Length(0)));
        assert_eq!(length(b"\0\0\0\x7f"), Err(FrameError::Length(0x7f00_0000)));
        assert_eq!(length(b"\0\0"), Err(FrameError::Broken));
        assert_eq!(frame(&vec![0; FRAME_LIMIT + 1]), Err(FrameError::Length(FRAME_LIMIT + 1)));
    }
}

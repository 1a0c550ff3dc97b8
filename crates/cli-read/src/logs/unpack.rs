//! Compressed logs as streams. What a file is decides its first bytes, and not its name.

use std::io::{self, BufReader, Chain, Cursor, Read};

use flate2::read::MultiGzDecoder;
use lzma_rust2::XzReader;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// Bytes that tell the formats apart.
const MAGIC: usize = 6;
/// Most memory for an xz dictionary, KiB: the format's largest preset needs 65 MiB.
const XZ_MEMORY: u32 = 80 << 10;
/// Largest zstd window: the format's default limit, 128 MiB.
const ZSTD_WINDOW: u64 = 128 << 20;
/// Compressed bytes that are read at once.
const BUFFER: usize = 64 << 10;

type Rest<R> = Chain<Cursor<Vec<u8>>, R>;

/// A stream of what a file holds, unpacked where it is packed.
pub fn open<'a, R: Read + 'a>(mut source: R) -> io::Result<Stream<'a, R>> {
    let mut magic = Vec::with_capacity(MAGIC);
    source.by_ref().take(6).read_to_end(&mut magic)?;
    let start = magic.clone();
    let rest = Cursor::new(magic).chain(source);
    Ok(match start.as_slice() {
        [0x1f, 0x8b, ..] => {
            let unpacked = MultiGzDecoder::new(BufReader::with_capacity(BUFFER, rest));
            Stream::Packed("gzip", Box::new(unpacked))
        }
        [0xfd, b'7', b'z', b'X', b'Z', 0] => {
            let source = BufReader::with_capacity(BUFFER, rest);
            Stream::Packed("xz", Box::new(XzReader::new_mem_limit(source, true, XZ_MEMORY)))
        }
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => {
            Stream::Packed("zstd", Box::new(Zstd::new(BufReader::with_capacity(BUFFER, rest))))
        }
        _ => Stream::Plain(rest),
    })
}

/// A file's content.
pub enum Stream<'a, R> {
    /// As it is.
    Plain(Rest<R>),
    /// Unpacked: the format's name, and its reader.
    Packed(&'static str, Box<dyn Read + 'a>),
}

impl<R> std::fmt::Debug for Stream<'_, R> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Self::Plain(_) => "Stream(plain)",
            Self::Packed(format, _) => format,
        })
    }
}

impl<R: Read> Read for Stream<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(rest) => rest.read(buffer),
            Self::Packed(format, reader) => reader.read(buffer).map_err(|error| {
                io::Error::new(error.kind(), format!("the {format} stream is damaged: {error}"))
            }),
        }
    }
}

/// All frames of a zstd file, one after the other; the library reads one.
struct Zstd<R> {
    source: R,
    decoder: FrameDecoder,
    inside: bool,
}

impl<R: Read> Zstd<R> {
    fn new(source: R) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(ZSTD_WINDOW);
        Self { source, decoder, inside: false }
    }

    /// Begins the next frame; false at the end.
    fn begin(&mut self) -> io::Result<bool> {
        loop {
            let mut front = Front { source: &mut self.source, read: 0 };
            let begun = self.decoder.init(&mut front);
            match begun {
                Ok(()) => {
                    self.inside = true;
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let mut skipped = self.source.by_ref().take(u64::from(length));
                    if io::copy(&mut skipped, &mut io::sink())? < u64::from(length) {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                // Nothing more, not even a header's first byte.
                Err(_) if front.read == 0 => return Ok(false),
                Err(error) => return Err(io::Error::other(error.to_string())),
            }
        }
    }
}

impl<R: Read> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.inside && !self.begin()? {
                return Ok(0);
            }
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                let one = BlockDecodingStrategy::UptoBlocks(1);
                self.decoder
                    .decode_blocks(&mut self.source, one)
                    .map_err(|error| io::Error::other(error.to_string()))?;
            }
            let count = self.decoder.read(buffer)?;
            if count > 0 {
                return Ok(count);
            }
            self.inside = false;
        }
    }
}

/// Counts what a frame's header took.
struct Front<'a, R> {
    source: &'a mut R,
    read: usize,
}

impl<R: Read> Read for Front<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(buffer)?;
        self.read += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        writer.write_all(text).unwrap();
        writer.finish().unwrap()
    }

    /// A frame of one raw block, `one\n`: no checksum, content size in one byte (RFC 8878, 3.1).
    const FRAME: [u8; 13] =
        [0x28, 0xb5, 0x2f, 0xfd, 0x20, 0x04, 0x21, 0, 0, b'o', b'n', b'e', b'\n'];

    #[track_caller]
    fn check(packed: &[u8], expected: Result<&str, &str>) {
        let mut text = String::new();
        let seen = open(packed).and_then(|mut stream| stream.read_to_string(&mut text));
        match (seen, expected) {
            (Ok(_), Ok(expected)) => assert_eq!(text, expected),
            (Err(error), Err(expected)) => {
                let error = error.to_string();
                assert!(error.contains(expected), "{error}");
            }
            (seen, expected) => panic!("{seen:?} {text:?}, expected {expected:?}"),
        }
    }

    #[test]
    fn formats_by_their_first_bytes() {
        check(b"one\n", Ok("one\n"));
        check(b"", Ok(""));
        check(b"\x1f", Ok("\x1f"));
        check(&gzip(b"one\n"), Ok("one\n"));
        check(&FRAME, Ok("one\n"));
    }

    #[test]
    fn several_members_and_frames() {
        check(&[gzip(b"one\n"), gzip(b"two\n")].concat(), Ok("one\ntwo\n"));
        let skipped = [&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
        check(&[&FRAME[..], &skipped, &FRAME].concat(), Ok("one\none\n"));
    }

    #[test]
    fn cut_and_damaged_streams_say_so() {
        let whole = gzip(&b"line of a log\n".repeat(1_000));
        check(&whole[..whole.len() / 2], Err("the gzip stream is damaged"));
        check(b"\x1f\x8bnot gzip at all", Err("the gzip stream is damaged"));
        check(b"\xfd7zXZ\0nothing", Err("the xz stream is damaged"));
        check(&FRAME[..8], Err("the zstd stream is damaged"));
    }
}

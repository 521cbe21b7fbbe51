//! Recognises xz, zstd and gzip by their first bytes and reads them as a stream.
//!
//! What comes out is bounded by the caller: a few kilobytes can say that they are many gigabytes. What goes into the
//! decoders' windows is bounded here ([`WINDOW_MIB`]).
//! Left out: bzip2, lzma-alone, lzo and lz4, which Debian's packages and modules do not use. They are named, not guessed.

use std::io::{self, BufRead, Read};

use flate2::bufread::MultiGzDecoder;
use lzma_rust2::XzReader;
use stopgap_events::bounded;
use stopgap_events::units::Bytes;

/// The most memory that a decoder takes for its window, in MiB. `xz -9` takes 64, `zstd --ultra -22` 128.
pub(crate) const WINDOW_MIB: u32 = 256;

/// How bytes are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub(crate) enum Compression {
    /// Not at all, or by an unknown program.
    None,
    /// `.gz`
    Gzip,
    /// `.xz`
    Xz,
    /// `.zst`
    Zstd,
    /// One that is known by name only.
    Other(&'static str),
}

impl Compression {
    /// By the first bytes.
    pub(crate) fn of(first: &[u8]) -> Compression {
        match first {
            [0x1f, 0x8b, ..] => Compression::Gzip,
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Compression::Xz,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Compression::Zstd,
            [b'B', b'Z', b'h', ..] => Compression::Other("bzip2"),
            [0x02, 0x21, 0x4c, 0x18, ..] | [0x04, 0x22, 0x4d, 0x18, ..] => {
                Compression::Other("lz4")
            }
            [0x89, b'L', b'Z', b'O', ..] => Compression::Other("lzo"),
            [0x5d, 0, 0, ..] => Compression::Other("lzma"),
            _ => Compression::None,
        }
    }
}

/// A stream of what `inner` holds compressed by `compression`.
///
/// # Errors
///
/// [`io::ErrorKind::Unsupported`] for a compression that is known by name only. What is truncated or corrupted is an
/// error of the reads.
pub(crate) fn reader<'a>(
    compression: Compression,
    inner: impl BufRead + 'a,
) -> io::Result<Box<dyn Read + 'a>> {
    Ok(match compression {
        Compression::None => Box::new(inner),
        Compression::Gzip => Box::new(MultiGzDecoder::new(inner)),
        Compression::Xz => Box::new(XzReader::new_mem_limit(inner, true, WINDOW_MIB * 1024)),
        Compression::Zstd => Box::new(Zstd {
            inner: Some(inner),
            frame: None,
        }),
        Compression::Other(name) => {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!("compressed by {name}, which is not read here"),
            ));
        }
    })
}

/// All of `bytes`, decompressed where they are compressed.
///
/// # Errors
///
/// As [`reader`]; [`io::ErrorKind::FileTooLarge`] beyond `limit` bytes.
pub(crate) fn all(bytes: &[u8], limit: u64) -> io::Result<Vec<u8>> {
    bounded::read(reader(Compression::of(bytes), bytes)?, Bytes(limit)).map_err(|error| {
        if error.kind() != io::ErrorKind::FileTooLarge {
            return error;
        }
        let limit = Bytes(limit);
        io::Error::new(error.kind(), format!("more than {limit} when decompressed"))
    })
}

/// Frame by frame: the crate's stream ends with its frame, a file may hold several.
struct Zstd<R: Read> {
    /// Between two frames.
    inner: Option<R>,
    frame: Option<ruzstd::decoding::StreamingDecoder<R, ruzstd::decoding::FrameDecoder>>,
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if let Some(mut inner) = self.inner.take() {
                if inner.fill_buf()?.is_empty() {
                    self.inner = Some(inner);
                    return Ok(0);
                }
                let frame = ruzstd::decoding::StreamingDecoder::new_with_max_window_size(
                    inner,
                    u64::from(WINDOW_MIB) << 20,
                )
                .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, format!("zstd: {e}")))?;
                self.frame = Some(frame);
            }
            let Some(frame) = &mut self.frame else {
                return Ok(0); // the frame could not be begun: said already
            };
            let read = frame.read(buffer)?;
            if read > 0 {
                return Ok(read);
            }
            if let Some(frame) = self.frame.take() {
                let (inner, decoder) = frame.into_parts();
                // The crate computes the sum and leaves the comparison to its caller.
                let said = decoder.get_checksum_from_data();
                if said.is_some() && said != decoder.get_calculated_checksum() {
                    return Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        "zstd: the checksum differs",
                    ));
                }
                self.inner = Some(inner);
            }
        }
    }
}

#[cfg(test)]
mod tests;

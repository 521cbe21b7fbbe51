//! Latency histograms and the recorder that fills them.
//!
//! A [`Histogram`] is an HdrHistogram of nanoseconds with three significant digits: every number that it returns is
//! within 0.1 % of a recorded one, and exact below 2,048 ns. It covers 0 to [`Histogram::HIGHEST`], one hour. A
//! longer sample counts as an hour, and [`Histogram::saturated`] counts these, because no sample is dropped.
//!
//! In a document it is the HdrHistogram V2 encoding, uncompressed, in base64 (`"HIST..."`). HdrHistogram tools of
//! other languages read it. Text from disk may be wrong: sizes are checked before memory is allocated for them, and
//! numbers before they are counted.

use std::borrow::Cow;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::serialization::{Deserializer, Serializer, V2Serializer};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize, de, ser};

use crate::record::{Block, Stall, Stalls};

/// Three significant digits: a bucket is at most 1/1024 of its value wide.
const DIGITS: u8 = 3;
/// First four bytes of an uncompressed V2 encoding.
const COOKIE: u32 = 0x1c84_9313;
/// Cookie, payload length, normalising offset, digits (4 bytes each); lowest, highest, ratio (8).
const HEADER: usize = 40;
/// End of the value range of the last bucket that [`Histogram::HIGHEST`] falls into. A histogram that grew to take an
/// hour may have this as its highest value.
const TRACKABLE: u64 = (1 << 42) - 1;
/// 2,048 counts for the values below 2^11 and 1,024 for every doubling up to 2^42.
const BINS: usize = 2_048 + 31 * 1_024;
/// Most samples of a histogram from disk: twelve days of one per microsecond. This keeps every sum over counts far
/// from overflow.
const SAMPLES: u64 = 1 << 40;

/// Number of samples by latency. Values are nanoseconds.
///
/// Takes 16 KiB, and 8 KiB more for every doubling of the longest sample beyond 2 us: 120 KiB at 10 ms, 264 KiB at an
/// hour. A document names a long sample in 60 bytes, so a malicious one takes about 4,000 times its size in memory
/// when it is read.
#[derive(Clone)]
pub struct Histogram {
    inner: hdrhistogram::Histogram<u64>,
}

impl Histogram {
    /// Longest latency that is kept unchanged: one hour, in nanoseconds.
    pub const HIGHEST: u64 = 3_600_000_000_000;

    /// Creates an empty histogram.
    #[allow(clippy::missing_panics_doc)] // it cannot, as the message says
    #[must_use]
    pub fn new() -> Histogram {
        let inner = hdrhistogram::Histogram::new(DIGITS)
            .expect("three digits are between 0 and 5, which is all that is asked of them");
        Histogram { inner }
    }

    /// Counts a latency of `ns` nanoseconds; above [`Histogram::HIGHEST`] as that.
    ///
    /// Takes constant time, except that the first sample beyond twice the longest one so far makes the histogram
    /// grow.
    #[allow(clippy::missing_panics_doc)] // it cannot, as the message says
    pub fn record(&mut self, ns: u64) {
        self.inner
            .record(ns.min(Histogram::HIGHEST))
            .expect("it resizes itself, and an hour needs 33 Ki counts, which any usize can index");
    }

    /// Adds the counts of `other`.
    #[allow(clippy::missing_panics_doc)] // it cannot, as the message says
    pub fn merge(&mut self, other: &Histogram) {
        self.inner
            .add(&other.inner)
            .expect("it resizes itself, and no histogram reaches beyond 2^42 ns");
    }

    /// Returns the number of samples.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.inner.len()
    }

    /// Returns whether there is no sample.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }

    /// Returns the number of samples of an hour (to within 0.1 %) or longer, which count as an hour.
    #[must_use]
    pub fn saturated(&self) -> u64 {
        self.inner
            .iter_recorded()
            .filter(|step| step.value_iterated_to() >= Histogram::HIGHEST)
            .map(|step| step.count_at_value())
            .sum()
    }

    /// Returns the shortest sample in nanoseconds, rounded down to its bucket.
    #[must_use]
    pub fn min(&self) -> Option<u64> {
        (!self.is_empty()).then(|| self.inner.min())
    }

    /// Returns the longest sample in nanoseconds, rounded up to its bucket's end.
    #[must_use]
    pub fn max(&self) -> Option<u64> {
        (!self.is_empty()).then(|| self.inner.max())
    }

    /// Returns the mean in nanoseconds. Do not publish it by itself: stalls move it to where no sample is.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        (!self.is_empty()).then(|| self.inner.mean())
    }

    /// Returns the median in nanoseconds, rounded up to its bucket's end; for an even number of samples the lower of
    /// the two in the middle. One sample is enough. To publish a quantile, use
    /// [`quantile`](crate::quantile::quantile), which refuses too few samples.
    #[must_use]
    pub fn median(&self) -> Option<u64> {
        (!self.is_empty()).then(|| self.inner.value_at_quantile(0.5))
    }

    /// Returns the value, in nanoseconds and rounded up to its bucket's end, that a share `q` of the samples does not
    /// exceed. `None` without samples.
    pub(crate) fn at(&self, q: f64) -> Option<u64> {
        (!self.is_empty()).then(|| self.inner.value_at_quantile(q))
    }

    /// Returns the recorded values in ascending order, with their numbers: (end of the bucket in nanoseconds,
    /// samples). For a picture of the distribution.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.inner
            .iter_recorded()
            .map(|step| (step.value_iterated_to(), step.count_at_value()))
    }

    /// Returns the V2 encoding in base64.
    fn encode(&self) -> Result<String, hdrhistogram::serialization::V2SerializeError> {
        let mut bytes = Vec::new();
        V2Serializer::new().serialize(&self.inner, &mut bytes)?;
        Ok(STANDARD.encode(bytes))
    }

    /// Reads the output of [`Histogram::encode`], or returns what is wrong with it.
    fn decode(text: &str) -> Result<Histogram, String> {
        // A count takes at most nine bytes, three bytes make four letters.
        let longest = (HEADER + 9 * BINS).div_ceil(3) * 4;
        if text.len() > longest {
            return Err(format!(
                "{} letters; the longest histogram has {longest}",
                text.len()
            ));
        }
        let bytes = STANDARD
            .decode(text)
            .map_err(|error| format!("not base64: {error}"))?;
        check(&bytes)?;
        let mut inner = Deserializer::new()
            .deserialize::<u64, _>(&mut bytes.as_slice())
            .map_err(|error| error.to_string())?;
        inner.auto(true);
        Ok(Histogram { inner })
    }
}

/// Checks whether the decoder may get `bytes`. The decoder trusts lengths: it would allocate up to 4 GiB for a
/// payload, and negate the least integer.
fn check(bytes: &[u8]) -> Result<(), String> {
    let Some((header, payload)) = bytes.split_at_checked(HEADER) else {
        return Err(format!(
            "{} bytes; the header alone has {HEADER}",
            bytes.len()
        ));
    };
    let u32_at = |at: usize| {
        header[at..at + 4]
            .iter()
            .fold(0, |number, &byte| (number << 8) | u32::from(byte))
    };
    let u64_at = |at: usize| (u64::from(u32_at(at)) << 32) | u64::from(u32_at(at + 4));
    if u32_at(0) != COOKIE {
        return Err(format!(
            "begins with {:#010x}, not with {COOKIE:#010x} (HdrHistogram V2, uncompressed)",
            u32_at(0)
        ));
    }
    if u64::from(u32_at(4)) != payload.len() as u64 {
        return Err(format!(
            "says that it has {} bytes of counts, and has {}",
            u32_at(4),
            payload.len()
        ));
    }
    if u32_at(12) != u32::from(DIGITS) || u64_at(16) != 1 {
        return Err(format!(
            "{} digits from {} ns on; they must be {DIGITS} from 1 ns on",
            u32_at(12),
            u64_at(16)
        ));
    }
    if !(2..=TRACKABLE).contains(&u64_at(24)) {
        return Err(format!(
            "reaches to {} ns; the most is {TRACKABLE}",
            u64_at(24)
        ));
    }

    walk(payload, BINS)
}

/// Checks whether the decoder may get `payload`, the counts of a V2 encoding: it ends with a whole number, has at
/// most `bins` bins, and counts no more samples than can be added up.
pub(crate) fn walk(payload: &[u8], bins: usize) -> Result<(), String> {
    let mut rest = payload;
    let mut bin = 0;
    let mut samples: u64 = 0;
    while !rest.is_empty() {
        let Some((number, length)) = varint(rest) else {
            return Err("the last count is cut off".to_owned());
        };
        rest = &rest[length..];
        // Zigzag: even numbers are counts, odd ones runs of empty bins.
        let half = number >> 1;
        if number & 1 == 0 {
            samples = samples.saturating_add(half);
            bin += 1;
        } else {
            // -(half + 1) is the number that was written.
            bin += usize::try_from(half).unwrap_or(bins).min(bins) + 1;
        }
        if bin > bins {
            return Err(format!("more than {bins} counts"));
        }
    }
    if samples > SAMPLES {
        return Err(format!("more than {SAMPLES} samples"));
    }
    Ok(())
}

/// Returns the LEB128 number of at most nine bytes at the start of `bytes`, and its length.
fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut number = 0;
    for (at, &byte) in bytes.iter().enumerate().take(9) {
        if at == 8 {
            return Some((number | u64::from(byte) << 56, 9));
        }
        number |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some((number, at + 1));
        }
    }
    None
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram::new()
    }
}

/// Two histograms are equal if they have the same counts, independently of their size in memory.
impl PartialEq for Histogram {
    fn eq(&self, other: &Histogram) -> bool {
        self.len() == other.len() && self.buckets().eq(other.buckets())
    }
}

/// Shows the histogram in one line. The counts would fill the screen.
impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Histogram")
            .field("len", &self.len())
            .field("min", &self.min())
            .field("median", &self.median())
            .field("max", &self.max())
            .finish()
    }
}

impl Serialize for Histogram {
    fn serialize<S: ser::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = self.encode().map_err(ser::Error::custom)?;
        serializer.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Histogram, D::Error> {
        struct Text;
        impl de::Visitor<'_> for Text {
            type Value = Histogram;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a histogram (HdrHistogram V2 in base64)")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Histogram, E> {
                Histogram::decode(text)
                    .map_err(|error| E::custom(format_args!("not a histogram: {error}")))
            }
        }
        deserializer.deserialize_str(Text)
    }
}

impl JsonSchema for Histogram {
    fn schema_name() -> Cow<'static, str> {
        "Histogram".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "contentEncoding": "base64",
            "description": "Latencies in nanoseconds: an HdrHistogram in the V2 encoding, \
                uncompressed, lowest value 1, three significant digits, in base64. Samples of \
                more than an hour are counted as an hour.",
        })
    }
}

/// Takes the samples of one block: all of them into a histogram, and the long ones as episodes, too.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorder {
    histogram: Histogram,
    stalls: Stalls,
    /// The last episode, which the next sample may extend. It is counted, but not stored yet.
    last: Option<Stall>,
}

impl Recorder {
    /// Creates a recorder for which samples of at least `stall_threshold_ns` nanoseconds are stalls.
    #[must_use]
    pub fn new(stall_threshold_ns: u64) -> Recorder {
        Recorder {
            histogram: Histogram::new(),
            stalls: Stalls {
                threshold_ns: stall_threshold_ns,
                episodes: Vec::new(),
                count: 0,
            },
            last: None,
        }
    }

    /// Counts a sample that began at `start_ns` on the monotonic clock, which for a periodic
    /// sample is when it *should* have begun, and lasted `length_ns`.
    ///
    /// Stalls that overlap or touch the one before are one episode: a sampler that was held up
    /// for 10 ms finds ten late samples of one stall.
    ///
    /// ```text
    /// time     0123456789abcdef
    /// samples  [----)                one episode: 0..b, because each
    ///            [------)            begins before the last one ends
    ///                 [----)
    ///                          [--)  another
    /// ```
    pub fn record(&mut self, start_ns: u64, length_ns: u64) {
        self.histogram.record(length_ns);
        if length_ns < self.stalls.threshold_ns {
            return;
        }
        let end = start_ns.saturating_add(length_ns);
        if let Some(last) = &mut self.last {
            let last_end = last.start_ns.saturating_add(last.length_ns);
            if start_ns <= last_end && end >= last.start_ns {
                last.start_ns = last.start_ns.min(start_ns);
                last.length_ns = last_end.max(end) - last.start_ns;
                return;
            }
        }
        self.stalls.count += 1;
        let begun = Stall {
            start_ns,
            length_ns,
        };
        if let Some(over) = self.last.replace(begun) {
            keep(&mut self.stalls, over);
        }
    }

    /// Returns all samples so far.
    #[must_use]
    pub fn histogram(&self) -> &Histogram {
        &self.histogram
    }

    /// Returns the stalls so far.
    #[must_use]
    pub fn stalls(&self) -> Stalls {
        let mut stalls = self.stalls.clone();
        if let Some(last) = self.last {
            keep(&mut stalls, last);
        }
        stalls
    }

    /// Returns the block of run number `run`, which began at `start_ns` on the monotonic clock. Its figure is the
    /// median in nanoseconds. `None` without samples: a failed step is an error in the series, never a number.
    #[must_use]
    pub fn into_block(self, run: u32, start_ns: u64) -> Option<Block> {
        let median = self.histogram.median()?;
        let stalls = self.stalls();
        Some(Block {
            run,
            start_ns,
            samples: self.histogram.len(),
            value: median as f64,
            histogram: Some(self.histogram),
            stalls: Some(stalls),
        })
    }
}

/// Stores an ended stall if it is among the first.
fn keep(stalls: &mut Stalls, stall: Stall) {
    if stalls.episodes.len() < Stalls::KEPT {
        stalls.episodes.push(stall);
    }
}

#[cfg(test)]
mod tests;

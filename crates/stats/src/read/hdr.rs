//! Logs of HdrHistogram's (`#[Histogram log format version 1.3]`), whose lines hold V2 encodings, compressed or not:
//!
//! ```text
//! Tag=A,0.127,1.007,2.769,HISTFAAAAEV42pNpmSzMwMCgyAABTBDKT4GBgdnNYMcCBvsPEBEJISEuATEZMQ4uASkhIR4nrxg9v2lMaxhvMekILGZkAgCD3ASB
//! ```
//!
//! Intervals of one tag are one run. Values have no unit in a log; they are taken as nanoseconds.

use std::io::Read as _;
use std::time::Duration;

use super::counts::Counts;
use super::{Format, Options, Read, ReadError, choose, line_of};
use crate::histogram::walk;
use base64::Engine;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{
    IntervalLogHistogram, IntervalLogIterator, LogEntry, LogIteratorError,
};

/// An encoding from the cookie on, inflated: five digits over 64 bits would be nine bytes for each of 6.3
/// million counts, which are 50 MiB in memory.
const MOST_BYTES: u64 = 64 << 20;
/// Tags of a log.
const MOST_TAGS: usize = 1_000;
const PLAIN: u32 = 0x1c84_9313;
const COMPRESSED: u32 = 0x1c84_9314;
const HEADER: usize = 40;

/// Other languages' encoders leave the padding out.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

#[derive(Default)]
struct Tagged {
    counts: Counts,
    duration: Duration,
}

pub(super) fn read(bytes: &[u8], options: &Options) -> Result<Read, ReadError> {
    // The reader takes whole lines.
    let mut whole = bytes.trim_ascii_end().to_vec();
    whole.push(b'\n');
    let mut tags: Vec<(String, Tagged)> = Vec::new();
    for entry in IntervalLogIterator::new(&whole) {
        let interval = match entry {
            Ok(LogEntry::Interval(interval)) => interval,
            Ok(LogEntry::StartTime(_) | LogEntry::BaseTime(_)) => continue,
            Err(LogIteratorError::ParseError { offset }) => {
                let line = line_of(whole.get(..offset).unwrap_or_default());
                return Err(ReadError::at(line, "it is no interval of a histogram log"));
            }
        };
        let tag = interval.tag().map_or("", |tag| tag.as_str());
        let at = match tags.iter().position(|(name, _)| name == tag) {
            Some(at) => at,
            None if tags.len() < MOST_TAGS => {
                tags.push((tag.to_owned(), Tagged::default()));
                tags.len() - 1
            }
            None => return Err(ReadError::whole(format!("more than {MOST_TAGS} tags"))),
        };
        add(&mut tags[at].1, &interval).map_err(|why| {
            let from = interval.encoded_histogram().as_ptr() as usize - whole.as_ptr() as usize;
            ReadError::at(line_of(whole.get(..from).unwrap_or_default()), why)
        })?;
    }
    let untagged = tags.iter().any(|(tag, _)| tag.is_empty()).then_some("");
    let wanted = options.series.as_deref().or(untagged);
    let chosen = choose("tag", &tags, wanted)?;
    let mut read = Read::new(Format::HdrLog);
    read.unit = "ns".to_owned();
    if let Some(tag) = wanted.or(tags.first().map(|(tag, _)| &**tag))
        && !tag.is_empty()
    {
        read.parameters.insert("tag".to_owned(), tag.to_owned());
    }
    let time = u64::try_from(chosen.duration.as_nanos()).unwrap_or(u64::MAX);
    let looked = (time > 0).then_some(time);
    let why = "its intervals have no length";
    chosen.counts.put_run(read, None, (1, looked), options, why)
}

fn add(tagged: &mut Tagged, interval: &IntervalLogHistogram<'_>) -> Result<(), String> {
    tagged.duration = tagged.duration.saturating_add(interval.duration());
    let plain = inflated(interval.encoded_histogram())?;
    check(&plain)?;
    let histogram = Deserializer::new()
        .deserialize::<u64, _>(&mut plain.as_slice())
        .map_err(|error| format!("not a histogram: {error}"))?;
    for step in histogram.iter_recorded() {
        tagged
            .counts
            .add(step.value_iterated_to(), step.count_at_value())?;
    }
    Ok(())
}

/// The uncompressed encoding.
fn inflated(text: &str) -> Result<Vec<u8>, String> {
    let bytes = BASE64
        .decode(text)
        .map_err(|error| format!("not base64: {error}"))?;
    match word(&bytes, 0) {
        Some(PLAIN) => Ok(bytes),
        Some(COMPRESSED) => {
            let length = word(&bytes, 4).unwrap_or(0) as usize;
            let payload = &bytes[8.min(bytes.len())..];
            if payload.len() != length {
                let have = payload.len();
                return Err(format!("says that it has {length} bytes, and has {have}"));
            }
            let mut plain = Vec::new();
            flate2::read::ZlibDecoder::new(payload)
                .take(MOST_BYTES + 1)
                .read_to_end(&mut plain)
                .map_err(|error| format!("cannot be inflated: {error}"))?;
            if plain.len() as u64 > MOST_BYTES {
                return Err(format!("inflates to more than {} MiB", MOST_BYTES >> 20));
            }
            Ok(plain)
        }
        Some(other) => Err(format!(
            "begins with {other:#010x}: not an HdrHistogram of V2"
        )),
        None => Err("it is cut off".to_owned()),
    }
}

/// Whether the decoder may be given it: see [`walk`].
fn check(bytes: &[u8]) -> Result<(), String> {
    let Some((_, payload)) = bytes.split_at_checked(HEADER) else {
        return Err("its header is cut off".to_owned());
    };
    let at = |at| word(bytes, at).unwrap_or(0);
    let long = |place| (u64::from(at(place)) << 32) | u64::from(at(place + 4));
    if at(0) != PLAIN {
        return Err("what it inflates to is no HdrHistogram of V2".to_owned());
    }
    if u64::from(at(4)) != payload.len() as u64 {
        let (says, has) = (at(4), payload.len());
        return Err(format!(
            "says that it has {says} bytes of counts, and has {has}"
        ));
    }
    let (digits, low, high) = (at(12), long(16), long(24));
    if digits > 5 || low == 0 || low > high / 2 || high > u64::MAX / 2 {
        return Err(format!(
            "{digits} digits from {low} to {high}: no such histogram"
        ));
    }
    // Counts of one unit up to twice ten to the digits, and half as many for each doubling up to the highest value.
    let bins = (2 * 10u64.pow(digits)).next_power_of_two();
    let doublings = u64::from((high / low).max(1).ilog2()) + 1;
    let all = bins + bins / 2 * (doublings + 1).saturating_sub(u64::from(bins.ilog2()));
    let most = usize::try_from(all).unwrap_or(usize::MAX);
    walk(payload, most)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at + 4)?;
    Some(
        four.iter()
            .fold(0, |number, &byte| (number << 8) | u32::from(byte)),
    )
}

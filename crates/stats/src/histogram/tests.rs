use super::*;
use proptest::prelude::*;

fn histogram(samples: &[u64]) -> Histogram {
    let mut histogram = Histogram::new();
    for &ns in samples {
        histogram.record(ns);
    }
    histogram
}

fn read(text: &str) -> Result<Histogram, String> {
    serde_json::from_value(serde_json::Value::from(text)).map_err(|error| error.to_string())
}

fn written(histogram: &Histogram) -> String {
    let value = serde_json::to_value(histogram).expect("serialises");
    value.as_str().expect("a string").to_owned()
}

/// The bytes of a histogram, with other bytes from `at` on.
fn with(at: usize, bytes: &[u8]) -> String {
    let mut all = STANDARD
        .decode(written(&histogram(&[1, 5_000])))
        .expect("base64");
    all[at..at + bytes.len()].copy_from_slice(bytes);
    STANDARD.encode(all)
}

#[test]
fn nothing_recorded_is_no_number() {
    let empty = Histogram::new();
    assert!(empty.is_empty());
    assert_eq!(empty.len(), 0);
    assert_eq!((empty.min(), empty.max()), (None, None));
    assert_eq!((empty.mean(), empty.median()), (None, None));
    assert_eq!(read(&written(&empty)), Ok(empty));
}

#[test]
fn small_values_are_exact() {
    let histogram = histogram(&[0, 3, 7, 2_000]);
    assert_eq!(histogram.min(), Some(0));
    assert_eq!(histogram.median(), Some(3));
    assert_eq!(histogram.max(), Some(2_000));
    assert_eq!(histogram.mean(), Some(502.5));
}

#[test]
fn longer_than_an_hour_is_counted_as_an_hour() {
    let mut histogram = histogram(&[u64::MAX, Histogram::HIGHEST + 1, 5]);
    assert_eq!(histogram.len(), 3);
    assert_eq!(histogram.saturated(), 2);
    let max = histogram.max().expect("three samples");
    assert!((Histogram::HIGHEST..Histogram::HIGHEST / 1_000 * 1_001).contains(&max));
    assert_eq!(histogram.inner.distinct_values(), BINS);
    // A histogram that has grown to the end can still be read, and grow no further.
    let mut again = read(&written(&histogram)).expect("reads back");
    again.merge(&histogram);
    again.record(u64::MAX);
    assert_eq!(again.saturated(), 5);
    histogram.merge(&again);
    assert_eq!(histogram.len(), 10);
    assert_eq!(read(&written(&histogram)), Ok(histogram));
}

#[test]
fn the_text_is_that_of_other_tools() {
    let text = written(&histogram(&[1, 2, 3]));
    assert!(text.starts_with("HIST"), "{text}");
    assert_eq!(
        text,
        "HISTEwAAAAQAAAAAAAAAAwAAAAAAAAABAAAAAAAAAAI/8AAAAAAAAAACAgI="
    );
}

#[test]
fn text_that_is_no_histogram_is_refused() {
    let compressed = with(3, &[0x14]);
    let huge_payload = with(4, &[0xff, 0xff, 0xff, 0xff]);
    let five_digits = with(12, &[0, 0, 0, 5]);
    let to_the_end_of_time = with(24, &[0x7f, 0xff]);
    let ratio = with(32, &[0x40]);
    let least_integer = {
        let mut bytes = STANDARD.decode(written(&histogram(&[1]))).expect("base64");
        bytes.truncate(HEADER);
        bytes[7] = 9;
        bytes.extend([0xff; 9]);
        STANDARD.encode(bytes)
    };
    let too_many_samples = {
        let mut bytes = STANDARD.decode(written(&histogram(&[1]))).expect("base64");
        bytes.truncate(HEADER);
        bytes[7] = 18;
        bytes.extend([0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
        bytes.extend([0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
        STANDARD.encode(bytes)
    };
    for (text, why) in [
        ("", "0 bytes; the header alone has 40"),
        ("HIST", "3 bytes; the header alone has 40"),
        ("not base64", "not base64"),
        (compressed.as_str(), "begins with 0x1c849314"),
        (&huge_payload, "says that it has 4294967295 bytes of counts"),
        (&five_digits, "5 digits from 1 ns on"),
        (&to_the_end_of_time, "the most is 4398046511103"),
        (&ratio, "features"),
        (&least_integer, "more than 33792 counts"),
        (&too_many_samples, "samples"),
        (&"A".repeat(1 << 20), "1048576 letters"),
    ] {
        let error = read(text).expect_err(why);
        assert!(error.contains(why), "{error}\nexpected {why}");
    }
    assert!(serde_json::from_str::<Histogram>("17").is_err());
}

proptest! {
    #[test]
    fn what_is_written_reads_back(samples in prop::collection::vec(any::<u64>(), 0..50), shift in 0u32..64) {
        let samples: Vec<u64> = samples.iter().map(|ns| ns >> shift).collect();
        let histogram = histogram(&samples);
        let again = read(&written(&histogram)).expect("reads back");
        prop_assert_eq!(&again, &histogram);
        prop_assert_eq!(again.min(), histogram.min());
        prop_assert_eq!(again.max(), histogram.max());
        prop_assert_eq!(again.median(), histogram.median());
    }

    #[test]
    fn merging_is_recording_both(a in prop::collection::vec(0u64..1 << 44, 0..30), b in prop::collection::vec(0u64..1 << 20, 0..30)) {
        let mut merged = histogram(&a);
        merged.merge(&histogram(&b));
        let mut other_way = histogram(&b);
        other_way.merge(&histogram(&a));
        let both = histogram(&[a, b].concat());
        prop_assert_eq!(&merged, &both);
        prop_assert_eq!(&other_way, &both);
    }

    #[test]
    fn values_are_within_a_thousandth(ns in 0u64..=Histogram::HIGHEST) {
        let histogram = histogram(&[ns]);
        let (min, max) = (histogram.min().unwrap(), histogram.max().unwrap());
        prop_assert!(min <= ns && ns <= max);
        prop_assert!(max - min <= ns / 1_000, "{} {} {}", min, ns, max);
    }

    /// Any bytes, and a good histogram with some of them changed.
    #[test]
    fn hostile_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6), keep in any::<prop::sample::Index>()) {
        let _ = read(&STANDARD.encode(&bytes));
        let mut good = STANDARD.decode(written(&histogram(&[0, 1, 900, 123_456_789, 1 << 41]))).unwrap();
        for (at, byte) in changes {
            let at = at.index(good.len());
            good[at] = byte;
        }
        let _ = read(&STANDARD.encode(&good));
        good.truncate(keep.index(good.len()));
        let _ = read(&STANDARD.encode(&good));
        // The counts alone are what varies most: a header that fits them.
        let mut fitting = STANDARD.decode(written(&histogram(&[1 << 41]))).unwrap();
        fitting.truncate(HEADER);
        fitting[7] = u8::try_from(bytes.len()).unwrap();
        fitting.extend(&bytes);
        if let Ok(mut histogram) = read(&STANDARD.encode(&fitting)) {
            let again = histogram.clone();
            histogram.merge(&again);
            let _ = (histogram.median(), histogram.max(), histogram.mean(), histogram.saturated());
            prop_assert_eq!(histogram.len(), 2 * again.len());
        }
    }
}

#[test]
fn stalls_that_touch_are_one_episode() {
    let mut recorder = Recorder::new(100);
    recorder.record(0, 99);
    recorder.record(1_000, 300);
    recorder.record(1_100, 400); // overlaps
    recorder.record(1_500, 100); // touches
    recorder.record(1_050, 100); // late report of the same one
    recorder.record(2_000, 100); // another
    let block = recorder.into_block(3, 7).expect("six samples");
    assert_eq!((block.run, block.start_ns, block.samples), (3, 7, 6));
    assert!((block.value - 100.0).abs() < 1e-9);
    let stalls = block.stalls.expect("a latency has stalls");
    assert_eq!(stalls.count, 2);
    assert_eq!(
        stalls.episodes,
        [(1_000, 600), (2_000, 100)].map(|(start_ns, length_ns)| Stall {
            start_ns,
            length_ns
        })
    );
}

#[test]
fn only_the_first_episodes_are_kept_and_all_are_counted() {
    let mut recorder = Recorder::new(1);
    for start in 0..250 {
        recorder.record(start * 10, 5);
    }
    recorder.record(u64::MAX, u64::MAX);
    let stalls = recorder.stalls();
    assert_eq!(stalls.count, 251);
    assert_eq!(stalls.episodes.len(), Stalls::KEPT);
    assert_eq!(stalls.episodes[99].start_ns, 990);
}

#[test]
fn no_sample_is_no_block() {
    assert_eq!(Recorder::new(0).into_block(0, 0), None);
}

//! What must hold of any bytes that are read as results of a tool. Shared by the fuzz target and by
//! `crates/stats/tests/all/result_bytes.rs`, which runs it on changed files.

use stopgap_stats::read::{Format, Options, compatible, read};

/// Reads `bytes` as they are recognised and as each format. What comes out is runs, finite or absent, the same each time, or
/// one line. Gives back whether they could be read as recognised.
pub(crate) fn run(bytes: &[u8]) -> bool {
    let formats = Format::ALL.iter().copied().map(Some);
    for format in formats.chain([None]) {
        let options = Options {
            format,
            stall_threshold_ns: Some(20_000),
            ..Options::default()
        };
        match read(bytes, &options) {
            Ok(some) => {
                assert!(!some.runs.is_empty());
                for run in &some.runs {
                    let quantiles = [run.median, run.p99, run.p999, run.max];
                    let numbers = run.numbers.values().copied();
                    let mut all = quantiles.into_iter().flatten().chain(numbers);
                    assert!(all.all(f64::is_finite), "{run:?}");
                    let [low, middle, high] = [run.median, run.p99, run.p999];
                    let ordered =
                        |a: Option<f64>, b: Option<f64>| a.zip(b).is_none_or(|(a, b)| a <= b);
                    assert!(ordered(low, middle) && ordered(middle, high), "{run:?}");
                }
                assert_eq!(read(bytes, &options).as_ref(), Ok(&some));
                assert!(compatible(&[("a", &some), ("b", &some)]).is_ok());
            }
            Err(error) => assert!(!error.to_string().contains(char::is_control), "{error}"),
        }
    }
    read(bytes, &Options::default()).is_ok()
}

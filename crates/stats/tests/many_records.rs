//! 60 run records of a million samples each: read and compared in under 5 s.

#[path = "common/million.rs"]
mod million;

use std::time::Instant;

use stopgap_stats::compare::{Options as How, Side, compare};
use stopgap_stats::read::{Options, compatible, read};

const RECORDS: usize = 60;

#[test]
fn sixty_records_of_a_million_samples() {
    // What is timed is reading and comparing, so some records are made and each is read several times.
    let made: Vec<Vec<u8>> = (1..=6).map(million::record).collect();
    let begin = Instant::now();
    let files: Vec<_> = (0..RECORDS)
        .map(|number| read(&made[number % made.len()], &Options::default()).unwrap())
        .collect();
    let in_reading = begin.elapsed();
    let named: Vec<_> = files.iter().map(|file| ("record", file)).collect();
    assert_eq!(compatible(&named), Ok(Vec::new()));
    let side = |files: &[stopgap_stats::read::Read]| Side {
        name: "side".to_owned(),
        runs: files.iter().flat_map(|file| file.runs.clone()).collect(),
    };
    let (before, after) = files.split_at(RECORDS / 2);
    let comparison = compare(&side(before), &side(after), &How::default());
    let all = begin.elapsed();
    let size: usize = made.iter().map(Vec::len).sum::<usize>() / made.len();
    println!("60 records of {size} bytes: read in {in_reading:.2?}, compared after {all:.2?}");
    assert_eq!(comparison.endpoints.len(), 5, "{:?}", comparison.missing);
    assert!(all.as_secs_f64() < 5.0, "{all:?}");
}

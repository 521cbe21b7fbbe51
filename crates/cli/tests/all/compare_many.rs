//! 60 run records of a million samples each, from files to the answer.

mod million;

use std::fs;
use std::time::Instant;

use crate::common::{Run, text, valid};

#[test]
fn sixty_records_of_a_million_samples_are_compared() {
    let run = Run::new();
    let folder = run.directory.path();
    // Reading and comparing are timed, so some records are made and each is there several times.
    let made: Vec<Vec<u8>> = (1..=6).map(million::record).collect();
    let sides = ["before", "after"].map(|side| folder.join(side));
    for side in &sides {
        fs::create_dir(side).unwrap();
        for number in 0..30 {
            let record = &made[number % made.len()];
            fs::write(side.join(format!("{number:02}.json")), record).unwrap();
        }
    }
    let [before, after] = [&sides[0], &sides[1]].map(|side| side.to_str().unwrap());
    let begin = Instant::now();
    let output = run.output(&["compare", before, after, "--json"]);
    let took = begin.elapsed();
    let document = valid("stopgap.compare-1.json", &text(&output.stdout));
    println!("60 records of {} bytes: {took:.2?}", made[0].len());
    assert_eq!(document["before"]["runs"], 30);
    assert_eq!(document["endpoints"].as_array().unwrap().len(), 5);
}

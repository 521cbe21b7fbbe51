//! Files of results with changed bytes and lines: what the fuzz target asserts.

use stopgap_events::random::Random;

#[path = "../../../../fuzz/bodies/results.rs"]
mod body;

const FILES: &[&[u8]] = &[
    include_bytes!("../../fixtures/read/cyclictest-q.txt"),
    include_bytes!("../../fixtures/read/cyclictest-h.txt"),
    include_bytes!("../../fixtures/read/cyclictest.json"),
    include_bytes!("../../fixtures/read/cyclictest-n.txt"),
    include_bytes!("../../fixtures/read/cyclictest-n.json"),
    include_bytes!("../../fixtures/read/hyperfine-one.json"),
    include_bytes!("../../fixtures/read/criterion-sample.json"),
    include_bytes!("../../fixtures/read/go-bench-one.txt"),
    include_bytes!("../../fixtures/read/google-benchmark-one.json"),
    include_bytes!("../../fixtures/read/perf-stat-r.csv"),
    include_bytes!("../../fixtures/read/perf-stat-r.json"),
    include_bytes!("../../fixtures/read/perf-stat-append.csv"),
    include_bytes!("../../fixtures/read/rtla-timerlat-hist.txt"),
    include_bytes!("../../fixtures/read/rtla-osnoise-hist.txt"),
    include_bytes!("../../fixtures/read/histogram.hlog"),
];

const PIECES: [&[u8]; 15] = [
    b"18446744073709551615",
    b"-1",
    b"NaN",
    b"1e308",
    b"9223372036854775808",
    b"null",
    b"{",
    b"]",
    b"\n",
    b"0 99999999999:99:99",
    b"HISTFAAA",
    b",,cycles,0,100.00,,",
    b"<not counted>",
    b" ns/op ",
    b"\xff",
];

/// A file with some bytes changed, cut or repeated.
fn changed(file: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = file.to_vec();
    for _ in 0..1 + random.below(3) {
        let at = random.index(bytes.len());
        match random.below(6) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = b" =:,.[]{}\"->0\n\t"[random.index(15)],
            2 => bytes.truncate(at + 1),
            3 => drop(bytes.remove(at)),
            4 => {
                let piece = PIECES[random.index(PIECES.len())];
                let end = (at + random.index(8)).min(bytes.len());
                bytes.splice(at..end, piece.iter().copied());
            }
            _ => {
                let end = (at + random.index(60)).min(bytes.len());
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
        }
        if bytes.is_empty() {
            return bytes;
        }
    }
    bytes
}

#[test]
fn changed_files_are_runs_or_one_error() {
    let given = |name, usual| std::env::var(name).map_or(usual, |text| text.parse().unwrap());
    let (seed, rounds) = (given("STOPGAP_SEED", 1), given("STOPGAP_ROUNDS", 7_000));
    println!("STOPGAP_SEED={seed}");
    let mut random = Random::new(seed);
    for file in FILES {
        assert!(body::run(file), "a file that is well");
    }
    let mut refused = 0_u64;
    for round in 0..rounds {
        // Each in turn, so that every reader is met.
        let file = FILES[usize::try_from(round).unwrap() % FILES.len()];
        refused += u64::from(!body::run(&changed(file, &mut random)));
    }
    println!("{refused} of {rounds} were refused");
    assert!(refused > 0 && refused < rounds, "{refused} of {rounds}");
}

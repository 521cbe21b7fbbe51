#![no_main]

#[path = "../bodies/perf_records.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    body::run(bytes);
});

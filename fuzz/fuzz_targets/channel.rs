#![no_main]

#[path = "../bodies/channel.rs"]
#[allow(dead_code)] // what the suite's other test uses
mod body;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    body::run(bytes);
});

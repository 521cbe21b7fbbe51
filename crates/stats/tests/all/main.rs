//! All integration tests of this crate, as one program.

mod result_bytes;
mod tools;

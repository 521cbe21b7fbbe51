//! Whether Perfetto's own messages read what `stopgap export --to perfetto` writes.
//!
//! The exporter has messages of its own, a tenth of Perfetto's and without its code generator; this
//! check holds their names and numbers against those that Perfetto publishes (`perfetto_protos`).
//! It is a package of its own outside of the workspace, because they take two minutes and 2.4 GiB
//! to compile: `cargo test --manifest-path checks/perfetto/Cargo.toml`.

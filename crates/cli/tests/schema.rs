//! The schema that is checked in is the one that the types give.
//! To write it again: `UPDATE_SCHEMA=1 cargo test -p stopgap-cli --test schema`.

use std::path::Path;

#[test]
fn the_run_schema_is_the_types_schema() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema/stopgap.run-1.json");
    let types = serde_json::to_string_pretty(&stopgap_stats::record::schema()).unwrap() + "\n";
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(&path, &types).unwrap();
    }
    let checked_in = std::fs::read_to_string(&path).unwrap();
    assert!(
        types == checked_in,
        "the types have changed: UPDATE_SCHEMA=1 cargo test -p stopgap-cli --test schema"
    );
}

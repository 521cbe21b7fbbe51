//! The schemas that are checked in under `docs/schema/` are the ones that the types give.
//! To write them again: `UPDATE_SCHEMA=1 cargo test -p stopgap-cli schema`.

use std::path::Path;

fn assert_checked_in(name: &str, schema: &serde_json::Value) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema");
    let path = folder.join(name);
    let types = serde_json::to_string_pretty(schema).unwrap() + "\n";
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(&path, &types).unwrap();
    }
    let checked_in = std::fs::read_to_string(&path).unwrap();
    assert!(
        types == checked_in,
        "{name}: the types have changed: UPDATE_SCHEMA=1 cargo test -p stopgap-cli schema"
    );
}

#[test]
fn schemas_are_the_types() {
    assert_checked_in("stopgap.run-1.json", &stopgap_stats::record::schema());
    assert_checked_in("stopgap.replay-1.json", &stopgap_stats::replay::schema());
    assert_checked_in("stopgap.advise-1.json", &stopgap_stats::advise::schema());
    assert_checked_in("stopgap.explain-1.json", &stopgap_stats::explain::schema());
    assert_checked_in("stopgap.watch-1.json", &stopgap_stats::watch::schema());
    assert_checked_in("stopgap.compare-1.json", &stopgap_stats::compare::schema());
    assert_checked_in("stopgap.kernels-1.json", &stopgap_kernels::judge::schema());
    assert_checked_in("stopgap.gather-1.json", &stopgap_stats::gather::schema());
    assert_checked_in("stopgap.prices-1.json", &stopgap_stats::prices::schema());
    let own = |schema: schemars::Schema| schema.to_value();
    let snapshot = schemars::schema_for!(stopgap_events::snapshot::Snapshot);
    assert_checked_in("stopgap.snapshot-1.json", &own(snapshot));
    let doctor = schemars::schema_for!(crate::doctor::Diagnosis);
    assert_checked_in("stopgap.doctor-1.json", &own(doctor));
    let run_fix = schemars::schema_for!(crate::run::RunFixed);
    assert_checked_in("stopgap.run-fix-1.json", &own(run_fix));
    let restore = schemars::schema_for!(crate::restore::Restored);
    assert_checked_in("stopgap.restore-1.json", &own(restore));
}

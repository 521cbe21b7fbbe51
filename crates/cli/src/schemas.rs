//! The schemas that are checked in under `docs/schema/` are the ones that the types give.
//! To write them again: `UPDATE_SCHEMA=1 cargo test -p stopgap-cli schema`.

use std::path::Path;

use stopgap_stats::document::Document;

fn assert_checked_in<T: Document>(name: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema");
    let path = folder.join(name);
    let types = serde_json::to_string_pretty(&T::schema()).unwrap() + "\n";
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
    assert_checked_in::<stopgap_stats::record::Run>("stopgap.run-1.json");
    assert_checked_in::<stopgap_stats::replay::Replay>("stopgap.replay-1.json");
    assert_checked_in::<stopgap_stats::advise::Advise>("stopgap.advise-1.json");
    assert_checked_in::<stopgap_stats::explain::Explain>("stopgap.explain-2.json");
    assert_checked_in::<stopgap_stats::watch::Document>("stopgap.watch-3.json");
    assert_checked_in::<stopgap_stats::history::Document>("stopgap.history-1.json");
    assert_checked_in::<stopgap_stats::compare::Comparison>("stopgap.compare-1.json");
    assert_checked_in::<stopgap_stats::compare::moved::Moved>("stopgap.moved-1.json");
    assert_checked_in::<stopgap_stats::change_points::ChangePoints>("stopgap.change-points-1.json");
    assert_checked_in::<stopgap_kernels::judge::Kernels>("stopgap.kernels-1.json");
    assert_checked_in::<stopgap_stats::gather::Gathered>("stopgap.gather-1.json");
    assert_checked_in::<stopgap_stats::prices::Prices>("stopgap.prices-1.json");
    assert_checked_in::<stopgap_events::snapshot::Snapshot>("stopgap.snapshot-1.json");
    assert_checked_in::<crate::doctor::Diagnosis>("stopgap.doctor-1.json");
    assert_checked_in::<crate::run::RunFixed>("stopgap.run-fix-1.json");
    assert_checked_in::<crate::restore::Restored>("stopgap.restore-1.json");
}

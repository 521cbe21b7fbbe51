//! A small snapshot, whole and in every way wrong.

use serde_json::{Value, json};

use super::*;

/// ```text
/// frame    16      20      24  26      32
///          |       |       |   |       |
/// layout   [ free  ][ anon ][k][ free  ]
/// blocks   [ 2     ]           [1][2   ]
/// ```
fn document() -> Value {
    json!({
        "schema": SCHEMA, "version": "0", "taken_unix_s": 1, "kernel": "6.12.0",
        "page_bytes": 4096, "pageblock_order": 2,
        "zones": [{
            "node": 0, "name": "Normal", "start_frame": 16,
            "pages": 16, "present": 16, "managed": 15,
            "watermarks": {"min": 1, "low": 2, "high": 3}, "per_cpu": 1,
            "free_blocks": [0, 1, 2],
            "by_type": [
                {"name": "Movable", "free_blocks": [0, 1, null], "pageblocks": 4},
            ],
            "layout": ["f4a4k2f6"], "mapped": 4,
        }],
        "missing": [{"what": "pins", "why": "no kernel tells"}],
    })
}

fn read(document: &Value) -> Result<Snapshot, Error> {
    Snapshot::read(document.to_string().as_bytes())
}

#[test]
fn a_snapshot_comes_back_as_it_was_written() {
    let snapshot = read(&document()).unwrap();
    let mut text = Vec::new();
    snapshot.write(&mut text).unwrap();
    assert_eq!(Snapshot::from_json(&text).unwrap(), snapshot);
    // Members that a later stopgap adds to the same version are no error.
    let mut more = document();
    more["zones"][0]["colour"] = json!("blue");
    assert_eq!(read(&more).unwrap(), snapshot);
}

#[test]
#[allow(clippy::float_cmp)] // sixteenths: exact
fn blocks_are_recovered_from_the_layout() {
    let snapshot = read(&document()).unwrap();
    assert_eq!(
        snapshot.free_blocks_of_layout().unwrap(),
        snapshot.free_blocks()
    );
    let blocks: Vec<_> = snapshot.zones[0].blocks().unwrap().collect();
    let block = |frame, order| Block { frame, order };
    assert_eq!(blocks, [block(16, 2), block(26, 1), block(28, 2)]);
    assert_eq!(snapshot.unusable_index()[2].index, 0.2);
    // Without a layout nothing is made up.
    let mut without = document();
    without["zones"][0]["layout"] = Value::Null;
    let without = read(&without).unwrap();
    assert!(without.free_blocks_of_layout().is_none() && without.zones[0].runs().is_none());
}

#[test]
fn zones_of_different_orders_add_up() {
    let mut two = document();
    let mut other = two["zones"][0].clone();
    other["node"] = json!(1);
    other["free_blocks"] = json!([3]);
    other["by_type"] = Value::Null;
    other["layout"] = Value::Null;
    two["zones"].as_array_mut().unwrap().push(other);
    assert_eq!(read(&two).unwrap().free_blocks(), [3, 1, 2]);
}

#[test]
fn a_file_that_ends_early_is_cut_short_wherever_it_ends() {
    let text = document().to_string();
    for end in 0..text.len() {
        let error = Snapshot::from_json(&text.as_bytes()[..end]).unwrap_err();
        assert!(matches!(error, Error::CutShort), "{end}: {error}");
    }
}

#[test]
fn what_cannot_be_is_told_with_its_zone() {
    let zone = |field: &str, value: Value| {
        let mut document = document();
        document["zones"][0][field] = value;
        document
    };
    let mut twice = document();
    let again = twice["zones"][0].clone();
    twice["zones"].as_array_mut().unwrap().push(again);
    for (document, why) in [
        (
            zone("start_frame", json!(1u64 << 44)),
            "end beyond any memory",
        ),
        (
            zone("start_frame", json!(u64::MAX)),
            "end beyond any memory",
        ),
        (
            zone("present", json!(17)),
            "17 pages present, but only 16 spanned",
        ),
        (
            zone("managed", json!(17)),
            "17 pages managed, but only 16 present",
        ),
        (zone("per_cpu", json!(99)), "99 pages on per-CPU lists"),
        (zone("mapped", json!(99)), "99 pages mapped"),
        (
            zone("watermarks", json!({"min": 2, "low": 1, "high": 3})),
            "do not rise",
        ),
        (zone("free_blocks", json!([])), "0 orders"),
        (zone("free_blocks", json!(vec![0; 65])), "65 orders"),
        (
            zone("free_blocks", json!([0, 0, 5])),
            "add up to 20 pages, but only 15",
        ),
        (zone("free_blocks", json!([0, 0, u64::MAX])), "but only 15"),
        (
            zone("managed", json!(0)),
            "add up to 2 pages, but only 0 are managed",
        ),
        (
            zone("watermarks", json!({"min": 1, "low": 2, "high": 24})),
            "watermark high is 24 pages, but only 15 are managed",
        ),
        (
            zone("watermarks", json!({"min": 1, "low": 2, "high": u64::MAX})),
            "but only 15 are managed",
        ),
        (
            zone(
                "by_type",
                json!([{"name": "M", "free_blocks": [1], "pageblocks": 0}]),
            ),
            "migrate type M: 1 orders instead of 3",
        ),
        (
            zone(
                "by_type",
                json!([{"name": "M", "free_blocks": [0, 9, 0], "pageblocks": 0}]),
            ),
            "migrate type M: free blocks up to order 1",
        ),
        (
            zone(
                "by_type",
                json!([{"name": "M", "free_blocks": [0, 0, 0], "pageblocks": 9}]),
            ),
            "9 pageblocks are more",
        ),
        (
            zone("layout", json!(["f4a4k2f5"])),
            "add up to 15 pages; the zone spans 16",
        ),
        (
            zone("layout", json!(["f4a4k2z6"])),
            "section 0: character 6 is 'z'",
        ),
        (twice, "is there twice"),
    ] {
        let error = read(&document).unwrap_err().to_string();
        let placed = error.starts_with("node 0, zone Normal: ");
        assert!(placed && error.contains(why), "{error}");
    }
    let mut reserved = document();
    reserved["zones"][0]["present"] = json!(9);
    reserved["zones"][0]["managed"] = json!(9);
    reserved["zones"][0]["free_blocks"] = json!([9, 0, 0]);
    reserved["zones"][0]["by_type"] = Value::Null;
    let error = read(&reserved).unwrap_err().to_string();
    assert!(
        error.contains("layout: 10 pages free, but only 9"),
        "{error}"
    );
}

#[test]
fn other_documents_are_told_as_such() {
    let with = |field: &str, value: Value| {
        let mut document = document();
        document[field] = value;
        document
    };
    for (document, why) in [
        (
            with("schema", json!("stopgap.snapshot/2")),
            "its schema is 'stopgap.snapshot/2'",
        ),
        (
            json!({"schema": "stopgap.run/1"}),
            "its schema is 'stopgap.run/1'",
        ),
        (
            json!({"schema": format!("\n{}", "x".repeat(1_000))}),
            "'\\nxxx",
        ),
        (
            json!({"traceEvents": []}),
            "no snapshot: missing field `schema`",
        ),
        (json!([]), "no snapshot"),
        (with("zones", json!({})), "no snapshot: invalid type: map"),
        (with("zones", json!([])), "no zones"),
        (
            with("taken_unix_s", json!(-1)),
            "no snapshot: invalid value",
        ),
        (with("page_bytes", json!(0)), "page_bytes is 0"),
        (with("page_bytes", json!(4097)), "page_bytes is 4097"),
        (
            with("page_bytes", json!(1u64 << 63)),
            "page_bytes is 9223372036854775808",
        ),
        (with("pageblock_order", json!(64)), "pageblock_order"),
    ] {
        let error = read(&document).unwrap_err().to_string();
        assert!(error.contains(why) && !error.contains('\n'), "{error}");
        assert!(error.len() < 300, "{error}");
    }
    let error = Snapshot::from_json(b"PAR1\x15\x04")
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("no snapshot: expected value at line 1"),
        "{error}"
    );
}

#[test]
fn another_page_size_is_read_and_told_when_it_matters() {
    let mut document = document();
    document["page_bytes"] = json!(65536);
    let snapshot = read(&document).unwrap();
    assert!(snapshot.require_page(Bytes::kib(64)).is_ok());
    let error = snapshot
        .require_page(Bytes::kib(4))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("64 KiB") && error.contains("4 KiB"),
        "{error}"
    );
}

#[test]
fn a_file_without_end_is_refused() {
    let error = read::up_to(std::io::repeat(b' '), 1_000).unwrap_err();
    assert!(matches!(error, Error::TooLarge), "{error}");
    assert_eq!(read::up_to(&[7; 1_000][..], 1_000).unwrap(), [7; 1_000]);
}

/// What a zone of 15,000 managed pages says twice: each of the two may be 300 pages and 8 apart.
mod twice {
    use super::*;

    fn zone_of(free: u64, by_type: &Value, layout: &str, missing: &str) -> Value {
        json!({
            "schema": SCHEMA, "version": "0", "taken_unix_s": 1, "kernel": null,
            "page_bytes": 4096, "pageblock_order": 2,
            "zones": [{
                "node": 0, "name": "Normal", "start_frame": 0,
                "pages": 16000, "present": 16000, "managed": 15000,
                "watermarks": {"min": 1, "low": 2, "high": 3}, "per_cpu": 9000,
                "free_blocks": [0, 0, free],
                "by_type": [
                    {"name": "Unmovable", "free_blocks": [0, 0, by_type], "pageblocks": 100},
                    {"name": "Movable", "free_blocks": [0, 0, 1000], "pageblocks": 100},
                ],
                "layout": [layout], "mapped": null,
            }],
            "missing": [{"what": missing, "why": "memory changed"}],
        })
    }

    #[test]
    fn what_time_explains_is_taken() {
        let whole = "f8000k8000";
        for (free, by_type, layout) in [
            (2000, json!(1000), whole),
            (2077, json!(1000), whole),
            (1923, json!(1000), whole),
            (2000, json!(1077), whole),
            (2000, Value::Null, whole),
            (2000, json!(1000), "f8300k7700"),
        ] {
            read(&zone_of(free, &by_type, layout, "pins")).unwrap();
        }
    }

    #[test]
    fn what_no_time_explains_is_refused_unless_it_is_said() {
        for (free, by_type, layout, told, figures) in [
            // Free blocks changed, or the layout.
            (
                100,
                Value::Null,
                "f8000k8000",
                LAYOUT_OF_SAME_MOMENT,
                "8000 pages are free in blocks of order 2 and larger by its layout, 400 by free_blocks",
            ),
            (
                2000,
                Value::Null,
                "k16000",
                LAYOUT_OF_SAME_MOMENT,
                "0 pages are free in blocks of order 2 and larger by its layout, 8000 by free_blocks",
            ),
            // All single pages: as much free, no block of order 1 and 2.
            (
                250,
                Value::Null,
                &format!("{}k14000", "f1k1".repeat(1_000)),
                LAYOUT_OF_SAME_MOMENT,
                "0 pages are free in blocks of order 2 and larger by its layout, 1000 by free_blocks",
            ),
            (
                2000,
                json!(0),
                "f8000k8000",
                TYPES_OF_SAME_MOMENT,
                "4000 pages are free in blocks of order 2 and larger by its migrate types, 8000 by free_blocks",
            ),
        ] {
            let document = |missing| zone_of(free, &by_type, layout, missing);
            let error = read(&document("pins")).unwrap_err().to_string();
            assert!(
                error.starts_with("node 0, zone Normal: ") && error.contains(figures),
                "{error}"
            );
            let said = read(&document(told)).unwrap();
            assert!(said.says_missing(told));
        }
    }
}

mod hostile {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// One byte of the file is another one.
        #[test]
        fn a_changed_byte_never_panics(at in any::<prop::sample::Index>(), byte: u8) {
            let mut text = document().to_string().into_bytes();
            let at = at.index(text.len());
            text[at] = byte;
            if let Ok(snapshot) = Snapshot::from_json(&text) {
                // Without a layout where its name has changed.
                let blocks = snapshot.free_blocks_of_layout().unwrap_or_default();
                prop_assert!(blocks.iter().sum::<u64>() <= 16);
                prop_assert!(unusable_index(&snapshot.free_blocks()).iter().all(|one| one.index <= 1.0));
            }
        }
    }
}

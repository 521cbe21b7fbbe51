use super::*;
use proptest::prelude::*;

const HEADER: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
    \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
    \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
    \tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;\n";

fn layout() -> PageLayout {
    PageLayout::parse("header_page", HEADER).unwrap()
}

fn head(kind: u32, delta: u32) -> [u8; 4] {
    (kind | delta << 5).to_le_bytes()
}

fn page(time: u64, commit_flags: u64, records: &[&[u8]], after: &[u8]) -> Vec<u8> {
    let records = records.concat();
    let mut page = time.to_le_bytes().to_vec();
    page.extend((records.len() as u64 | commit_flags).to_le_bytes());
    page.extend(&records);
    page.extend(after);
    page
}

fn all(bytes: &[u8]) -> Vec<std::result::Result<(u64, Vec<u8>), String>> {
    let layout = layout();
    let records = layout.page(bytes).unwrap().records();
    records
        .map(|record| record.map(|record| (record.time, record.data.to_vec())))
        .collect()
}

/// ```text
/// 1000   +5 data(4)   +2^27+3 extend, +0 data(8)   padding(+7, 8 taken back)   stamp 5000, data
/// ```
#[test]
fn times_add_up() {
    let data = [1, 2, 3, 4];
    let bytes = page(
        1000,
        0,
        &[
            &head(1, 5),
            &data,
            &head(TIME_EXTEND, 3),
            &1_u32.to_le_bytes(),
            &head(2, 0),
            &data,
            &data,
            &head(PADDING, 7),
            &8_u32.to_le_bytes(),
            &[9; 4],
            &head(PADDING, 1),
            &4_u32.to_le_bytes(),
            &head(0, 1),
            &10_u32.to_le_bytes(), // 6 bytes and their length, rounded up to 8
            &[7, 7, 7, 7, 7, 7, 0, 0],
            &head(TIME_STAMP, 4),
            &2_u32.to_le_bytes(),
            &head(1, 1),
            &data,
            &head(PADDING, 0),
            &[0xff; 8],
        ],
        &[],
    );
    let two = [data, data].concat();
    let extended = 1005 + (1 << 27) + 3;
    let stamp = (2 << 27) + 4;
    let expected: Vec<_> = [
        (1005, data.to_vec()),
        (extended, two),
        (extended + 7 + 1, vec![7; 6]),
        (stamp + 1, data.to_vec()),
    ]
    .into_iter()
    .map(Ok)
    .collect();
    assert_eq!(all(&bytes), expected);
}

#[test]
fn absolute_times_keep_the_upper_bits() {
    assert_eq!(absolute(5, 77), 77);
    let upper = 3 << STAMP_BITS;
    assert_eq!(absolute(upper + 5, 77), upper + 77);
    assert_eq!(absolute(upper + 77, 5), upper + (1 << STAMP_BITS) + 5);
}

#[test]
fn lost_events_are_counted() {
    let layout = layout();
    let record: &[u8] = &[head(1, 1), [0; 4]].concat();
    let none = page(1, 0, &[record], &[]);
    assert_eq!(layout.page(&none).unwrap().lost, None);
    let some = page(1, MISSED | MISSED_STORED, &[record], &77_u64.to_le_bytes());
    assert_eq!(layout.page(&some).unwrap().lost, Some(Lost::Events(77)));
    let unknown = page(1, MISSED, &[record], &77_u64.to_le_bytes());
    assert_eq!(layout.page(&unknown).unwrap().lost, Some(Lost::Unknown));
    let beyond = page(1, MISSED | MISSED_STORED, &[record], &[1]);
    assert!(layout.page(&beyond).unwrap_err().contains("lost"));
}

#[test]
fn a_corrupt_page_is_an_error_with_its_place() {
    let layout = layout();
    assert!(layout.page(&[0; 7]).unwrap_err().contains("7 bytes"));
    let mut long = page(1, 0, &[&[0; 8]], &[]);
    long[8..16].copy_from_slice(&9_u64.to_le_bytes());
    assert!(layout.page(&long).unwrap_err().contains("9 bytes of 8"));
    let good: &[u8] = &[head(1, 1), [0; 4]].concat();
    for (last, why) in [
        (&head(28, 1)[..], "within the record at 8"),
        (&head(0, 1), "within the record at 8"),
        (&[1, 2], "within the record at 8"),
        (&[head(0, 1), 3_u32.to_le_bytes()].concat(), "no length"),
        (&[head(0, 1), u32::MAX.to_le_bytes()].concat(), "within"),
        (
            &[head(PADDING, 2), u32::MAX.to_le_bytes()].concat(),
            "within",
        ),
        (&head(TIME_EXTEND, 2), "within"),
    ] {
        let found = all(&page(1, 0, &[good, last], &[]));
        assert_eq!(found.len(), 2, "the one before is good: {found:?}");
        let error = found[1].clone().unwrap_err();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn a_layout_that_no_kernel_has_is_refused() {
    let parse = |text: &str| {
        let error = PageLayout::parse("header_page", text).unwrap_err();
        error.to_string()
    };
    assert!(parse("").contains("header_page: it has no field timestamp"));
    assert!(parse(&HEADER.replace("commit", "comit")).contains("no field commit"));
    assert!(parse(&HEADER.replace("4080", "0")).contains("field data"));
    assert!(parse(&HEADER.replace("4080", "999999999")).contains("field data"));
}

proptest! {
    #[test]
    fn any_bytes_end(bytes in prop::collection::vec(any::<u8>(), 0..300), commit in 0_u64..300) {
        let mut bytes = bytes;
        if let Some(field) = bytes.get_mut(8..16) {
            field.copy_from_slice(&commit.to_le_bytes());
        }
        if let Ok(page) = layout().page(&bytes) {
            prop_assert!(page.records().count() <= bytes.len());
        }
    }
}

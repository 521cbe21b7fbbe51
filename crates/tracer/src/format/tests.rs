use super::*;

const SWITCH: &str = "name: sched_switch\nID: 372\nformat:\n\
    \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
    \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
    \tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
    \tfield:long prev_state;\toffset:24;\tsize:8;\tsigned:1;\n\
    \tfield:__data_loc char[] name;\toffset:32;\tsize:4;\tsigned:0;\n\
    \tfield:__rel_loc char[] other;\toffset:36;\tsize:4;\tsigned:0;\n\
    \tfield:struct mm_struct * mm;\toffset:40;\tsize:8;\tsigned:0;\n\n\
    print fmt: \"%s\", REC->prev_comm\n";

fn error(text: &str) -> String {
    Format::parse("sched/sched_switch/format", text)
        .unwrap_err()
        .to_string()
}

#[test]
fn fields_are_found_by_name() {
    let format = Format::parse("f", SWITCH).unwrap();
    assert_eq!((format.name.as_str(), format.id), ("sched_switch", 372));
    let mut record = vec![0; 48];
    record[4..8].copy_from_slice(&(-7_i32).to_le_bytes());
    record[8..12].copy_from_slice(b"bash");
    record[24..32].copy_from_slice(&0x102_u64.to_le_bytes());
    record[32..36].copy_from_slice(&(48_u32 | 3 << 16).to_le_bytes());
    record[36..40].copy_from_slice(&(11_u32 | 4 << 16).to_le_bytes());
    record.extend(b"ab\0wxyz");
    let field = |name: &str| format.field(name).unwrap();
    assert_eq!(field("common_pid").signed(&record), Some(-7));
    assert_eq!(field("prev_comm").text(&record).unwrap(), "bash");
    assert_eq!(field("prev_state").unsigned(&record), Some(0x102));
    assert_eq!(field("name").text(&record).unwrap(), "ab");
    assert_eq!(field("other").text(&record).unwrap(), "wxyz");
    assert_eq!(field("mm").unsigned(&record), Some(0));
    assert_eq!(format.field("next_pid"), None);
}

#[test]
fn a_record_that_ends_early_has_no_such_field() {
    let format = Format::parse("f", SWITCH).unwrap();
    let field = |name: &str| format.field(name).unwrap();
    let mut record = vec![0xff; 48];
    // Offset and length 65535 each: beyond the record.
    assert_eq!(field("name").text(&record), None);
    assert_eq!(field("other").bytes(&record), None);
    assert_eq!(field("mm").element(&record, 8, 1), None);
    assert_eq!(field("mm").element(&record, 8, usize::MAX), None);
    assert_eq!(
        field("prev_comm").unsigned(&record),
        None,
        "16 bytes are no number"
    );
    record.truncate(30);
    assert_eq!(field("prev_state").signed(&record), None);
}

#[test]
fn what_cannot_be_understood_is_named() {
    assert!(error("").contains("sched/sched_switch/format: it has no line 'name:'"));
    assert!(error("name: x\n").contains("'ID:'"));
    assert!(error("name: x\nID: 70000\n").contains("70000"));
    assert!(error(&SWITCH.replace("offset:24;", "")).contains("field prev_state: no offset"));
    assert!(error(&SWITCH.replace("size:8;", "size:x;")).contains("field prev_state: no size"));
    let far = SWITCH.replace("offset:24", "offset:99999999");
    assert!(error(&far).contains("field prev_state"), "{}", error(&far));
    let overflow = SWITCH.replace("offset:24", &format!("offset:{}", usize::MAX));
    assert!(error(&overflow).contains("beyond any record"));
    let long = SWITCH.replace("offset:32;\tsize:4", "offset:32;\tsize:8");
    assert!(error(&long).contains("field name: a place elsewhere takes 4 bytes"));
    assert!(error("name: x\nID: 1\nfield: ;offset:0;size:1;\n").contains("without a name"));
}

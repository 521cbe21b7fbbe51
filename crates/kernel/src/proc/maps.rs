use std::collections::HashMap;

use stopgap_events::machine::Backing;
use stopgap_events::order::SortRows;
use stopgap_events::units::Bytes;

/// Mappings in a maps file: its lines. Cost about 0.1 ns a byte.
pub(crate) fn count(maps: &[u8]) -> u64 {
    maps.iter().filter(|&&byte| byte == b'\n').count() as u64
}

/// The `most` backings with the most mappings, most first, equal ones by name. The path is
/// what `/proc/PID/maps` prints (`fs/proc/task_mmu.c`), ` (deleted)` included; a mapping
/// without any is `anonymous`. Cost about 100 ns a line. The error is line and reason.
pub(crate) fn backings(maps: &[u8], page: Bytes, most: usize) -> Result<Vec<Backing>, String> {
    let mut by_path: HashMap<&[u8], (u64, u64)> = HashMap::new();
    for (number, line) in maps.split(|&byte| byte == b'\n').enumerate() {
        if line.is_empty() {
            continue;
        }
        let (length, path) = read_line(line).ok_or_else(|| {
            let line = String::from_utf8_lossy(line);
            format!("line {}: '{line}' is no mapping", number + 1)
        })?;
        let (mappings, one_page) = by_path.entry(path).or_default();
        *mappings += 1;
        *one_page += u64::from(length == page.0);
    }
    let mut all: Vec<_> = by_path.into_iter().collect();
    all.sort_rows(|(a, (na, _)), (b, (nb, _))| nb.cmp(na).then(a.cmp(b)));
    all.truncate(most);
    Ok(all
        .into_iter()
        .map(|(path, (mappings, one_page))| Backing {
            file: match path {
                [] => "anonymous".to_owned(),
                path => String::from_utf8_lossy(path).into_owned(),
            },
            mappings,
            one_page,
        })
        .collect())
}

/// Length and path of `start-end perms offset device inode   path`.
fn read_line(line: &[u8]) -> Option<(u64, &[u8])> {
    let mut rest = line;
    let mut range = line;
    for column in 0..5 {
        let end = rest.iter().position(|&b| b == b' ').unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        if word.is_empty() {
            return None;
        }
        if column == 0 {
            range = word;
        }
        // One space between columns; before the path as many as fill the line up.
        rest = after.strip_prefix(b" ").unwrap_or(after);
    }
    let (start, end) = std::str::from_utf8(range).ok()?.split_once('-')?;
    let start = u64::from_str_radix(start, 16).ok()?;
    let end = u64::from_str_radix(end, 16).ok()?;
    Some((end.checked_sub(start)?, rest.trim_ascii_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &[u8] = b"\
55d0c0000000-55d0c0001000 r--p 00000000 fe:00 131 /usr/bin/a b (deleted)\n\
55d0c0001000-55d0c0003000 r-xp 00001000 fe:00 131 /usr/bin/a b (deleted)\n\
55d0c1000000-55d0c1021000 rw-p 00000000 00:00 0                          [heap]\n\
7f0000000000-7f0000001000 rw-p 00000000 00:00 0 \n\
7f0000001000-7f0000002000 ---p 00000000 00:00 0\n\
7f0000003000-7f0000004000 rw-s 100000000 00:06 77                        /dev/dri/card0\n\
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0                          [stack]\n";

    fn rows(maps: &[u8], most: usize) -> Vec<(String, u64, u64)> {
        let all = backings(maps, Bytes::kib(4), most).unwrap();
        all.into_iter()
            .map(|b| (b.file, b.mappings, b.one_page))
            .collect()
    }

    #[test]
    fn mappings_are_counted_by_backing() {
        assert_eq!(count(MAPS), 7);
        let row = |file: &str, mappings, one_page| (file.to_owned(), mappings, one_page);
        let expected = [
            row("anonymous", 2, 2),
            row("/usr/bin/a b (deleted)", 2, 1),
            row("/dev/dri/card0", 1, 1),
            row("[heap]", 1, 0),
            row("[stack]", 1, 0),
        ];
        assert_eq!(rows(MAPS, 5), expected);
        assert_eq!(rows(MAPS, 1), expected[..1]);
        assert_eq!(rows(b"", 5), []);
    }

    #[test]
    fn one_page_means_a_base_page_of_this_machine() {
        let maps = b"10000-20000 rw-p 0 00:00 0 \n20000-21000 rw-p 0 00:00 0 \n";
        assert_eq!(backings(maps, Bytes::kib(64), 1).unwrap()[0].one_page, 1);
    }

    #[test]
    fn a_broken_line_is_an_error_that_names_it() {
        for broken in [
            "nonsense",
            "1000-2000 rw-p",
            "2000-1000 rw-p 0 00:00 0 ",
            "xyz-2000 rw-p 0 00:00 0 ",
            "1000-2000  rw-p 0 00:00 0",
        ] {
            let maps = format!("1000-2000 rw-p 0 00:00 0 \n{broken}\n");
            let error = backings(maps.as_bytes(), Bytes::kib(4), 5).unwrap_err();
            assert!(error.starts_with("line 2: "), "{error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_content_ends_the_program(maps: Vec<u8>) {
            let _ = backings(&maps, Bytes::kib(4), 5);
        }
    }
}

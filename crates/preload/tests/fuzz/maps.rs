//! `/proc/self/maps`.

/// A line of it.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) permissions: [u8; 4],
    pub(crate) offset: u64,
    /// Whether it maps a file that has offsets. (A private map of /dev/zero that was moved shows its former address.)
    pub(crate) file: bool,
}

/// All of them, in order.
pub(crate) fn read() -> Vec<Line> {
    let text = std::fs::read_to_string("/proc/self/maps").expect("/proc is mounted");
    text.lines().filter_map(line).collect()
}

fn line(text: &str) -> Option<Line> {
    let mut words = text.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let permissions = words.next()?.as_bytes().try_into().ok()?;
    let offset = u64::from_str_radix(words.next()?, 16).ok()?;
    let inode = words.nth(1)?;
    let zeroes = words.next() == Some("/dev/zero");
    Some(Line {
        start: usize::from_str_radix(start, 16).ok()?,
        end: usize::from_str_radix(end, 16).ok()?,
        permissions,
        offset,
        file: inode != "0" && !zeroes,
    })
}

/// What is shown at an address: permissions, and the offset where it is of a file.
pub(crate) fn at(maps: &[Line], address: usize) -> Option<([u8; 4], Option<u64>)> {
    let next = maps.partition_point(|line| line.end <= address);
    let line = maps.get(next).filter(|line| line.start <= address)?;
    let offset = line.offset + (address - line.start) as u64;
    Some((line.permissions, line.file.then_some(offset)))
}

/// How many lines tell of a range.
pub(crate) fn lines(maps: &[Line], at: usize, length: usize) -> usize {
    let next = maps.partition_point(|line| line.end <= at);
    let all = maps[next..].iter();
    all.take_while(|line| line.start < at + length).count()
}

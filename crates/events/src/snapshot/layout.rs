use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::kind::Kind;
use crate::units::Pages;

/// Pages that one string of a layout describes; the last of a zone describes what is left.
/// 128 MiB of 4 KiB pages: long enough that memory in one piece takes little text, short enough
/// that a fault in a file is reported with its place.
pub(super) const SECTION: u64 = 1 << 15;

/// What each page of a zone is: run-length text, a string for each 32,768 pages, each run its
/// kind's letter and how many pages: `f512a3k1`. Letters: f free, a anonymous, c file, s shmem,
/// u locked, k kernel, h hugetlb, r reserved, n hole, ? unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Layout {
    sections: Vec<String>,
}

/// Pages of one kind, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Frame number of the first.
    pub start: u64,
    /// How many.
    pub pages: Pages,
    /// Their kind.
    pub kind: Kind,
}

impl Layout {
    /// The runs, of which the first begins at frame `start`.
    pub(super) fn runs(&self, start: u64) -> Runs<'_> {
        Runs {
            sections: self.sections.iter(),
            text: "",
            frame: start,
            next: None,
        }
    }

    /// The sections' pages added up, where each string is sound: letters that are some, counts
    /// that are some, and as many pages as a section has.
    ///
    /// # Errors
    /// The fault, and its section.
    pub(super) fn check(&self) -> Result<u64, String> {
        let mut total: u64 = 0;
        let mut sections = self.sections.iter().enumerate().peekable();
        while let Some((number, section)) = sections.next() {
            let wrong = |why: String| format!("section {number}: {why}");
            let pages = check_section(section).map_err(wrong)?;
            let last = sections.peek().is_none();
            if pages > SECTION || (pages < SECTION && !last) || pages == 0 {
                return Err(wrong(format!(
                    "its runs add up to {pages} pages, not to {SECTION}"
                )));
            }
            total += pages; // at most 2^15 a string
        }
        Ok(total)
    }

    /// Bytes of text.
    #[must_use]
    pub fn text_bytes(&self) -> usize {
        self.sections.iter().map(String::len).sum()
    }
}

/// The pages of one string.
fn check_section(section: &str) -> Result<u64, String> {
    let mut pages: u64 = 0;
    let mut rest = section;
    while let Some(letter) = rest.chars().next() {
        match cut(rest) {
            Some((_, count, after)) => {
                pages = pages.saturating_add(count);
                rest = after;
            }
            None if Kind::of_letter(letter).is_none() => {
                let at = section.len() - rest.len();
                return Err(format!(
                    "character {at} is '{}', which is no kind of page",
                    letter.escape_default()
                ));
            }
            None => {
                let at = section.len() - rest.len();
                return Err(format!(
                    "after '{letter}' at character {at} is no number of pages"
                ));
            }
        }
    }
    Ok(pages)
}

/// The first run of a text, and what follows it; `None` where there is none, or it is broken.
fn cut(text: &str) -> Option<(Kind, u64, &str)> {
    let letter = text.chars().next()?;
    let kind = Kind::of_letter(letter)?;
    let rest = &text[letter.len_utf8()..];
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let count: u64 = rest[..digits].parse().ok().filter(|&count| count > 0)?;
    Some((kind, count, &rest[digits..]))
}

/// The runs of a layout: contiguous, neighbours of different kinds. Takes a few nanoseconds a
/// run; nothing is held but the place in the text.
#[derive(Debug, Clone)]
pub struct Runs<'a> {
    sections: std::slice::Iter<'a, String>,
    text: &'a str,
    frame: u64,
    /// A run that was cut off already, and may go on.
    next: Option<Run>,
}

impl Iterator for Runs<'_> {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        loop {
            if self.text.is_empty() {
                match self.sections.next() {
                    Some(section) => self.text = section,
                    None => return self.next.take(),
                }
            }
            let Some((kind, count, rest)) = cut(self.text) else {
                // An empty string, or a broken one, after which no frame number would be right.
                self.sections = [].iter();
                self.text = "";
                return self.next.take();
            };
            self.text = rest;
            let run = Run {
                start: self.frame,
                pages: Pages(count),
                kind,
            };
            self.frame = self.frame.saturating_add(count);
            match &mut self.next {
                Some(open) if open.kind == kind => open.pages += Pages(count),
                open => {
                    if let Some(whole) = open.replace(run) {
                        return Some(whole);
                    }
                }
            }
        }
    }
}

/// Makes a layout, run by run.
#[derive(Debug, Default)]
pub struct Builder {
    layout: Layout,
    text: String,
    /// Pages in `text` and `open`.
    filled: u64,
    /// The run that may go on.
    open: Option<(Kind, u64)>,
}

impl Builder {
    /// Returns an empty layout to add to.
    #[must_use]
    pub fn new() -> Builder {
        Builder::default()
    }

    /// The next `pages` pages are of this kind.
    pub fn push(&mut self, kind: Kind, pages: u64) {
        let mut left = pages;
        while left > 0 {
            let fits = left.min(SECTION - self.filled);
            match &mut self.open {
                Some((open, count)) if *open == kind => *count += fits,
                _ => {
                    self.write_open();
                    self.open = Some((kind, fits));
                }
            }
            self.filled += fits;
            left -= fits;
            if self.filled == SECTION {
                self.end_section();
            }
        }
    }

    /// The layout.
    #[must_use]
    pub fn finish(mut self) -> Layout {
        if self.filled > 0 {
            self.end_section();
        }
        self.layout
    }

    fn write_open(&mut self) {
        if let Some((kind, count)) = self.open.take() {
            self.text.push(kind.letter());
            let _ = write!(self.text, "{count}"); // writing to a String cannot fail
        }
    }

    fn end_section(&mut self) {
        self.write_open();
        self.filled = 0;
        // A copy as long as the text: the buffer keeps its size for the next one.
        self.layout.sections.push(self.text.as_str().to_owned());
        self.text.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(runs: &[(Kind, u64)]) -> Layout {
        let mut builder = Builder::new();
        for &(kind, pages) in runs {
            builder.push(kind, pages);
        }
        builder.finish()
    }

    fn of_text(sections: &[&str]) -> Layout {
        let sections = sections.iter().copied().map(str::to_owned).collect();
        Layout { sections }
    }

    /// ```text
    /// frame      100     612 615 616      32,868        33,000
    ///            |       |   |   |        |             |
    /// pushed     [free....][a][k][ file                 ]
    /// sections   [                       ][             ]
    /// ```
    #[test]
    fn runs_are_text_in_sections() {
        let runs = [
            (Kind::Free, 500),
            (Kind::Free, 12),
            (Kind::Anonymous, 3),
            (Kind::Unknown, 0),
            (Kind::Kernel, 1),
            (Kind::File, SECTION - 516 + 132),
        ];
        let layout = of(&runs);
        assert_eq!(layout.sections, ["f512a3k1c32252", "c132"]);
        assert_eq!(layout.check(), Ok(SECTION + 132));
        let read: Vec<Run> = layout.runs(100).collect();
        let run = |start, pages, kind| Run {
            start,
            pages: Pages(pages),
            kind,
        };
        let expected = [
            run(100, 512, Kind::Free),
            run(612, 3, Kind::Anonymous),
            run(615, 1, Kind::Kernel),
            run(616, SECTION - 516 + 132, Kind::File),
        ];
        assert_eq!(read, expected);
    }

    #[test]
    fn broken_text_is_told_with_its_place_and_ends_the_runs() {
        let whole = format!("f{SECTION}");
        for (text, why) in [
            ("x5", "character 0 is 'x', which is no kind of page"),
            ("f5\n3", "character 2 is '\\n'"),
            ("f5ä3", "character 2 is '\\u{e4}'"),
            ("f5a", "after 'a' at character 2 is no number"),
            ("f5a0", "after 'a' at character 2"),
            ("f5a-3", "after 'a' at character 2"),
            ("f5a99999999999999999999", "after 'a' at character 2"),
            ("5f", "character 0 is '5'"),
            ("f40000", "40000 pages, not to 32768"),
            ("f18446744073709551615a9", "18446744073709551615 pages"),
            ("", "add up to 0 pages"),
        ] {
            let error = of_text(&[&whole, text]).check().unwrap_err();
            assert!(
                error.contains(why) && error.contains("section 1"),
                "{error}"
            );
        }
        // The last alone may be shorter.
        let error = of_text(&["f5", &whole]).check().unwrap_err();
        assert!(error.contains("section 0"), "{error}");
        assert_eq!(of_text(&["f5a3x9", "f7"]).runs(0).count(), 2);
        assert_eq!(of_text(&["f5", "", "k7"]).runs(0).count(), 1);
    }

    proptest! {
        #[test]
        fn what_is_pushed_is_read(
            runs in prop::collection::vec((0..Kind::ALL.len(), 0u64..70_000), 0..20),
            start in 0u64..1 << 40,
        ) {
            let runs: Vec<_> = runs.iter().map(|&(kind, pages)| (Kind::ALL[kind], pages)).collect();
            let layout = of(&runs);
            let total: u64 = runs.iter().map(|run| run.1).sum();
            prop_assert_eq!(layout.check(), Ok(total));
            // Neighbours joined, by hand.
            let mut expected: Vec<Run> = Vec::new();
            let mut at = start;
            for (kind, pages) in runs.into_iter().filter(|run| run.1 > 0) {
                match expected.last_mut() {
                    Some(last) if last.kind == kind => last.pages += Pages(pages),
                    _ => expected.push(Run { start: at, pages: Pages(pages), kind }),
                }
                at += pages;
            }
            prop_assert_eq!(layout.runs(start).collect::<Vec<_>>(), expected);
        }

        #[test]
        fn any_text_is_read_or_refused(texts in prop::collection::vec("[facsukhrn?x0-9]{0,12}", 0..4)) {
            let layout = Layout { sections: texts };
            let read: Pages = layout.runs(7).map(|run| run.pages).sum();
            if let Ok(pages) = layout.check() {
                prop_assert_eq!(read, Pages(pages));
            }
        }
    }
}

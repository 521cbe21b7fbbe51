//! The page as text: what stands in it, and what cannot.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use stopgap_report::Style;
use stopgap_report::html::{Document, Source, page};
use stopgap_report::terminal;

use crate::common::{run, sources};

/// A text that somebody else may have put into a record.
const HOSTILE: &str = "\u{1b}[2J\u{1b}]0;x\u{7}\n\r\"'></title></style></svg><script src=https://stopgap.invalid/x.js>alert(1)</script><img onerror=alert(2) src=x>&\u{202e}";

/// Elements that a page is made of.
const ELEMENTS: &str = "html head meta title style body a header main nav section h1 h2 h3 p ul li b small span pre div \
                        details summary figure figcaption table thead tbody tr th td svg text rect circle line polyline i em \
                        polygon path";

/// Attributes that they have.
const ATTRIBUTES: &str = "lang charset http-equiv content name title style class id href aria-label aria-hidden role tabindex scope open data-h \
                          viewBox width height data-x data-y x y x1 y1 x2 y2 cx cy r d dx dy points fill stroke stroke-width \
                          stroke-dasharray opacity fill-opacity text-anchor font-family font-size transform";

/// Holds that a page has no element and no attribute but those, and leads nowhere.
fn harmless(page: &str) {
    let (elements, attributes): (Vec<&str>, Vec<&str>) = (
        ELEMENTS.split_whitespace().collect(),
        ATTRIBUTES.split_whitespace().collect(),
    );
    let begin = page.find("</style>").expect("a style sheet");
    assert!(!page[..begin].contains("url(") && !page[..begin].contains("@import"));
    for (at, _) in page.match_indices('<') {
        let tag = page[at + 1..].split('>').next().expect("a first part");
        if tag.starts_with("!DOCTYPE") {
            continue;
        }
        let inside = tag.trim_start_matches('/').trim_end_matches('/').trim_end();
        let (name, mut rest) = inside
            .split_once(char::is_whitespace)
            .unwrap_or((inside, ""));
        assert!(elements.contains(&name), "element '{name}' in <{tag}>");
        while let Some((attribute, after)) = rest.trim_start().split_once("=\"") {
            let before = attribute.split_whitespace();
            for attribute in before {
                assert!(
                    attributes.contains(&attribute),
                    "attribute '{attribute}' in <{tag}>"
                );
            }
            let (value, after) = after
                .split_once('"')
                .unwrap_or_else(|| panic!("no end of a value in <{tag}>"));
            if attribute.trim() == "style" {
                let plain =
                    |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-:;.%".contains(c);
                assert!(value.chars().all(plain), "a style of {value}");
            }
            if attribute.trim() == "href" {
                assert!(value.starts_with('#'), "it leads to {value}");
            }
            rest = after;
        }
        for attribute in rest.split_whitespace() {
            assert!(
                attributes.contains(&attribute),
                "attribute '{attribute}' in <{tag}>"
            );
        }
    }
}

/// `record` with [`HOSTILE`] in every text and every name where its type takes any text.
fn hostile<T: Serialize + DeserializeOwned>(record: &T) -> T {
    fn texts(value: &Value, path: &str, found: &mut Vec<String>) {
        match value {
            Value::String(_) => found.push(path.to_owned()),
            Value::Array(all) => {
                for (index, one) in all.iter().enumerate() {
                    texts(one, &format!("{path}/{index}"), found);
                }
            }
            Value::Object(all) => {
                for (key, one) in all {
                    texts(
                        one,
                        &format!("{path}/{}", key.replace('~', "~0").replace('/', "~1")),
                        found,
                    );
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    let mut value = serde_json::to_value(record).expect("it has a JSON form");
    let mut found = Vec::new();
    texts(&value, "", &mut found);
    let mut replaced = 0;
    for path in found {
        // Names of quantities and units stay, so that there is something to draw.
        if path.contains("/series/") && path.ends_with("/name")
            || path.ends_with("/unit")
            || path.ends_with("/histogram")
            || path == "/schema"
        {
            continue;
        }
        let place = value.pointer_mut(&path).expect("it was found there");
        let kept = std::mem::replace(place, Value::String(HOSTILE.to_owned()));
        match serde_json::from_value::<T>(value.clone()) {
            Ok(_) => replaced += 1,
            Err(_) => *value.pointer_mut(&path).expect("it was found there") = kept,
        }
    }
    assert!(replaced > 3, "{replaced} texts were replaced");
    serde_json::from_value(value).expect("each replacement was tried")
}

#[test]
fn every_question_and_kind_has_its_section_and_pictures_have_words() {
    let page = page(&sources());
    harmless(&page);
    for id in [
        "placement",
        "roundtrip",
        "chunks",
        "reclaim",
        "environment",
        "missing",
        "again",
    ] {
        assert!(page.contains(&format!("<section id=\"{id}\">")), "{id}");
        assert!(page.contains(&format!("href=\"#{id}\"")), "{id}");
    }
    for said in [
        "flat 1.2x (1.1..1.3)",
        "two-thirds",
        "pre-empted on the way out of writev",
        "Shift function",
        "Then and now",
        "17.3 us",
        "24 s usual, 120 s worst",
        "microcode",
        "stopgap check --only &#39;it&#39;\\&#39;&#39;s&#39; --seed 11",
        "kernel (differs)",
        "A line ends where nobody watched",
        "record-1.json: A healthy machine at rest does not show this. See what it does to latency: sudo stopgap probe",
    ] {
        assert!(page.contains(said), "{said}");
    }
    // The doubt leads: the warning of different machines stands before any verdict.
    let warned = page.find("2 different machines").expect("a warning");
    assert!(warned < page.find("flat 1.2x").expect("a verdict"));
    let pictures = page.matches("<svg role=\"img\"").count();
    assert!(pictures > 20, "{pictures}");
    assert_eq!(page.matches("<figure class=\"chart\">").count(), pictures);
    assert_eq!(page.matches("<details><summary>Figures").count(), pictures);
    assert!(
        !page.contains("NaN") && !page.contains("inf,"),
        "a place that is no number"
    );
    assert!(!page.contains("could not be drawn"));
}

#[test]
fn text_of_records_is_shown_and_never_obeyed() {
    let mut all = sources();
    // Few samples: each text is tried by reading the whole again.
    for source in &mut all {
        source.name = HOSTILE.to_owned();
        source.document = match &source.document {
            Document::Run(it) => {
                let mut small = it.as_ref().clone();
                for answer in &mut small.answers {
                    answer.series.truncate(3);
                }
                Document::Run(Box::new(hostile(&small)))
            }
            Document::Replay(it) => Document::Replay(Box::new(hostile(it.as_ref()))),
            Document::Explain(it) => Document::Explain(Box::new(hostile(it.as_ref()))),
            Document::Compare(it) => Document::Compare(Box::new(hostile(it.as_ref()))),
            Document::History(it) => Document::History(Box::new(hostile(it.as_ref()))),
            Document::Other(it) => Document::Other(it.clone()),
        };
    }
    let page = page(&all);
    harmless(&page);
    assert!(page.contains("&lt;script src=https://stopgap.invalid/x.js&gt;"));
    assert!(page.contains("\\u{202e}") && !page.contains('\u{202e}'));
    // The names of processes, tasks and disks, too.
    assert!(page.contains("\\u{1b}[2J\\u{1b}]0;x\\u{7}\\u{a}\\u{d}&quot;"));
    assert!(page.chars().all(|c| c == '\n' || !c.is_control()));
    let only = stopgap_report::html::page(&all[2..3]);
    harmless(&only);
    assert!(only.contains("<h3>Right now</h3>"));
    let top = only.split("<section").next().expect("a first part");
    assert!(top.matches("&lt;script src=").count() > 10, "{top}");
    let style = Style {
        width: 100,
        colour: false,
        verbose: false,
    };
    assert!(!terminal::screen(&all, style).contains('\u{202e}'));
}

#[test]
fn figures_that_no_picture_can_hold_are_left_out_of_it() {
    let mut odd = run("6.12", 5);
    let extremes = [0.0, -3.0, 1e300, -1e300, 5e-324, f64::MAX];
    let blocks = odd
        .answers
        .iter_mut()
        .flat_map(|answer| &mut answer.series)
        .flat_map(|series| &mut series.blocks);
    for (block, extreme) in blocks.zip(extremes.into_iter().cycle()) {
        block.value = extreme;
    }
    let page = page(&[Source {
        name: "odd".to_owned(),
        document: Document::Run(Box::new(odd)),
    }]);
    harmless(&page);
    assert!(!page.contains("NaN") && !page.contains("could not be drawn"));
}

#[test]
fn many_runs_of_many_cells_stay_below_3_mb() {
    let one = run("6.12", 100);
    let records = (0..40).map(|index| {
        let mut run = one.clone();
        // Each question has as many cells as a long probe has.
        for answer in &mut run.answers {
            let first = answer.series.clone();
            for cell in 0..20_u64 {
                answer
                    .series
                    .extend(first.iter().take(6).cloned().map(|mut series| {
                        series.parameters.insert("cell".to_owned(), cell.into());
                        for block in &mut series.blocks {
                            block.histogram = None;
                        }
                        series
                    }));
            }
        }
        Source {
            name: format!("{index}"),
            document: Document::Run(Box::new(run)),
        }
    });
    let page = page(&records.collect::<Vec<_>>());
    assert!(page.len() < 3_000_000, "{} bytes", page.len());
    assert!(page.contains("40 records"));
}

#[test]
fn the_terminals_form_has_every_verdict() {
    let style = Style {
        width: 100,
        colour: false,
        verbose: false,
    };
    let text = terminal::screen(&sources(), style);
    for said in [
        "placement: mapping memory is as fast beside 40,000 mappings",
        "reclaim: beside pinned memory the kernel scans 1.20x the pages",
        "FOUND STALLS: 2 operations",
        "try: hold less",
        "median",
    ] {
        assert!(text.contains(said), "{said}\n{text}");
    }
}

use crate::functions::Profile;
use crate::testing::profile;
use proptest::prelude::*;

use stopgap_report::html::flame::{MOST_FRAMES, MOST_ROWS};

use super::{figure, instructions};

/// Left, width, class and text of each frame.
fn frames(html: &str) -> Vec<(f64, f64, String, String)> {
    let start = html.find("<div class=\"flame\"").unwrap();
    let end = start + html[start..].find("</div>").unwrap() + "</div>".len();
    let document = roxmltree::Document::parse(&html[start..end]).unwrap();
    let frame = |node: roxmltree::Node<'_, '_>| {
        let style = node.attribute("style").unwrap();
        let at = |name: &str| -> f64 {
            let value = style.split(';').find_map(|part| part.strip_prefix(name));
            value.unwrap().trim_end_matches('%').parse().unwrap()
        };
        let shown = node.first_element_child().unwrap();
        let class = shown.attribute("class").unwrap().to_owned();
        let text = shown.text().unwrap_or_default().to_owned();
        (at("--l:"), at("--w:"), class, text)
    };
    let frames = document.root_element().children();
    frames.map(frame).collect()
}

#[test]
fn a_frame_is_as_wide_as_its_share_and_coloured_by_what_it_grew() {
    let stacks = [
        ("entry", 100),
        ("entry do_mmap", 380),
        ("entry do_munmap", 520),
    ];
    let before = profile(10, &stacks);
    let stacks = [
        ("entry", 100),
        ("entry do_mmap", 1_000),
        ("entry do_munmap", 500),
        ("exit", 400),
    ];
    let after = profile(10, &stacks);
    let html = figure("map", &before, &after).unwrap();
    let expected = [
        (0.0, 80.0, "grew".to_owned(), "entry".to_owned()),
        (0.0, 50.0, "grew".to_owned(), "do_mmap".to_owned()),
        (50.0, 25.0, "shrank".to_owned(), "do_munmap".to_owned()),
        (80.0, 20.0, "grew".to_owned(), "exit".to_owned()),
    ];
    assert_eq!(frames(&html), expected);
    assert!(html.contains(
        "do_mmap: 100 guest instructions an operation with all it calls, 100 its own; +62 to before"
    ));
    assert!(html.contains("200 in all (earlier: 100)"), "{html}");
}

#[test]
fn the_same_is_grey() {
    let one = profile(3, &[("a b", 100), ("a", 1)]);
    let html = figure("map", &one, &one).unwrap();
    assert!(frames(&html).iter().all(|frame| frame.2 == "same"));
}

#[test]
fn names_are_shown_and_never_obeyed() {
    let one = profile(1, &[("<script>alert(1)</script>&\"", 100)]);
    let html = figure("</svg><b>", &one, &one).unwrap();
    assert!(!html.contains("<script"));
    assert_eq!(frames(&html)[0].3, "<script>alert(1)</script>&\"");
}

#[test]
fn of_nothing_there_is_no_picture() {
    let some = profile(1, &[("a", 1)]);
    assert!(figure("map", &some, &Profile::default()).is_none());
    assert!(figure("map", &Profile::default(), &some).is_none());
}

#[test]
fn figures() {
    let amounts = [0.0, 62.0, -62.5, 1_234.567, 0.999, -0.001].map(instructions);
    assert_eq!(amounts, ["0", "62", "-62.5", "1,234.57", "1", "0"]);
}

proptest! {
    /// Frames of one row never overlap, and none reaches out of its caller or of the picture.
    #[test]
    fn frames_stand_beside_each_other(
        stacks in prop::collection::vec((prop::collection::vec("[a-h]", 1..8), 1u64..100_000), 1..40),
    ) {
        let one = Profile::of(7, stacks);
        let html = figure("x", &one, &one).unwrap();
        let frames = frames(&html);
        prop_assert!(frames.len() <= MOST_FRAMES);
        for (x, width, _, _) in &frames {
            prop_assert!(*x >= 0.0 && x + width <= 100.002, "{} {}", x, width);
        }
    }
}

/// A recursion without end, and more functions than there is room for.
#[test]
fn a_picture_has_its_bounds() {
    let deep = Profile::of(1, [(vec!["again".to_owned(); 10_000], 5)]);
    assert_eq!(frames(&figure("x", &deep, &deep).unwrap()).len(), MOST_ROWS);
    let wide = Profile::of(1, (0..10_000).map(|n| (vec![format!("f{n}")], 1)));
    assert!(frames(&figure("x", &wide, &wide).unwrap()).is_empty());
    let stacks =
        (0..200).flat_map(|n| (0..40).map(move |depth| (vec![format!("f{n}"); depth + 1], 1)));
    let large = Profile::of(1, stacks);
    assert_eq!(
        frames(&figure("x", &large, &large).unwrap()).len(),
        MOST_FRAMES
    );
}

use super::*;

fn sets() -> Vec<Set> {
    [
        ("iguana", &b"50\n200\n150\n400\n750\n400\n150\n"[..]),
        ("chameleon", b"150\n400\n720\n500\n930\n"),
    ]
    .map(|(name, text)| Set::read(name, text, &Column::default()).unwrap())
    .into()
}

/// The example of the original's manual; the row of second values is not in its picture, which is cut.
#[test]
fn the_manuals_example() {
    let options = Options {
        plot: Some(60),
        separate_bars: true,
        ..Options::default()
    };
    let text = "\
x iguana
+ chameleon
+------------------------------------------------------------+
|       x               x                                    |
|x      *  x            *      +              + x           +|
| |________M______A_______________|                          |
|             |________________M__A___________________|      |
+------------------------------------------------------------+
    N           Min           Max        Median           Avg        Stddev
x   7            50           750           200           300     238.04761
+   5           150           930           500           540     299.08193
No difference proven at 95.0% confidence
";
    assert_eq!(Report::new(&sets(), options).to_string(), text);
    let confidence = Confidence::C80;
    let options = Options {
        confidence,
        ..options
    };
    let lower = Report::new(&sets(), options).to_string();
    let lines = "Difference at 80.0% confidence\n\t240 +/- 212.215\n\t80% +/- 70.7384%\n\t(Student's t, pooled s = 264.159)\n";
    assert!(lower.ends_with(lines), "{lower}");
}

/// ```text
/// first set 1 1 1 2 3      x        three high, where the second set,
/// later set 1 2 3 4 5      x        which is one high, would cut it
/// ```
#[test]
fn the_picture_has_its_full_height() {
    let sets = [
        Set::new("a", vec![1.0, 1.0, 1.0, 2.0, 3.0]).unwrap(),
        Set::new("b", vec![1.0, 2.0, 3.0, 4.0, 5.0]).unwrap(),
    ];
    let options = Options {
        plot: Some(9),
        ..Options::default()
    };
    let text = Report::new(&sets, options).to_string();
    let rows: Vec<&str> = text.lines().skip(3).take(3).collect();
    assert_eq!(rows, ["| x       |", "| x       |", "| ** * + +|"]);
}

#[test]
fn no_span_and_too_much_of_it_have_no_picture() {
    let of = |values: Vec<f64>| {
        let sets = [Set::new("a", values).unwrap()];
        Report::new(&sets, Options::default()).to_string()
    };
    assert!(of(vec![2.0; 4]).contains("[no plot, span is zero width]\n"));
    assert!(of(vec![-1e308, 0.0, 1e308]).contains("[no plot, values are too far apart"));
    let odd = of(vec![1.0, 1.0, f64::from_bits(1.0f64.to_bits() + 1)]);
    assert_eq!(odd.lines().filter(|line| line.starts_with('x')).count(), 2);
}

#[test]
fn what_is_not_asked_for_is_not_printed() {
    let sets = sets();
    let plain = Options {
        plot: None,
        quiet: true,
        relative: false,
        ..Options::default()
    };
    let text = Report::new(&sets, plain).to_string();
    assert_eq!(text.lines().count(), 2);
    let many: Vec<Set> = std::iter::repeat_n(sets[0].clone(), 9).collect();
    let text = Report::new(&many, plain).to_string();
    let symbols: String = text
        .lines()
        .filter_map(|line| line.chars().next())
        .collect();
    assert_eq!(symbols, "x+*%#@O");
    // A million columns are not made.
    let wide = Options {
        plot: Some(usize::MAX),
        ..Options::default()
    };
    assert!(Report::new(&sets, wide).to_string().len() < 100_000);
}

/// As Debian's program reads them.
#[test]
fn white_space_at_a_lines_end_is_no_field() {
    let column = |delimiters: &str| Column {
        number: 1,
        delimiters: delimiters.to_owned(),
    };
    let set = Set::read("a", b"1 \r\n2\t\n3 4\r\n4\r\n", &column(" \t")).unwrap();
    assert_eq!(
        set,
        Set::read("a", b"1\n2\n3\n4\n", &column(" \t")).unwrap()
    );
    let by_comma = Set::read("a", b"1 \n2\t\n3\r\n4\n", &column(",")).unwrap();
    assert_eq!(set, by_comma);
}

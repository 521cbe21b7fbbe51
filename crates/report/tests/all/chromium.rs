//! The page in a real browser (Debian's package `chromium`): it says nothing on its console, asks nobody for anything, each
//! chart shows marks and axis titles with units, and nothing is cut or lies over something else, wide, narrow and dark. A check
//! has its headline first, folds all but one picture per question, and prints on four pages.
//!
//! Pictures of it are left in the target directory, for people to look at.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stopgap_report::html::{Document, Source, page};
use stopgap_stats::overall::State;
use stopgap_stats::record::Run;
use stopgap_testing::{Skip, skip};

use crate::common::{explain, run, run_with_verdict, sources};

/// A browser on a busy machine takes seconds to begin.
const PATIENCE: Duration = Duration::from_secs(90);

/// Measures the laid-out page from within; its findings become the text of the page.
const LOOK: &str = r#"<script>
addEventListener('load', () => {
  const found = {charts: [], faults: []};
  const fault = (what) => found.faults.push(what);
  const shown = (box) => box.width > 0 && box.height > 0;
  const over = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
  const light = (colour) => {
    const most = colour.startsWith('color(') ? 1 : 255;
    const [r, g, b] = colour.match(/[\d.]+/g).map((v) => { v /= most; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const paper = light(getComputedStyle(document.documentElement).backgroundColor);
  const between = (one, other) => { const [a, b] = [light(one), light(other)]; return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05); };
  const contrast = (colour) => between(colour, getComputedStyle(document.documentElement).backgroundColor);
  found.paper = paper;
  const first = document.querySelector('main > *');
  found.headline = first && first.matches('.headline') ? first.textContent : '';
  found.signs = [...document.querySelectorAll('ul.answers .state')].map((e) => e.textContent);
  found.legend = [...document.querySelectorAll('main > ul.legend .state')].map((e) => e.textContent);
  found.pictures = {};
  for (const section of document.querySelectorAll('section'))
    found.pictures[section.id] = [...section.querySelectorAll('figure')].filter((e) => !e.closest('details')).length;
  const details = [...document.querySelectorAll('details')];
  found.folded = details.filter((e) => !e.open).length;
  found.open = details.length - found.folded;
  for (const e of details) e.open = true;
  found.resources = performance.getEntriesByType('resource').map((e) => e.name);
  if (document.documentElement.scrollWidth > innerWidth) fault('the page is ' + document.documentElement.scrollWidth + ' wide');
  // Nothing matches `:focus` until the browser has given its window the focus, which a busy machine does late: a class of the
  // same rules stands for it.
  for (const sheet of document.styleSheets)
    for (const rule of [...sheet.cssRules])
      if ((rule.selectorText || '').includes(':focus'))
        sheet.insertRule(rule.cssText.replace(/:focus(-visible)?/g, '.focused'), sheet.cssRules.length);
  found.flames = [...document.querySelectorAll('.flame')].map((flame) => {
    const box = flame.getBoundingClientRect();
    const name = flame.getAttribute('aria-label').split(';')[0];
    if (box.width < 250 || box.width > innerWidth) fault(name + ': ' + box.width + ' wide');
    const frames = [...flame.querySelectorAll('i')];
    let cut = 0;
    for (const frame of frames) {
      const shape = frame.firstElementChild, style = getComputedStyle(shape), b = shape.getBoundingClientRect();
      if (b.left < box.left - 1 || b.right > box.right + 1 || b.bottom > box.bottom + 1) fault(name + ': outside: ' + frame.title);
      if (b.height < 5 || parseFloat(style.fontSize) < 8.5) fault(name + ': small: ' + frame.title);
      if (between(style.color, style.backgroundColor) < 4.5) fault(name + ': pale: ' + frame.title);
      const shown = shape.textContent && parseFloat(style.textIndent) < 100;
      if (shown && shape.scrollWidth > shape.clientWidth) {
        cut += 1;
        if (b.width < 18) fault(name + ': no room for an ellipsis: ' + frame.title);
      }
      if (style.textOverflow !== 'ellipsis') fault(name + ': cut without a mark: ' + frame.title);
      if (!frame.title.startsWith(shape.textContent)) fault(name + ': its text is not all of its name: ' + shape.textContent);
    }
    // Whoever cannot point at a frame gives it the focus.
    frames[0].focus();
    if (document.activeElement !== frames[0]) fault(name + ': takes no focus');
    frames[0].classList.add('focused');
    const said = getComputedStyle(frames[0], '::after').content;
    if (said !== 'attr(title)' && said !== JSON.stringify(frames[0].title)) fault(name + ': says nothing: ' + said);
    return {frames: frames.length, cut, rows: flame.closest('figure').querySelectorAll('tbody tr').length};
  });
  for (const svg of document.querySelectorAll('svg[role=img]')) {
    const name = svg.getAttribute('aria-label').split('.')[0];
    const box = svg.getBoundingClientRect();
    const texts = [...svg.querySelectorAll('text')];
    const words = texts.map((t) => t.textContent.trim());
    const inked = [...svg.querySelectorAll('*')].filter((e) => ['fill', 'stroke'].some((a) =>
      /^#(0072B2|D55E00|009E73|CC79A7|E69F00|010101)$/.test(e.getAttribute(a) || '')));
    found.charts.push({name, marks: inked.length, x: svg.dataset.x, y: svg.dataset.y,
      titled: words.includes(svg.dataset.x) && (words.includes(svg.dataset.y) || svg.dataset.y === ''),
      rows: svg.closest('figure').querySelectorAll('tbody tr').length});
    if (box.width < 250 || box.width > innerWidth) fault(name + ': ' + box.width + ' wide');
    texts.forEach((text, i) => {
      const b = text.getBoundingClientRect();
      if (b.left < box.left - 1 || b.right > box.right + 1 || b.top < box.top - 1 || b.bottom > box.bottom + 1)
        fault(name + ': cut: ' + words[i]);
      if (b.height < 5 || parseFloat(getComputedStyle(text).fontSize) * box.width / svg.viewBox.baseVal.width < 8.5)
        fault(name + ': small: ' + words[i]);
      if (contrast(getComputedStyle(text).fill) < 4.5) fault(name + ': pale: ' + words[i]);
      texts.slice(i + 1).forEach((other, j) => {
        if (over(b, other.getBoundingClientRect())) fault(name + ': ' + words[i] + ' lies over ' + words[i + 1 + j]);
      });
    });
    for (const e of inked) {
      const style = getComputedStyle(e);
      const colour = style.fill !== 'none' && e.getAttribute('fill') !== 'none' && e.hasAttribute('fill') ? style.fill : style.stroke;
      if (contrast(colour) < 3) { fault(name + ': pale ink ' + colour); break; }
    }
  }
  for (const e of document.querySelectorAll('p,li,summary,th,td,h1,h2,h3,a')) {
    const b = e.getBoundingClientRect();
    const scrolls = innerWidth > 640 && e.closest('.scroll');
    if (shown(b) && !scrolls && !e.matches('.skip') && b.right > innerWidth + 1) fault('beyond the edge: ' + e.textContent.slice(0, 60));
    if (shown(b) && !e.matches('tr.differs *') && contrast(getComputedStyle(e).color) < 4.5) fault('pale: ' + e.textContent.slice(0, 60));
  }
  for (const e of document.querySelectorAll('.scroll'))
    if (innerWidth <= 640 && e.scrollWidth > e.clientWidth + 1) fault('cut off: ' + e.getAttribute('aria-label'));
  const keys = [...document.querySelectorAll('.scroll,pre')].filter((e) => e.tabIndex !== 0).length;
  if (keys) fault(keys + ' regions that keys cannot reach');
  document.documentElement.textContent = 'FOUND' + JSON.stringify(found) + 'END';
});
</script>"#;

/// Runs the browser on a page; standard output and standard error. `None` where it is not installed.
fn chromium(folder: &Path, page: &Path, flags: &[&str]) -> Option<(String, String)> {
    let (out, err) = (folder.join("stdout"), folder.join("stderr"));
    let file = |path: &PathBuf| Stdio::from(fs::File::create(path).expect("a folder of ours"));
    let begun = Command::new("chromium")
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--no-first-run",
        ])
        .args([
            "--disable-background-networking",
            "--disable-component-update",
            "--enable-logging=stderr",
        ])
        .arg(format!(
            "--user-data-dir={}",
            folder.join("profile").display()
        ))
        .args(flags)
        .arg(format!("file://{}", page.display()))
        .stdout(file(&out))
        .stderr(file(&err))
        .spawn();
    let mut child = match begun {
        Ok(child) => child,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(error) => panic!("chromium: {error}"),
    };
    let begin = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("it is our child") {
            break status;
        }
        if begin.elapsed() > PATIENCE {
            let _ = child.kill(); // it may have ended just now
            let _ = child.wait();
            panic!("chromium has not ended after {PATIENCE:?}");
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let read = |path: &PathBuf| {
        String::from_utf8_lossy(&fs::read(path).expect("it was written")).into_owned()
    };
    let (out, err) = (read(&out), read(&err));
    assert!(status.success(), "chromium: {status}\n{err}");
    Some((out, err))
}

/// Returns the findings of [`LOOK`].
fn look(folder: &Path, html: &str, flags: &[&str]) -> Value {
    // The page forbids scripts; here, one is asked for.
    let begin = html
        .find("<meta http-equiv=\"Content-Security-Policy\"")
        .expect("a policy");
    let end = begin + html[begin..].find('>').expect("its end") + 1;
    let with = format!("{}{LOOK}{}", &html[..begin], &html[end..]);
    let place = folder.join("looked-at.html");
    fs::write(&place, with).expect("a folder of ours");
    let mut all = vec!["--virtual-time-budget=5000", "--dump-dom"];
    all.extend(flags);
    let (out, _) = chromium(folder, &place, &all).expect("it ran before");
    let found = out
        .split_once("FOUND")
        .and_then(|(_, rest)| rest.rsplit_once("END"))
        .unwrap_or_else(|| panic!("no findings in: {}", &out[..out.len().min(500)]));
    let text = found
        .0
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&");
    serde_json::from_str(&text).expect("JSON of our own")
}

/// Returns a folder of ours for the test of this name.
fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder); // of the last time
    fs::create_dir_all(&folder).expect("the target directory is ours");
    folder
}

/// Returns how many sheets of paper a page takes; `None` where the browser is not installed.
fn sheets(folder: &Path, html: &str) -> Option<usize> {
    let (place, paper) = (folder.join("printed.html"), folder.join("printed.pdf"));
    fs::write(&place, html).expect("a folder of ours");
    let print = format!("--print-to-pdf={}", paper.display());
    chromium(folder, &place, &[&print, "--no-pdf-header-footer"])?;
    let pdf = fs::read(&paper).expect("it was printed");
    let pages = pdf.windows(11).filter(|at| *at == b"/Type /Page");
    let trees = pdf.windows(12).filter(|at| *at == b"/Type /Pages");
    Some(pages.count() - trees.count())
}

/// Returns the page of one run.
fn page_of(run: &Run) -> String {
    page(&[Source {
        name: "check.json".to_owned(),
        document: Document::Run(Box::new(run.clone())),
    }])
}

#[test]
fn a_check_answers_first_folds_the_rest_and_prints_on_four_pages() {
    let folder = folder("report-of-a-check");
    // The second is as records were before they had a verdict.
    for run in [run_with_verdict("6.18.44", 21), run("6.12.1", 22)] {
        let html = page_of(&run);
        let Some(printed) = sheets(&folder, &html) else {
            return skip(&Skip::program("chromium"));
        };
        assert!((2..=4).contains(&printed), "{printed} pages");
        let overall = stopgap_report::overall::of(&run);
        let rows = overall.now.iter().chain(&overall.causes);
        let signs: Vec<&str> = rows
            .map(|row| match row.state {
                State::Ok => "ok",
                State::Look => "!",
                State::Cause => "!!",
                State::Unknown => "?",
            })
            .collect();
        assert!(signs.len() >= 4, "{signs:?}");
        for flags in [
            &["--window-size=390,9000"][..],
            &["--window-size=1280,9000"],
            &[
                "--window-size=390,9000",
                "--blink-settings=preferredColorScheme=0",
            ],
        ] {
            let found = look(&folder, &html, flags);
            assert_eq!(found["faults"], json!([]), "{flags:?}");
            let headline = found["headline"].as_str().unwrap_or_default();
            assert!(headline.ends_with(&overall.text), "{flags:?}: {headline}");
            assert_eq!(found["signs"], json!(signs), "{flags:?}");
            assert_eq!(found["legend"], json!(["ok", "!", "!!", "?"]));
            for question in ["placement", "roundtrip", "chunks", "reclaim"] {
                assert_eq!(found["pictures"][question], 1, "{flags:?}: {question}");
            }
            assert_eq!(found["open"], 0, "{flags:?}: details that are not folded");
            assert!(found["folded"].as_u64() > Some(12), "{flags:?}: {found}");
        }
    }
    fs::remove_dir_all(folder).expect("a folder of ours");
}

fn explained() -> Source {
    Source {
        name: "trace.json".to_owned(),
        document: explain(),
    }
}

/// What moved between 6 traces a side: one wait of three did, some hops have long or hostile names, and there is CPU time.
fn moved() -> Source {
    use stopgap_report::html::moved::record;
    use stopgap_stats::compare::moved::{Account, Family, Key, Options, moved};
    let side = |fsync: f64| -> Vec<Account> {
        let account = |n: u32| {
            let scatter = 1.0 + f64::from(n * 7 % 6) / 20.0;
            let long = format!("behind requests of {}", "kworker/flush-".repeat(8));
            let hostile = "<script>alert(1)</script>";
            let figures = [
                (Family::Chain, vec!["ops"], fsync + 90.0),
                (Family::Chain, vec!["ops", "was in fsync"], fsync),
                (
                    Family::Chain,
                    vec!["ops", "was in fsync", &long],
                    fsync * 0.7,
                ),
                (
                    Family::Chain,
                    vec!["ops", "was in fsync", "disk vda"],
                    fsync * 0.3,
                ),
                (Family::Chain, vec!["ops", "waited for the lock at *"], 60.0),
                (
                    Family::Chain,
                    vec!["ops", "waited for the lock at *", hostile],
                    60.0,
                ),
                (Family::Chain, vec!["ops", "waited for a CPU"], 30.0),
                (Family::Call, vec!["fsync"], fsync),
                (Family::Count, vec!["fsync"], fsync),
                (Family::Below, vec!["main"], fsync / 2.0 + 200.0),
                (Family::Below, vec!["flush"], fsync / 2.0),
            ];
            let owned = |path: &[&str]| path.iter().map(|&part| part.to_owned()).collect();
            let figures = figures.iter().map(|(family, path, ms)| {
                let key = Key {
                    family: *family,
                    path: owned(path),
                };
                (key, ms * scatter)
            });
            let stacks = [
                (&["ops", "user mode", "main"][..], 200.0),
                (&["ops", "user mode", "main", "flush"], fsync / 2.0),
            ];
            Account {
                name: format!("{n}.parquet"),
                length_ns: Some(1_000_000_000),
                figures: figures.collect(),
                cpu: stacks.iter().map(|(path, ms)| (owned(path), *ms)).collect(),
                ..Account::default()
            }
        };
        (0..6).map(account).collect()
    };
    let all = moved(&[side(50.0), side(90.0)], Options::default());
    assert!(all.moved > 3, "{all:#?}");
    assert_eq!(all.pictures.len(), 2);
    Source {
        name: "moved.json".to_owned(),
        document: Document::Other(Box::new(record(&all, "moved.json"))),
    }
}

/// Each kind of record alone: its verdict is first, no more than one picture is open, nothing is cut, and it prints on four pages.
#[test]
fn each_kind_of_page_begins_with_its_verdict() {
    let folder = folder("report-kinds");
    for source in sources().into_iter().skip(3).chain([moved()]) {
        let name = source.name.clone();
        let html = page(&[source]);
        let Some(printed) = sheets(&folder, &html) else {
            return skip(&Skip::program("chromium"));
        };
        assert!((1..=4).contains(&printed), "{name}: {printed} pages");
        assert!(html.len() < 1_000_000, "{name}: {} bytes", html.len());
        for flags in [
            &["--window-size=390,9000"][..],
            &["--window-size=1280,9000"],
            &[
                "--window-size=390,9000",
                "--blink-settings=preferredColorScheme=0",
            ],
        ] {
            let found = look(&folder, &html, flags);
            assert_eq!(found["faults"], json!([]), "{name}: {flags:?}");
            let headline = found["headline"].as_str().unwrap_or_default();
            assert!(headline.len() > 5, "{name}: {headline}");
            for (id, open) in found["pictures"].as_object().expect("sections") {
                assert!(open.as_u64() <= Some(1), "{name}: {id} has {open} pictures");
            }
            assert_eq!(found["open"], 0, "{name}: details that are not folded");
        }
    }
    fs::remove_dir_all(folder).expect("a folder of ours");
}

#[test]
fn a_broken_page_is_found() {
    let folder = folder("report-broken");
    let html = page_of(&run_with_verdict("6.18.44", 21));
    let unfolded = html.replace("<details>", "<details open>");
    let Some(printed) = sheets(&folder, &unfolded) else {
        return skip(&Skip::program("chromium"));
    };
    assert!(printed > 4, "{printed} pages although nothing is folded");
    let narrow = ["--window-size=390,9000"];
    assert!(look(&folder, &unfolded, &narrow)["open"].as_u64() > Some(12));
    // As tables were before rows became blocks: the last columns lay beyond the edge.
    let wide = html.replace("@media(max-width:640px)", "@media(max-width:1px)");
    assert_ne!(wide, html);
    let faults = look(&folder, &wide, &narrow)["faults"].to_string();
    assert!(faults.contains("cut off: "), "{faults}");
    // As flame graphs were: a name ended where its frame did, and only who pointed at it saw the rest.
    let flames = page(&[explained()]);
    let clipped = flames.replace("text-overflow:ellipsis", "text-overflow:clip");
    let faults = look(&folder, &clipped, &narrow)["faults"].to_string();
    assert!(faults.contains("cut without a mark: "), "{faults}");
    let silent = flames.replace("content:attr(title)", "content:none");
    let faults = look(&folder, &silent, &narrow)["faults"].to_string();
    assert!(faults.contains("says nothing: "), "{faults}");
    let headless = html.replace("class=\"headline\"", "class=\"verdict\"");
    assert_eq!(look(&folder, &headless, &narrow)["headline"], "");
    fs::remove_dir_all(folder).expect("a folder of ours");
}

#[test]
fn a_browser_shows_every_chart_and_asks_nobody() {
    let folder = folder("report");
    let place = folder.join("report.html");
    let mut all = sources();
    all[0].name = "https://stopgap.invalid/<img src=https://stopgap.invalid/y>.json".to_owned();
    let html = page(&all);
    fs::write(&place, &html).expect("a folder of ours");

    let net = folder.join("net.json");
    let log = format!("--log-net-log={}", net.display());
    let wide = folder.join("1280.png");
    let shot = format!("--screenshot={}", wide.display());
    let Some((_, said)) = chromium(&folder, &place, &[&log, &shot, "--window-size=1280,9000"])
    else {
        return skip(&Skip::program("chromium"));
    };
    let console: Vec<&str> = said
        .lines()
        .filter(|line| line.contains("CONSOLE"))
        .collect();
    assert!(console.is_empty(), "{console:?}");
    // The browser itself asks for updates; nothing in the page is asked for.
    let asked = fs::read_to_string(&net).expect("a log was written");
    assert!(
        !asked.contains("stopgap.invalid"),
        "a request left the page"
    );

    let narrow = folder.join("390.png");
    let dark = folder.join("dark.png");
    for (picture, flags) in [
        (&narrow, vec!["--window-size=390,16000"]),
        (
            &dark,
            vec![
                "--window-size=1280,9000",
                "--blink-settings=preferredColorScheme=0",
            ],
        ),
    ] {
        let shot = format!("--screenshot={}", picture.display());
        let mut all = vec![shot.as_str()];
        all.extend(&flags);
        chromium(&folder, &place, &all);
    }
    for picture in [&wide, &narrow, &dark] {
        let bytes = fs::metadata(picture).map_or(0, |there| there.len());
        assert!(bytes > 50_000, "{}: {bytes} bytes", picture.display());
    }
    // Dark is as wide as light is; light is as light when narrow.
    for (how, flags) in [
        ("narrow", vec!["--window-size=390,9000"]),
        (
            "dark",
            vec![
                "--window-size=1280,9000",
                "--blink-settings=preferredColorScheme=0",
            ],
        ),
    ] {
        let found = look(&folder, &html, &flags);
        let faults = found["faults"].as_array().expect("a list");
        assert!(
            faults.is_empty(),
            "{how}: {} faults: {faults:#?}",
            faults.len()
        );
        let resources = found["resources"].as_array().expect("a list");
        assert!(resources.is_empty(), "{how}: {resources:?}");
        let paper = found["paper"].as_f64().expect("a number");
        assert!((how == "dark") == (paper < 0.2), "{how}: paper {paper}");
        let flames = found["flames"].as_array().expect("a list");
        let frames = |flame: &Value| flame["frames"].as_u64();
        let drawn = flames.iter().all(|flame| frames(flame) >= Some(3));
        assert!(flames.len() == 3 && drawn, "{how}: {flames:?}");
        let charts = found["charts"].as_array().expect("a list");
        assert!(charts.len() > 20, "{how}: {} charts", charts.len());
        for chart in charts {
            assert!(
                chart["marks"].as_u64() > Some(0),
                "{how}: no mark in {chart}"
            );
            assert!(
                chart["rows"].as_u64() > Some(0),
                "{how}: no table of {chart}"
            );
            assert_eq!(chart["titled"], true, "{how}: {chart}");
            let x = chart["x"].as_str().expect("a title");
            let y = chart["y"].as_str().expect("a title");
            // N is a number of mappings; rows are words.
            assert!(x.contains(", "), "{how}: no unit in '{x}' of {chart}");
            assert!(
                y.contains(", ") || y.is_empty(),
                "{how}: no unit in '{y}' of {chart}"
            );
        }
    }
    // Only the pictures stay, for people to look at.
    for (name, is) in [
        ("profile", true),
        ("net.json", false),
        ("looked-at.html", false),
    ] {
        let place = folder.join(name);
        let _ = if is {
            fs::remove_dir_all(place)
        } else {
            fs::remove_file(place)
        };
    }
}

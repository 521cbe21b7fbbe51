//! `stopgap-bench screens`: what the documents show is what the commands print.
//!
//! Two kinds of text are read. The README and `docs/` name commands: each is parsed, and run as written unless a comment before
//! its block says why not (see [`documents`]). Screens of models, which are the same on each machine, are compared.
//! `checks/capabilities/` lists what a user can do, each with a command; there every block is run, and all that a command prints
//! is compared.

mod documents;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use clap::CommandFactory;
use stopgap_cli::{Failure, print};
use stopgap_kernel::signals;

use crate::Args;
use crate::common::{Stopgap, failed, folder, verdict};
use documents::{Marks, When};

/// The longest that a command may take.
const SECONDS: &str = "120";
/// The longest that a command may take that is run at night only.
const NIGHT_SECONDS: &str = "1200";

#[derive(clap::Args)]
pub(crate) struct Flags {
    /// Documents (*.md) and folders of them [default: README.md, docs and checks/capabilities, below the current folder].
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Only commands that contain this text.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Run the commands that documents mark as `at night`, too: minutes each.
    #[arg(long)]
    night: bool,
    /// Write what is printed into the lists of capabilities where it differs; read the change before you commit it.
    #[arg(long)]
    accept: bool,
    #[command(flatten)]
    stopgap: Stopgap,
}

/// How a block is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Fence {
    /// Every number is as good as any other.
    numbers: bool,
    /// Whether only root can run it.
    root: bool,
}

/// A command of a document and what is printed below it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Screen {
    line: usize,
    fence: Fence,
    marks: Marks,
    command: String,
    status: i32,
    below: String,
}

/// The kind of block that a line of a document belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Block {
    Text,
    /// A block of another language.
    Other,
    /// Commands after `$ `, and what they print.
    Console(Fence),
    /// A script of the shell.
    Script(Fence),
}

impl Block {
    /// Reads the words behind the fence that begins a block.
    fn begins(info: &str, scripts: bool) -> Block {
        let mut words = info.split_whitespace();
        let language = words.next();
        let (mut numbers, mut root) = (false, false);
        for word in words {
            numbers |= word == "numbers";
            root |= word == "root";
        }
        let fence = Fence { numbers, root };
        match language {
            Some("console") => Block::Console(fence),
            Some("sh") if scripts => Block::Script(fence),
            _ => Block::Other,
        }
    }
}

/// Returns the screens of a document, in order; with `scripts`, each `sh` block as one command, too.
fn screens(text: &str, scripts: bool) -> Vec<Screen> {
    let mut screens: Vec<Screen> = Vec::new();
    let (mut block, mut marks) = (Block::Text, Marks::default());
    let mut lines = text.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        if let Some(info) = line.strip_prefix("```") {
            block = match block {
                Block::Text => Block::begins(info, scripts),
                _ => Block::Text,
            };
            if let Block::Console(fence) | Block::Script(fence) = block {
                // Where a block begins, what follows belongs to no command.
                screens.push(Screen {
                    line: at + 1,
                    fence,
                    marks: std::mem::take(&mut marks),
                    ..Screen::default()
                });
            }
            continue;
        }
        let fence = match block {
            Block::Text => {
                marks.read(line);
                continue;
            }
            Block::Other => continue,
            Block::Script(_) => {
                let script = screens.last_mut().expect("the block has begun");
                script.command.push_str(line);
                script.command.push('\n');
                continue;
            }
            Block::Console(fence) => fence,
        };
        if let Some(command) = line.strip_prefix("$ ") {
            let marks = screens.last().expect("the block has begun").marks.clone();
            let mut command = command.to_owned();
            while command.ends_with('\\') {
                command.pop();
                command.push_str(lines.next().map_or("", |(_, more)| more.trim_start()));
            }
            let (command, note) = command.split_once("  # ").unwrap_or((&command, ""));
            screens.push(Screen {
                line: at + 1,
                fence,
                marks,
                command: command.trim().to_owned(),
                status: exit_status(note).unwrap_or(0),
                below: String::new(),
            });
        } else if let Some(screen) = screens.last_mut() {
            screen.below.push_str(line);
            screen.below.push('\n');
        }
    }
    screens.retain(|screen| !screen.command.is_empty());
    screens
}

fn exit_status(note: &str) -> Option<i32> {
    note.trim().strip_prefix("exit ")?.parse().ok()
}

/// The words of a text, however its lines are broken; where numbers do not count, `#` for each with its unit.
fn words(text: &str, fence: Fence) -> Vec<String> {
    let words = text.split_whitespace();
    if !fence.numbers {
        return words.map(str::to_owned).collect();
    }
    let mut all: Vec<String> = Vec::new();
    for word in words {
        let word = without_numbers(word);
        let bare = word.trim_end_matches([',', '.', ';', ':', ')']);
        match all.last_mut() {
            // `4.85 ms,`: the unit goes, the comma stays.
            Some(before) if before.ends_with('#') && UNITS.contains(&bare) => {
                before.push_str(&word[bare.len()..]);
            }
            _ => all.push(word),
        }
    }
    all
}

const UNITS: [&str; 12] = [
    "ns", "us", "ms", "s", "min", "h", "B", "KiB", "MiB", "GiB", "%", "x",
];

/// `#` for each number of a word and the unit that touches it.
fn without_numbers(word: &str) -> String {
    let mut out = String::new();
    let mut rest = word;
    while let Some(at) = rest.find(|letter: char| letter.is_ascii_digit()) {
        out.push_str(&rest[..at]);
        out.push('#');
        let bytes = rest.as_bytes();
        let mut end = at;
        // 12,345.6 is one number, and 0.7..1.2 two.
        while end < bytes.len()
            && (bytes[end].is_ascii_digit()
                || (matches!(bytes[end], b',' | b'.')
                    && bytes.get(end + 1).is_some_and(u8::is_ascii_digit)))
        {
            end += 1;
        }
        rest = &rest[end..];
        let letters = rest
            .find(|letter: char| !letter.is_ascii_alphabetic() && letter != '%')
            .unwrap_or(rest.len());
        if UNITS.contains(&&rest[..letters]) || matches!(&rest[..letters], "K" | "M" | "G" | "k") {
            rest = &rest[letters..];
        }
    }
    out + rest
}

/// The first part of a screen that is not what was printed. Parts lie between lines of `...`; a whole screen begins and ends
/// with what was printed, an excerpt anywhere.
fn difference(screen: &Screen, printed: &str, whole: bool) -> Option<String> {
    let printed = words(printed, screen.fence);
    let mut parts: Vec<Vec<&str>> = vec![Vec::new()];
    for line in screen.below.lines() {
        match line.trim() {
            "..." => parts.push(Vec::new()),
            _ => parts.last_mut().expect("one at least").push(line),
        }
    }
    let last = parts.len() - 1;
    let mut from = 0;
    for (index, lines) in parts.iter().enumerate() {
        let part = words(&lines.join("\n"), screen.fence);
        let rest = &printed[from..];
        let found = if whole && index == 0 && !rest.starts_with(&part) {
            None
        } else if whole && index == last {
            let at = rest.len().checked_sub(part.len());
            at.filter(|at| rest.ends_with(&part) && (last > 0 || *at == 0))
        } else if part.is_empty() {
            Some(0)
        } else {
            rest.windows(part.len()).position(|window| *window == part)
        };
        let Some(at) = found else {
            // From where the longest beginning of it stands: what is there instead.
            let place =
                |kept: usize| Some(rest.windows(kept).position(|w| *w == part[..kept])? + kept);
            let longest = (1..=part.len())
                .rev()
                .find_map(|kept| Some((kept, place(kept)?)));
            let (kept, instead) = longest.unwrap_or((0, 0));
            let some = |words: &[String]| words[..words.len().min(30)].join(" ");
            return Some(format!(
                "after {:?}\n  the document has: {}\n  printed is:       {}",
                some(&part[kept.saturating_sub(8)..kept]),
                some(&part[kept..]),
                some(&rest[instead..])
            ));
        };
        from += at + part.len();
    }
    None
}

/// Returns the screen as it is printed now, with the parts that it leaves out; `None` where no line of it is found again.
fn accepted(screen: &Screen, printed: &str) -> Option<String> {
    let printed: Vec<&str> = printed.lines().map(str::trim_end).collect();
    let end = printed
        .iter()
        .rposition(|line| !line.is_empty())
        .map_or(0, |last| last + 1);
    let start = printed[..end]
        .iter()
        .take_while(|line| line.is_empty())
        .count();
    let printed = &printed[start..end];
    let below: Vec<&str> = screen.below.lines().collect();
    if !below.iter().any(|line| line.trim() == "...") {
        return Some(printed.iter().map(|line| format!("{line}\n")).collect());
    }
    let same = |a: &str, b: &str| words(a, screen.fence) == words(b, screen.fence);
    let (mut text, mut from, mut known) = (String::new(), 0, false);
    for (index, part) in below.split(|line| line.trim() == "...").enumerate() {
        if index > 0 && !text.ends_with("...\n") {
            text += "...\n";
        }
        if part.is_empty() {
            continue;
        }
        let rest = &printed[from..];
        let is_at = |line: &&str| rest.iter().position(|now| same(now, line));
        // The first part is the screen's beginning, with any words.
        let start = match index {
            0 => Some(0),
            _ => part.iter().find_map(is_at),
        };
        let Some(start) = start else { continue };
        let ends_at = |line: &&str| rest[start..].iter().position(|now| same(now, line));
        let end = part.iter().rev().find_map(ends_at);
        known |= end.is_some();
        let end = end
            .map_or(part.len(), |end| end + 1)
            .min(rest.len() - start);
        for line in &rest[start..start + end] {
            text += line;
            text.push('\n');
        }
        from += start + end;
    }
    known.then_some(text)
}

/// Returns the document with these screens, each by the line of its command, in the place of its own.
fn with_screens(text: &str, screens: &[(usize, String)]) -> String {
    let mut out = String::new();
    let mut lines = text.lines().enumerate().peekable();
    while let Some((at, line)) = lines.next() {
        out += line;
        out.push('\n');
        let Some((_, screen)) = screens.iter().find(|(line, _)| *line == at + 1) else {
            continue;
        };
        let mut command = line;
        while command.ends_with('\\') {
            let Some((_, more)) = lines.next() else { break };
            out += more;
            out.push('\n');
            command = more;
        }
        let ends = |line: &str| line.starts_with("$ ") || line.starts_with("```");
        while lines.next_if(|(_, line)| !ends(line)).is_some() {}
        out += screen;
    }
    out
}

/// Screens of commands that print the same on each machine and need no file.
fn of_a_model(command: &str) -> bool {
    let is_model = |model| command.starts_with(&format!("stopgap {model}"));
    [
        "replay chunks",
        "replay roundtrip",
        "replay reclaim",
        "advise",
    ]
    .into_iter()
    .any(is_model)
        && ![".parquet", ".json", "--beside"]
            .iter()
            .any(|part| command.contains(part))
}

/// How what a command prints is judged.
enum Rule {
    /// All of it is the screen.
    Whole,
    /// The screen stands in it.
    Excerpt,
    /// It ends with the screen's status.
    Ends,
}

/// Returns the first fault of a command's output.
fn fault(rule: &Rule, screen: &Screen, status: Option<i32>, printed: &str) -> Option<String> {
    let expected = screen.status;
    if status != Some(expected) {
        let status = status.map_or("a signal".to_owned(), |status| status.to_string());
        let printed = printed.trim();
        return Some(format!("exit status {status}, not {expected}:\n{printed}"));
    }
    match rule {
        Rule::Whole => difference(screen, printed, true),
        Rule::Excerpt => difference(screen, printed, false),
        Rule::Ends => None,
    }
}

/// Returns what to check of a document; of a `list` all that each command prints.
fn checks(text: &str, list: bool) -> Vec<(Rule, Screen)> {
    let rule = |screen: Screen| {
        let rule = if list {
            Rule::Whole
        } else if !screen.below.is_empty() && of_a_model(&screen.command) {
            Rule::Excerpt
        } else {
            Rule::Ends
        };
        (rule, screen)
    };
    screens(text, !list).into_iter().map(rule).collect()
}

/// Returns the tests that a document names, as `crates/x/tests/y.rs::name`, and that are missing below `root`.
fn lost_tests<'a>(text: &'a str, root: &Path) -> Vec<&'a str> {
    let words = text.split(|letter: char| !letter.is_alphanumeric() && !"_/.:-".contains(letter));
    words
        .filter(|word| {
            let Some((file, name)) = word.trim_end_matches(['.', ':']).split_once(".rs::") else {
                return false;
            };
            let source = fs::read_to_string(root.join(format!("{file}.rs"))).unwrap_or_default();
            let name = name.rsplit("::").next().unwrap_or(name);
            !source.contains(&format!("fn {name}("))
        })
        .collect()
}

/// Documents that were named, and those in folders that were.
fn documents(paths: &[PathBuf], found: &mut Vec<PathBuf>) -> Result<(), Failure> {
    for path in paths {
        if !path.is_dir() {
            found.push(path.clone());
            continue;
        }
        let entries = fs::read_dir(path).map_err(failed(path.display()))?;
        let mut below: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        below.retain(|path| path.is_dir() || path.extension().is_some_and(|end| end == "md"));
        below.sort();
        documents(&below, found)?;
    }
    Ok(())
}

fn copied(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copied(&entry.path(), &to)?,
            false => fs::copy(entry.path(), to).map(drop)?,
        }
    }
    Ok(())
}

/// Runs a command of a document by a shell, in a folder of its own.
fn output(screen: &Screen, folder: &Path) -> Result<(Option<i32>, String), Failure> {
    let path = std::env::var("PATH").unwrap_or_default();
    let seconds = match screen.marks.when {
        When::AtNight => NIGHT_SECONDS,
        When::Always | When::Never => SECONDS,
    };
    // A script ends where one of its commands fails.
    let flag = if screen.command.contains('\n') {
        "-ec"
    } else {
        "-c"
    };
    let ran = Command::new("timeout")
        .args([seconds, "sh", flag, &screen.command])
        .current_dir(folder)
        .env("PATH", format!("{}:{path}", folder.join(".bin").display()))
        .env("HOME", folder)
        .env("XDG_STATE_HOME", folder.join("state"))
        .env("COLUMNS", "120")
        .env("LANG", "C.UTF-8")
        .env_remove("RUST_BACKTRACE")
        .stdin(Stdio::null())
        .output()
        .map_err(failed("timeout (coreutils)"))?;
    if signals::interrupted() {
        return Err(Failure::error("interrupted"));
    }
    let mut printed = String::from_utf8_lossy(&ran.stdout).into_owned();
    printed.push('\n');
    printed.push_str(&String::from_utf8_lossy(&ran.stderr));
    Ok((ran.status.code(), printed))
}

pub(crate) fn run(flags: &Flags) -> Result<ExitCode, Failure> {
    signals::install();
    let program = flags.stopgap.program()?;
    let mut found = Vec::new();
    let paths = match flags.paths.as_slice() {
        [] => ["README.md", "docs", "checks/capabilities"]
            .map(PathBuf::from)
            .to_vec(),
        named => named.to_vec(),
    };
    documents(&paths, &mut found)?;
    let root = rustix::process::geteuid().is_root();
    let (mut compared, mut different) = (0, 0);
    let mut skipped: BTreeMap<String, u32> = BTreeMap::new();
    for path in found {
        let shown = path.display();
        let text = fs::read_to_string(&path).map_err(failed(&shown))?;
        let files = path.parent().map(|parent| parent.join("files"));
        let files = files.filter(|files| files.is_dir());
        let folder = folder("screens")?;
        let bin = folder.path().join(".bin");
        fs::create_dir(&bin).map_err(failed(bin.display()))?;
        std::os::unix::fs::symlink(&program, bin.join("stopgap")).map_err(failed(bin.display()))?;
        if let Some(files) = &files {
            copied(files, &folder.path().join("files")).map_err(failed(files.display()))?;
        }
        for lost in lost_tests(&text, Path::new(".")) {
            different += 1;
            print(&format!("DIFFERS  {shown}: there is no test {lost}\n"))?;
        }
        if files.is_none() {
            for (name, content) in documents::files(&text) {
                let path = folder.path().join(name);
                fs::write(&path, content).map_err(failed(path.display()))?;
            }
            for fault in documents::faults(&text, &Args::command()) {
                different += 1;
                print(&format!("DIFFERS  {shown}: {fault}\n"))?;
            }
        }
        let mut now = Vec::new();
        for (rule, screen) in checks(&text, files.is_some()) {
            let (line, command) = (screen.line, screen.command.trim_end());
            if !command.contains(flags.only.as_deref().unwrap_or_default()) {
                continue;
            }
            let why = match screen.fence.root && !root {
                true => Some("root only".to_owned()),
                false => screen.marks.why_not(flags.night),
            };
            if let Some(why) = why {
                *skipped.entry(why).or_default() += 1;
                continue;
            }
            let started = Instant::now();
            let (status, printed) = output(&screen, folder.path())?;
            compared += 1;
            let took = started.elapsed().as_secs_f64();
            let fault = fault(&rule, &screen, status, &printed);
            different += usize::from(fault.is_some());
            let take = flags.accept && matches!(rule, Rule::Whole) && status == Some(screen.status);
            if fault.is_some() && take {
                now.extend(accepted(&screen, &printed).map(|screen| (line, screen)));
            }
            print(&match fault {
                None => format!("{took:6.1} s  {shown}:{line}: {command}\n"),
                Some(fault) => format!("DIFFERS  {shown}:{line}: {command}\n{fault}\n\n"),
            })?;
        }
        if !now.is_empty() {
            fs::write(&path, with_screens(&text, &now)).map_err(failed(&shown))?;
        }
    }
    print(&format!(
        "{compared} commands: {different} print something else\n"
    ))?;
    for (why, count) in skipped {
        print(&format!("not run: {count}, {why}\n"))?;
    }
    if compared == 0 {
        return Err(Failure::error("no command was found"));
    }
    Ok(verdict(different == 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_accepted_screen_keeps_what_it_leaves_out() {
        let text = "x\n```console\n$ a \\\n  b\nhead 1\n...\nrow 2\nrow 3\n...\n$ c\nd\n```\n";
        let all = screens(text, true);
        let printed = "head 1\nnew\nrow 2\nmore\nrow 3\nfoot\n\n";
        let now = accepted(&all[0], printed).expect("its parts are there");
        assert_eq!(now, "head 1\n...\nrow 2\nmore\nrow 3\n...\n");
        let whole = accepted(&all[1], "e\nf\n\n").expect("it leaves nothing out");
        assert_eq!(
            with_screens(text, &[(all[0].line, now), (all[1].line, whole)]),
            "x\n```console\n$ a \\\n  b\nhead 1\n...\nrow 2\nmore\nrow 3\n...\n$ c\ne\nf\n```\n"
        );
        assert_eq!(accepted(&all[0], "other\n"), None);
        let other = accepted(&all[0], "other 1\nnew\nrow 2\nfoot\n");
        assert_eq!(other.as_deref(), Some("other 1\n...\nrow 2\n...\n"));
    }

    fn one(text: &str) -> Screen {
        screens(text, false).pop().unwrap()
    }

    fn same(below: &str, printed: &str, fence: &str) -> bool {
        let screen = one(&format!("```console{fence}\n$ stopgap x\n{below}\n```\n"));
        difference(&screen, printed, true).is_none()
    }

    #[test]
    fn commands_are_found_with_what_is_below_them() {
        let text = "a\n```console numbers root\nlost\n$ stopgap a \\\n    --b  # exit 3\nx 1\n$ stopgap c\n```\n$ no\n```sh\n$ no\n```\n";
        let found = screens(text, false);
        let fence = Fence {
            numbers: true,
            root: true,
        };
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].command, "stopgap a --b");
        assert_eq!((found[0].status, found[0].line), (3, 4));
        assert_eq!((found[0].below.as_str(), found[0].fence), ("x 1\n", fence));
        assert_eq!(
            (found[1].command.as_str(), found[1].status),
            ("stopgap c", 0)
        );
    }

    #[test]
    fn all_that_is_printed_counts_except_where_lines_are_left_out() {
        assert!(same("a b\nc", "a\nb   c\n", ""));
        assert!(!same("a b\nc", "a b c d", ""));
        assert!(!same("b c", "a b c", ""));
        assert!(same("a\n...\nc d\n...", "a x y c d z", ""));
        assert!(same("...\nc d", "a c d", ""));
        assert!(!same("a\n...\nd\n...\nc", "a c d", ""));
        assert!(!same("a\n...\na", "a", ""));
        assert!(same("", "", ""));
        assert!(!same("", "a", ""));
        assert!(same("...", "a", ""));
    }

    #[test]
    fn numbers_count_unless_it_is_said() {
        assert!(!same("took 4.85 ms, 2x", "took 912 us, 3x", ""));
        assert!(same("took 4.85 ms, 2x", "took 912 us, 13x", " numbers"));
        assert!(same("1,204 (0.7..1.2)", "7 (12..13.5)", " numbers"));
        assert!(!same("took 4.85 ms", "lost 4.85 ms", " numbers"));
        assert!(same("4K in 64K", "2M in 1M", " numbers"));
        assert_eq!(without_numbers("linux-6.12:"), "linux-#:");
        assert_eq!(without_numbers("12.5%),"), "#),");
    }

    #[test]
    fn tests_that_are_named_must_be_there() {
        let here = "crates/bench/src/screens.rs";
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let text = format!("held by {here}::tests::a_difference_says_where_it_is, {here}::gone.");
        assert_eq!(lost_tests(&text, root), [format!("{here}::gone.")]);
        assert_eq!(
            lost_tests("crates/no.rs::x and `a::b`", root),
            ["crates/no.rs::x"]
        );
    }

    #[test]
    fn a_difference_says_where_it_is() {
        let screen = one("```console\n$ stopgap x\none two three four\n```\n");
        let told = difference(&screen, "one two 3 four", true).unwrap();
        assert!(told.contains("has: three four"), "{told}");
        assert!(told.contains("is:       3 four"), "{told}");
    }
}

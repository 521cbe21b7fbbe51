//! The commands that the README and `docs/` name.
//!
//! Each command of a `console` or `sh` block, and each `stopgap ...` in the text, is parsed by the definitions of the command
//! line. A block is run as written, unless a comment before it says otherwise:
//!
//! | comment | the block |
//! |---|---|
//! | `<!-- not run: REASON -->` | is never run |
//! | `<!-- at night: REASON -->` | is run with `--night` only |
//! | `<!-- needs: PROGRAM, ... -->` | is run where these programs are on PATH |
//! | `<!-- file: NAME -->` | is no command but this file, for the commands of the page |
//!
//! ` ```console root` is run by root only. `# exit 2` behind a command is its exit status.

use std::collections::BTreeSet;

use clap::Command;
use clap::error::ErrorKind;

use super::screens;

/// When a block is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum When {
    #[default]
    Always,
    AtNight,
    Never,
}

/// How a block is run, as the comments before it say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Marks {
    pub(super) when: When,
    reason: String,
    needs: Vec<String>,
}

impl Marks {
    /// Reads a line outside of blocks. A line that is neither empty nor a comment ends what the comments before it said.
    pub(super) fn read(&mut self, line: &str) {
        let comment = line
            .strip_prefix("<!--")
            .and_then(|rest| rest.strip_suffix("-->"));
        let Some(comment) = comment else {
            if !line.is_empty() {
                *self = Marks::default();
            }
            return;
        };
        let Some((word, rest)) = comment.split_once(':') else {
            return;
        };
        let rest = rest.trim();
        match word.trim() {
            "not run" if !rest.is_empty() => self.when = When::Never,
            "at night" if !rest.is_empty() => self.when = When::AtNight,
            "needs" => self.needs = rest.split(',').map(|name| name.trim().to_owned()).collect(),
            _ => return,
        }
        rest.clone_into(&mut self.reason);
    }

    /// Returns why the block is not run here.
    pub(super) fn why_not(&self, night: bool) -> Option<String> {
        let missing = self.needs.iter().find(|name| !on_path(name));
        match self.when {
            When::Never => Some(self.reason.clone()),
            When::AtNight if !night => Some("at night only".to_owned()),
            _ => missing.map(|name| format!("{name} is not installed")),
        }
    }
}

/// Returns the file that begins after `<!-- file: `: its name and contents.
fn file(rest: &str) -> Option<(&str, &str)> {
    let (name, rest) = rest.split_once(" -->\n```")?;
    let (_, rest) = rest.split_once('\n')?;
    let end = rest.find("\n```")?;
    Some((name, &rest[..=end]))
}

/// Returns the files that a document shows: names and contents.
pub(super) fn files(text: &str) -> Vec<(&str, &str)> {
    text.split("<!-- file: ").skip(1).filter_map(file).collect()
}

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Flags of other programs that the documents name by themselves.
const FLAGS_OF_OTHERS: [&str; 10] = [
    "--all-features",
    "--features",
    "--ignored",
    "--locked",
    "--ns",
    "--perf-basic-prof",
    "--release",
    "--show-lost-events",
    "--static",
    "--workspace",
];

/// Returns what is wrong with the commands and flags that a document names.
pub(super) fn faults(text: &str, bench: &Command) -> Vec<String> {
    let stopgap = stopgap_cli::command();
    let mut faults = Vec::new();
    for screen in screens(text, true) {
        for words in simple_commands(&screen.command) {
            if let Some(fault) = fault(&words, &stopgap, bench, true) {
                faults.push(format!("line {}: {fault}", screen.line));
            }
        }
    }
    let mut known = BTreeSet::from(FLAGS_OF_OTHERS.map(str::to_owned));
    flags(&stopgap, &mut known);
    flags(bench, &mut known);
    known.extend(flags_of_fleet());
    for span in spans(text) {
        if span.contains(['|', '[', '…', '<']) || span.contains("...") {
            continue;
        }
        if span.starts_with("--") {
            let flag = span.split([' ', '=']).next().unwrap_or_default();
            if !known.contains(flag) && flag != "--" {
                faults.push(format!("`{span}`: no command has {flag}"));
            }
        }
        for words in simple_commands(&span) {
            faults.extend(fault(&words, &stopgap, bench, false));
        }
    }
    faults
}

/// Adds the long flags of a command and of those below it.
fn flags(command: &Command, known: &mut BTreeSet<String>) {
    let longs = command.get_arguments().filter_map(clap::Arg::get_long);
    known.extend(longs.map(|long| format!("--{long}")));
    known.extend(["--help", "--version"].map(str::to_owned));
    for below in command.get_subcommands() {
        flags(below, known);
    }
}

/// The flags of `stopgap fleet`, which the Python package reads.
fn flags_of_fleet() -> impl Iterator<Item = String> {
    const PROGRAM: &str = include_str!("../../../../python/stopgap/fleet/__main__.py");
    let texts = PROGRAM.split('"').skip(1).step_by(2);
    texts
        .filter(|text| text.starts_with("--"))
        .map(str::to_owned)
}

/// Returns the inline code of a document.
fn spans(text: &str) -> Vec<String> {
    let mut prose = String::new();
    let mut code = false;
    for line in text.lines() {
        code ^= line.starts_with("```");
        if !code && !line.starts_with("```") {
            prose += line;
            // Inline code may go on in the next line of a paragraph, but not beyond it.
            prose += if line.is_empty() || line.starts_with(['|', '#']) {
                "\n"
            } else {
                " "
            };
        }
    }
    let paragraphs = prose
        .lines()
        .map(|paragraph| paragraph.split('`').skip(1).step_by(2));
    paragraphs.flatten().map(str::to_owned).collect()
}

/// Words before a program that are not the program.
const BEFORE: [&str; 12] = [
    "do", "then", "else", "if", "while", "!", "time", "sudo", "exec", "setsid", "-w", "env",
];

/// Returns what is wrong with a command of words, if it is one of ours. A command in the text may leave words out or have
/// words in place of numbers; `whole` says that this one must not.
fn fault(words: &[String], stopgap: &Command, bench: &Command, whole: bool) -> Option<String> {
    let is_before = |word: &&String| {
        let assigns = word.split_once('=');
        let assigns = assigns.is_some_and(|(name, _)| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        });
        assigns || BEFORE.contains(&word.as_str())
    };
    let words = &words[words.iter().take_while(is_before).count()..];
    let inner = words.windows(3).find_map(|three| match three {
        [shell, flag, script] if shell == "sh" && flag == "-c" => Some(simple_commands(script)),
        _ => None,
    });
    for inner in inner.unwrap_or_default() {
        let fault = fault(&inner, stopgap, bench, whole);
        if fault.is_some() {
            return fault;
        }
    }
    let program = words.first()?.rsplit('/').next()?;
    let after = words.iter().position(|word| word == "--");
    let (command, given) = match program {
        "stopgap" => (stopgap, words),
        "stopgap-bench" => (bench, words),
        "cargo" if words.iter().any(|word| word == "stopgap-bench") => (bench, &words[after?..]),
        _ => return None,
    };
    if given.len() < 2 {
        return None;
    }
    let Err(error) = command.clone().try_get_matches_from(given) else {
        // `record` and `run` take a flag that they do not know for the command to run.
        let mut known = BTreeSet::new();
        flags(command, &mut known);
        if given[1] == "fleet" {
            known.extend(flags_of_fleet());
        }
        let own = given.iter().skip(1).take_while(|word| *word != "--");
        let unknown = own
            .filter_map(|word| word.split('=').next())
            .find(|word| word.starts_with("--") && !known.contains(*word))?;
        return Some(format!("{}: unknown flag {unknown}", words.join(" ")));
    };
    let matters = match error.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayVersion
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => false,
        ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand => true,
        _ => whole,
    };
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    matters.then(|| format!("{}: {line}", words.join(" ")))
}

/// Splits a script into simple commands of words as a shell does, without redirections and comments. Expansions stay as they
/// are written.
fn simple_commands(script: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut word: Option<String> = None;
    let mut skip_next = false;
    let mut end_word =
        |word: &mut Option<String>, commands: &mut Vec<Vec<String>>, redirects: bool| {
            if let Some(word) = word.take()
                && !std::mem::take(&mut skip_next)
            {
                commands.last_mut().expect("at least one").push(word);
            }
            skip_next |= redirects;
        };
    let mut letters = script.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next() {
                Some('\n') | None => {}
                Some(next) => word.get_or_insert_default().push(next),
            },
            '\'' | '"' => {
                let word = word.get_or_insert_default();
                while let Some(inner) = letters.next_if(|inner| *inner != letter) {
                    word.push(inner);
                }
                letters.next();
            }
            '$' if letters.peek() == Some(&'(') => {
                let word = word.get_or_insert_default();
                let mut depth = 0;
                word.push('$');
                for inner in letters.by_ref() {
                    word.push(inner);
                    depth += i32::from(inner == '(') - i32::from(inner == ')');
                    if depth == 0 {
                        break;
                    }
                }
            }
            '#' if word.is_none() => while letters.next_if(|inner| *inner != '\n').is_some() {},
            '>' | '<' => {
                // The number of a descriptor is no word.
                if word
                    .as_deref()
                    .is_some_and(|word| word.chars().all(|c| c.is_ascii_digit()))
                {
                    word = None;
                }
                end_word(&mut word, &mut commands, true);
                while letters.next_if(|next| matches!(next, '>' | '&')).is_some() {}
            }
            ';' | '&' | '|' | '(' | ')' | '\n' => {
                end_word(&mut word, &mut commands, false);
                commands.push(Vec::new());
            }
            letter if letter.is_whitespace() => end_word(&mut word, &mut commands, false),
            letter => word.get_or_insert_default().push(letter),
        }
    }
    end_word(&mut word, &mut commands, false);
    commands.retain(|words| !words.is_empty());
    commands
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use clap::CommandFactory;

    use super::*;
    use crate::Args;

    fn faults_of(text: &str) -> Vec<String> {
        faults(text, &Args::command())
    }

    #[test]
    fn documents_name_commands_and_flags_that_exist() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let mut found = Vec::new();
        let named = ["README.md", "docs"].map(|name| root.join(name));
        super::super::documents(&named, &mut found).unwrap();
        assert!(found.len() > 20, "{found:?}");
        let of = |path: &PathBuf| {
            let text = std::fs::read_to_string(path).unwrap();
            let shown = path.strip_prefix(root).unwrap().display().to_string();
            faults_of(&text)
                .into_iter()
                .map(move |fault| format!("{shown}: {fault}"))
        };
        let faults: Vec<String> = found.iter().flat_map(of).collect();
        assert!(faults.is_empty(), "{faults:#?}");
    }

    #[test]
    fn a_command_or_flag_that_is_gone_is_a_fault() {
        for (text, found) in [
            ("```console\n$ stopgap check --quickly\n```\n", "--quickly"),
            (
                "```sh\nstopgap fleet explain --engines ray d\n```\n",
                "--engines",
            ),
            ("```sh\nsh -c 'true && stopgap checks'\n```\n", "checks"),
            ("```sh\nA=1 stopgap watch -d never >x\n```\n", "never"),
            ("see `stopgap record --evts all`", "--evts"),
            ("see `--evts`", "--evts"),
            (
                "`cargo run --release -p stopgap-bench -- arenas --x`",
                "--x",
            ),
        ] {
            let faults = faults_of(text);
            assert!(
                faults.len() == 1 && faults[0].contains(found),
                "{text}: {faults:?}"
            );
        }
        for text in [
            "```console\n$ stopgap check --quick | head\nstopgap check --printed\n```\n",
            "```\nstopgap any --text\n```\n",
            "`stopgap record -p PID`, `stopgap explain [--x]`, `stopgap`, `--json`",
        ] {
            assert_eq!(faults_of(text), [""; 0], "{text}");
        }
    }

    #[test]
    fn scripts_are_split_as_a_shell_does() {
        let script =
            "a=1 b 'c d' \\\n  e # f\nfor x in $(g h); do i \"$x\" 2>/dev/null >k; done | l";
        let words = simple_commands(script);
        let lines: Vec<String> = words.iter().map(|words| words.join(",")).collect();
        assert_eq!(
            lines,
            ["a=1,b,c d,e", "for,x,in,$(g h)", "do,i,$x", "done", "l"]
        );
    }

    #[test]
    fn files_are_blocks_with_a_name() {
        let text = "a\n<!-- file: x.py -->\n```python\n1\n\n2\n```\n```\n3\n```\n";
        assert_eq!(files(text), [("x.py", "1\n\n2\n")]);
    }

    #[test]
    fn a_mark_holds_for_the_next_block() {
        let text = "<!-- not run: needs an hour -->\n```console root\n$ a\n```\n\n<!-- needs: sh, no-such -->\n\n```sh\nb\n```\n\
                    <!-- at night: slow -->\ntext\n```sh\nc\nd\n```\n";
        let found = screens(text, true);
        let commands: Vec<&str> = found.iter().map(|screen| screen.command.trim()).collect();
        assert_eq!(commands, ["a", "b", "c\nd"]);
        let why = |at: usize| found[at].marks.why_not(false);
        assert_eq!(why(0).as_deref(), Some("needs an hour"));
        assert_eq!(why(1).as_deref(), Some("no-such is not installed"));
        assert_eq!(why(2), None);
    }
}

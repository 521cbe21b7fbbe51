//! How much a command prints, how wide, and whether in colour.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::sync::OnceLock;

use clap::{ColorChoice, ValueEnum};
use stopgap_report::Style;

/// Columns of a screen that goes to a file or a pipe.
const WIDTH_OF_A_FILE: u16 = 120;

/// Columns of a terminal that does not say how wide it is.
const USUAL_WIDTH: u16 = 100;

/// Columns below which nothing is laid out.
const NARROWEST: u16 = 40;

/// Flags of every command.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
#[command(next_help_heading = "Screen")]
pub(crate) struct Voice {
    /// Print the evidence below the answer: intervals, figures, fixes.
    #[arg(short, long, global = true, conflicts_with = "quiet")]
    verbose: bool,
    /// Print errors only, and what a flag such as --json asks for.
    #[arg(short, long, global = true)]
    quiet: bool,
    /// Use colour: auto (on a terminal that has it, unless NO_COLOR is set), always or never.
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value = "auto",
        hide_possible_values = true
    )]
    color: Colour,
}

/// When to use colour.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Colour {
    #[default]
    Auto,
    Always,
    Never,
}

/// The flags of this process. Everything that prints needs them, and they never change.
static VOICE: OnceLock<Voice> = OnceLock::new();

/// Keeps the flags of the command line. Without it a command prints as without flags.
pub(crate) fn set(voice: Voice) {
    // Only `main` sets them, once.
    let _ = VOICE.set(voice);
}

fn voice() -> Voice {
    VOICE.get().copied().unwrap_or_default()
}

/// Returns whether only errors and requested documents are printed.
pub(crate) fn quiet() -> bool {
    voice().quiet
}

/// Returns the flags for a process of this command's own that prints to the same places.
pub(crate) fn flags() -> Option<&'static str> {
    quiet().then_some("--quiet")
}

/// Returns how to print on standard output.
pub(crate) fn style() -> Style {
    let terminal = std::io::stdout().is_terminal();
    let width = match terminal {
        true => terminal_size::terminal_size().map_or(USUAL_WIDTH, |(width, _)| width.0),
        false => WIDTH_OF_A_FILE,
    };
    let colour = match voice().color {
        Colour::Auto => terminal && !dumb() && !no_color(),
        Colour::Always => true,
        Colour::Never => false,
    };
    Style {
        width: width.max(NARROWEST),
        colour,
        verbose: voice().verbose,
    }
}

/// Returns when to use colour in a help text. The `words` of the command line are not parsed yet.
pub(crate) fn colour_of_help(words: &[OsString]) -> ColorChoice {
    let own = words.iter().take_while(|word| *word != "--");
    let words: Vec<_> = own.filter_map(|word| word.to_str()).collect();
    let apart = words.windows(2).find(|pair| pair[0] == "--color");
    let joined = words.iter().find_map(|word| word.strip_prefix("--color="));
    match apart.map(|pair| pair[1]).or(joined) {
        Some("always") => ColorChoice::Always,
        Some("never") => ColorChoice::Never,
        // clap would print colours on any terminal of a CI job.
        _ if dumb() || no_color() => ColorChoice::Never,
        _ => ColorChoice::Auto,
    }
}

/// Returns whether the terminal only prints lines.
pub(crate) fn dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// Returns whether the terminal and the locale have more than ASCII, as setlocale(3) finds the locale. Without one it is "C".
pub(crate) fn has_unicode() -> bool {
    let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
    !dumb() && locale.as_deref().is_some_and(is_utf8)
}

fn is_utf8(locale: &str) -> bool {
    let locale = locale.to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

/// Returns whether the user wants no colour: <https://no-color.org>.
fn no_color() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locales_that_have_bars() {
        for (locale, has) in [
            ("C.UTF-8", true),
            ("de_DE.utf8", true),
            ("C", false),
            ("POSIX", false),
            ("de_DE.ISO-8859-1", false),
        ] {
            assert_eq!(is_utf8(locale), has, "{locale}");
        }
    }
}

//! `stopgap ministat`: FreeBSD's program, with what its t-test cannot say. `docs/compare.md` is its manual.

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

use stopgap_events::bounded;
use stopgap_events::units::Bytes;
use stopgap_stats::ministat::{Column, Confidence, MOST_SETS, Options, Report, Set, WIDTH};

use crate::args;
use crate::failure::{DONE, Failure};
use crate::input_file;
use crate::output;
use crate::session::tell;

/// Exit status of wrong flags and wrong data.
pub(crate) const WRONG: u8 = 2;

/// The largest file that is read: a number takes two bytes in it, and eight here.
const MOST: Bytes = Bytes::mib(256);

/// Reads the sets and prints what the original prints, and what its test does not fit.
pub(crate) fn run(args: &args::Ministat) -> Result<ExitCode, Failure> {
    let text = text(args)?;
    let mut out = output::stdout();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    output::written_out(written)?;
    Ok(ExitCode::from(DONE))
}

/// Returns what `stopgap ministat` prints.
pub(crate) fn text(args: &args::Ministat) -> Result<String, Failure> {
    let column = Column {
        number: column(&args.column)?,
        delimiters: match args.delimiters.as_deref() {
            None => Column::default().delimiters,
            Some("") => return Err(wrong("-d: can't use an empty delimiter string")),
            Some(delimiters) => delimiters.to_owned(),
        },
    };
    let confidence = confidence(&args.confidence)?;
    let width = match &args.width {
        Some(text) => width(text)?,
        None => usual_width(),
    };
    if args.files.len() > MOST_SETS {
        return Err(wrong(&format!(
            "too many datasets: {}, at most {MOST_SETS}",
            args.files.len()
        )));
    }
    let input = [Path::new("-").to_path_buf()];
    let files = if args.files.is_empty() {
        &input[..]
    } else {
        &args.files
    };
    let mut sets = Vec::new();
    for file in files {
        let (name, bytes) = read(file)?;
        // As the original, it takes the number.
        if !bytes.ends_with(b"\n") && !bytes.is_empty() {
            tell(&format!(
                "{name} ends without a line feed: if it is cut off, its last number may be wrong"
            ));
        }
        let set = Set::read(&name, &bytes, &column).map_err(|error| wrong(&error.to_string()))?;
        sets.push(set);
    }
    let options = Options {
        confidence,
        plot: (!args.no_plot && !args.only_figures).then_some(width),
        separate_bars: args.separate_bars,
        quiet: args.quiet,
        relative: !args.only_figures,
    };
    Ok(Report::new(&sets, options).to_string())
}

fn wrong(message: &str) -> Failure {
    Failure::Told {
        message: format!("{message}; see 'stopgap ministat --help'"),
        status: WRONG,
    }
}

fn column(text: &str) -> Result<usize, Failure> {
    match text.parse() {
        Ok(0) => Err(wrong("-C 0: column numbers begin with 1")),
        Ok(number) => Ok(number),
        Err(_) => Err(wrong(&format!("-C: '{text}' is no column number"))),
    }
}

fn confidence(text: &str) -> Result<Confidence, Failure> {
    let known = text.parse().ok().and_then(Confidence::of_percent);
    known.ok_or_else(|| {
        let all: Vec<String> = Confidence::ALL
            .iter()
            .map(|one| one.percent().to_string())
            .collect();
        wrong(&format!(
            "-c: no support for confidence level '{text}', only for {}",
            all.join(", ")
        ))
    })
}

fn width(text: &str) -> Result<usize, Failure> {
    let width = text.parse().ok();
    width
        .filter(|width| Options::WIDTHS.contains(width))
        .ok_or_else(|| {
            let (least, most) = (Options::WIDTHS.start(), Options::WIDTHS.end());
            wrong(&format!("-w: '{text}' is no width from {least} to {most}"))
        })
}

/// `COLUMNS`, else the terminal's less the frame; only where there is one.
fn usual_width() -> usize {
    if !io::stdout().is_terminal() {
        return WIDTH;
    }
    let said = std::env::var("COLUMNS").ok();
    let columns = said.and_then(|text| text.parse().ok()).or_else(|| {
        let (width, _) = terminal_size::terminal_size()?;
        usize::from(width.0).checked_sub(2)
    });
    columns
        .filter(|width| Options::WIDTHS.contains(width))
        .unwrap_or(WIDTH)
}

/// A set's name and its bytes.
fn read(path: &Path) -> Result<(String, Vec<u8>), Failure> {
    let shown = path.display().to_string();
    let shown: String = shown
        .chars()
        .flat_map(|letter| {
            // A name from outside does not paint the screen.
            let plain = (!letter.is_control()).then_some(letter);
            let escaped = letter.is_control().then(|| letter.escape_default());
            plain.into_iter().chain(escaped.into_iter().flatten())
        })
        .collect();
    let failed = |error: io::Error| Failure::error(format!("Cannot open {shown}: {error}"));
    let (name, bytes) = if path == Path::new("-") {
        ("<stdin>", bounded::read(io::stdin().lock(), MOST))
    } else {
        (&*shown, input_file::whole(path, MOST))
    };
    match bytes {
        Ok(bytes) => Ok((name.to_owned(), bytes)),
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
            Err(Failure::error(format!("{name}: {error}")))
        }
        Err(error) => Err(failed(error)),
    }
}

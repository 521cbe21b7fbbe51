//! The rule by which a run of `check` comes to its headline: each row has a state, the worst one makes the headline.
//!
//! Rows of the machine as it is: [`mod@now`], with the limits. Rows of the causes that were tested: [`causes`].

mod causes;
mod now;

use stopgap_events::machine::Privilege;
use stopgap_stats::overall::{Headline, Overall, Row, State};
use stopgap_stats::record::{Answer, Run};

/// Returns what the run comes to: as its record has it, else as this version judges a record that has none.
#[must_use]
pub fn of(run: &Run) -> Overall {
    run.verdict.clone().unwrap_or_else(|| judge(run))
}

/// Judges the run.
#[must_use]
pub fn judge(run: &Run) -> Overall {
    let now = run
        .now
        .as_ref()
        .map_or(Vec::new(), |now| now::rows(now, &run.environment));
    let causes = causes::rows(run);
    let rows = || now.iter().chain(&causes);
    let headline = Headline::of(rows().map(|row| row.state));
    // What goes on now leads before what is over. A busy CPU is seldom the whole story where another row warns, too. A disk
    // from which programs are read back is busy because memory is short.
    let swaps = rows().any(|row| row.about == "swap" && row.state == State::Look);
    let weight = |row: &&Row| match &*row.about {
        "log" => 2,
        "cpu" => 1,
        "disk" => u8::from(swaps),
        _ => 0,
    };
    let leads = |state: State| rows().filter(|row| row.state == state).min_by_key(weight);
    let watch = ("Catch it when it comes:", "sudo stopgap watch");
    let (text, why, command) = match headline {
        Headline::LikelyCause => lead(
            "FOUND A LIKELY CAUSE",
            leads(State::Cause),
            "This can freeze a desktop for a second.",
            watch,
        ),
        Headline::WorthALook => lead(
            "FOUND SOMETHING WORTH A LOOK",
            leads(State::Look),
            "A healthy machine at rest does not show this.",
            watch,
        ),
        Headline::NothingFound => (
            "FOUND NOTHING THAT EXPLAINS A FREEZE OF A SECOND".to_owned(),
            format!(
                "It may not have happened while this ran; {} not tested. {}",
                not_tested(run),
                watch.0
            ),
            watch.1.to_owned(),
        ),
        Headline::CouldNotLook => {
            let why = rows().next().map(|row| row.sentence.clone());
            let why = why.unwrap_or_else(|| "interrupted before the first figure".to_owned());
            let again = match run.environment.privilege {
                Privilege::Root => ("Says what is missing here:", "stopgap doctor"),
                _ => ("Root sees more:", "sudo stopgap check"),
            };
            let text = format!("COULD NOT LOOK, because {}", bare(&why));
            (text, again.0.to_owned(), again.1.to_owned())
        }
    };
    Overall {
        headline,
        text,
        why,
        command,
        now,
        causes,
    }
}

/// Returns one answer as a state and a sentence.
#[must_use]
pub fn of_answer(answer: &Answer) -> Row {
    causes::of(answer, None)
}

/// Returns the headline, its sentence and its command from the row that leads.
fn lead(
    found: &str,
    row: Option<&Row>,
    weight: &str,
    otherwise: (&str, &str),
) -> (String, String, String) {
    let Some(row) = row else {
        return (
            found.to_owned(),
            otherwise.0.to_owned(),
            otherwise.1.to_owned(),
        );
    };
    let (why, command) = match row.command.is_empty() {
        true => otherwise,
        false => (row.why.as_str(), row.command.as_str()),
    };
    (
        format!("{found}: {}", row.about.to_uppercase()),
        format!("{weight} {why}"),
        command.to_owned(),
    )
}

/// Returns what the run did not test, with its verb: `GPU, disk and your programs were`.
fn not_tested(run: &Run) -> &'static str {
    match run.answers.is_empty() {
        true => "the four known causes, GPU and your programs were",
        false => "GPU, disk and your programs were",
    }
}

/// Returns a sentence without its beginning `cannot tell: `.
fn bare(sentence: &str) -> &str {
    sentence.strip_prefix(CANNOT_TELL).unwrap_or(sentence)
}

/// Begins the sentence of a row that could not be judged.
const CANNOT_TELL: &str = "cannot tell: ";

fn row(about: &str, state: State, sentence: impl Into<String>) -> Row {
    Row {
        about: about.to_owned(),
        state,
        sentence: sentence.into(),
        why: String::new(),
        command: String::new(),
    }
}

fn unknown(about: &str, why: &str) -> Row {
    row(about, State::Unknown, format!("{CANNOT_TELL}{why}"))
}

/// Gives a row what to do about it.
fn then(row: Row, why: &str, command: impl Into<String>) -> Row {
    Row {
        why: why.to_owned(),
        command: command.into(),
        ..row
    }
}

#[cfg(test)]
mod tests;

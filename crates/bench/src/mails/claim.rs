//! Claims of a mail, and the commands that test them.

use super::record::Record;

/// A command of `stopgap` by whose record claims are judged.
pub(super) struct Command {
    /// The words after `stopgap`.
    pub(super) words: &'static str,
    pub(super) kind: Kind,
    /// It ends within seconds, in a debug build too: `--quick` runs it.
    pub(super) quick: bool,
}

/// The name, the count, the mean and the standard deviation of the numbers in a file.
pub(super) type Numbers = (&'static str, u32, f64, f64);

pub(super) enum Kind {
    /// A model, run in each trial. The flag sets how long it runs, `{}` for the number; the number is its default.
    Model(&'static str, u64),
    /// A probe of this machine. Its runs lie within one command, which is run once.
    Live,
    /// A command that prints text and reads these files.
    Files(&'static [Numbers]),
}

/// Makes a command of a model.
pub(super) const fn model(words: &'static str, flag: &'static str, usual: u64) -> Command {
    command(words, Kind::Model(flag, usual))
}

pub(super) const fn command(words: &'static str, kind: Kind) -> Command {
    Command {
        words,
        quick: matches!(kind, Kind::Files(_)),
        kind,
    }
}

impl Command {
    pub(super) const fn quick(self) -> Command {
        let quick = true;
        Command { quick, ..self }
    }
}

/// The figures that a command printed about a claim, and whether the claim's criterion holds.
pub(super) struct Seen {
    pub(super) prints: String,
    pub(super) holds: bool,
}

/// How a claim is judged by the records of its commands.
pub(super) type Look = fn(&[Record]) -> Result<Seen, String>;

/// One claim of a mail.
pub(super) struct Claim {
    pub(super) title: &'static str,
    /// Lines of the mail's text.
    pub(super) lines: &'static str,
    pub(super) quote: &'static str,
    /// The mail's own figures.
    pub(super) figures: &'static str,
    pub(super) commands: &'static [&'static Command],
    /// The criterion, fixed before looking, with its reason. Without commands: what is missing to test the claim here.
    pub(super) holds_if: &'static str,
    pub(super) look: Option<Look>,
    /// Why it differs, where it does.
    pub(super) because: &'static str,
    /// A sentence about what the command shows besides.
    pub(super) more: &'static str,
    /// A conclusion of the mail: its page begins with it.
    pub(super) conclusion: bool,
}

/// Begins a claim: its title, the mail's lines, and their words.
pub(super) const fn claim(title: &'static str, lines: &'static str, quote: &'static str) -> Claim {
    Claim {
        title,
        lines,
        quote,
        figures: "",
        commands: &[],
        holds_if: "",
        look: None,
        because: "",
        more: "",
        conclusion: false,
    }
}

impl Claim {
    pub(super) const fn test(
        self,
        commands: &'static [&'static Command],
        holds_if: &'static str,
        look: Look,
    ) -> Claim {
        let look = Some(look);
        Claim {
            commands,
            holds_if,
            look,
            ..self
        }
    }

    /// Says what hardware or system is missing here.
    pub(super) const fn lacks(self, what: &'static str) -> Claim {
        let holds_if = what;
        Claim { holds_if, ..self }
    }

    pub(super) const fn figures(self, figures: &'static str) -> Claim {
        Claim { figures, ..self }
    }

    pub(super) const fn because(self, because: &'static str) -> Claim {
        Claim { because, ..self }
    }

    pub(super) const fn more(self, more: &'static str) -> Claim {
        Claim { more, ..self }
    }

    pub(super) const fn conclusion(self) -> Claim {
        let conclusion = true;
        Claim { conclusion, ..self }
    }

    pub(super) fn is_quick(&self) -> bool {
        self.commands.iter().all(|command| command.quick)
    }
}

/// A mail and its claims.
pub(super) struct Mail {
    /// As in the other documents: `000`.
    pub(super) number: &'static str,
    /// Its author, date, list and subject.
    pub(super) title: &'static str,
    pub(super) claims: &'static [Claim],
}

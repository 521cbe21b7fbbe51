//! Claims of a mail, and the commands that test them: `claims/*.json`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

/// A command of `stopgap` whose record decides claims.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Command {
    /// The words after `stopgap`.
    pub(super) words: String,
    /// The flag that sets how long a model runs, `{}` for the number. A command without it runs once.
    pub(super) longer: Option<String>,
    /// The default of that number.
    #[serde(default)]
    usual: u64,
    /// Whether `--quick` runs the command: it ends within seconds, in a debug build too.
    #[serde(default)]
    quick: bool,
    /// Files that the command reads: name, and the count, mean and standard deviation of their numbers. Such a command
    /// prints text instead of a record.
    #[serde(default)]
    pub(super) files: Vec<(String, u32, f64, f64)>,
}

impl Command {
    pub(super) fn is_quick(&self) -> bool {
        self.quick || !self.files.is_empty()
    }

    /// Returns the words of the command with a seed, for so many times its usual length.
    pub(super) fn words(&self, seed: u64, length: u64) -> String {
        let words = &self.words;
        match &self.longer {
            None => words.clone(),
            Some(_) if length == 1 => format!("{words} --seed {seed}"),
            Some(flag) => {
                let flag = flag.replace("{}", &(self.usual * length).to_string());
                format!("{words} --seed {seed} {flag}")
            }
        }
    }
}

/// One claim of a mail.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Claim {
    pub(super) title: String,
    /// Lines of the mail's text.
    pub(super) lines: String,
    pub(super) quote: String,
    /// The mail's own figures.
    pub(super) figures: String,
    /// Names of commands.
    pub(super) commands: Vec<String>,
    /// Paths of figures in the records, by name: see [`super::record::figure`].
    pub(super) read: BTreeMap<String, String>,
    /// The criterion as an expression of those figures: see [`super::expression`].
    pub(super) holds: String,
    /// The text for the page: expressions in braces, each with its format.
    pub(super) prints: String,
    /// A look of [`super::record::special`], in place of `read`, `holds` and `prints`.
    pub(super) look: Option<String>,
    /// The criterion in words, fixed before looking, with its reason.
    pub(super) holds_if: String,
    /// The hardware or system that is missing to test the claim here.
    pub(super) lacks: Option<String>,
    /// Why it differs, where it does.
    pub(super) because: String,
    /// A sentence about what the command shows besides.
    pub(super) more: String,
    /// Whether the claim is a conclusion of the mail: its page begins with it.
    pub(super) conclusion: bool,
}

/// A mail and its claims.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Mail {
    /// As in the other documents: `000`.
    pub(super) number: String,
    /// Its author, date, list and subject.
    pub(super) title: String,
    pub(super) commands: BTreeMap<String, Command>,
    pub(super) claims: Vec<Claim>,
}

impl Mail {
    /// Returns the commands of a claim.
    pub(super) fn commands<'a>(&'a self, claim: &'a Claim) -> impl Iterator<Item = &'a Command> {
        claim.commands.iter().map(|name| &self.commands[name])
    }
}

/// The five mails.
pub(super) static MAILS: LazyLock<Vec<Mail>> = LazyLock::new(|| {
    let texts = [
        include_str!("claims/000.json"),
        include_str!("claims/001.json"),
        include_str!("claims/002.json"),
        include_str!("claims/003.json"),
        include_str!("claims/004.json"),
    ];
    let mails =
        texts.map(|text| serde_json::from_str(text).expect("claims are whole: a test reads them"));
    Vec::from(mails)
});

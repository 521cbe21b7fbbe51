//! `stopgap-bench attack`: the command under conditions that nobody wants, counted. checks/reliability.md has the results.
//!
//! * `kills`: each command is killed at a random moment; nothing of it may be left.
//! * `mutants`: files with changed bytes are given to each command that reads such files; each ends with an answer or an
//!   error.
//!
//! Both run the `stopgap` beside this program as its users do, in folders of their own. Both print their seed, and exit
//! with status 1 where something did not hold.

mod kills;
mod mutants;
mod samples;

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use stopgap_cli::Failure;

use crate::common::{Stopgap, failed, wait};

#[derive(clap::Args)]
pub(crate) struct Flags {
    #[command(subcommand)]
    attack: Attack,
}

#[derive(clap::Subcommand)]
enum Attack {
    /// Each command, killed at a random moment, then `stopgap restore`: settings, processes, cgroups, trace instances and
    /// files must be as before. Root tests more. If this program is killed itself, run `stopgap restore`.
    Kills(kills::Flags),
    /// Changed files of each format, read by each command that reads it, in 1.5 GiB of address space and 10 s.
    Mutants(mutants::Flags),
}

/// Flags of both attacks.
#[derive(clap::Args)]
struct Common {
    /// Seed of every random choice.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Only these rows of the table.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    only: Vec<String>,
    #[command(flatten)]
    stopgap: Stopgap,
}

impl Common {
    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }
}

pub(crate) fn run(flags: &Flags) -> Result<ExitCode, Failure> {
    let holds = match &flags.attack {
        Attack::Kills(flags) => kills::run(flags),
        Attack::Mutants(flags) => mutants::run(flags),
    }?;
    Ok(ExitCode::from(u8::from(!holds)))
}

/// A folder in which the program runs: records, temporary files and what it prints stay inside.
struct Place {
    folder: PathBuf,
    program: PathBuf,
}

impl Place {
    fn new(folder: &Path, program: &Path) -> Result<Place, Failure> {
        for name in ["out", "tmp", "state"] {
            fs::create_dir_all(folder.join(name)).map_err(failed(folder.display()))?;
        }
        Ok(Place {
            folder: folder.to_owned(),
            program: program.to_owned(),
        })
    }

    /// Removes the inputs and outputs of a run.
    fn empty(&self) -> Result<(), Failure> {
        for name in ["in", "out", "state", "tmp"].map(|name| self.folder.join(name)) {
            let _ = fs::remove_dir_all(&name).or_else(|_| fs::remove_file(&name));
        }
        Place::new(&self.folder, &self.program).map(drop)
    }

    /// The program with these words; `{w}` in them is this folder.
    fn command(&self, words: &str) -> Command {
        let folder = self.folder.to_str().unwrap_or_default();
        let words = words
            .split_whitespace()
            .map(|word| word.replace("{w}", folder));
        let mut command = Command::new(&self.program);
        command
            .args(words)
            .current_dir(self.folder.join("out"))
            .env("HOME", &self.folder)
            .env("XDG_STATE_HOME", self.folder.join("state"))
            .env("TMPDIR", self.folder.join("tmp"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .process_group(0);
        command
    }

    /// Runs it to its end, at most so long; gives its status, `None` where it was killed for its time, and its output.
    fn ends(
        &self,
        command: &mut Command,
        limit: Duration,
    ) -> Result<(Option<ExitStatus>, String), Failure> {
        let path = self.folder.join("told");
        let told = File::create(&path).map_err(failed(path.display()))?;
        let both = told.try_clone().map_err(failed(path.display()))?;
        let child = command.stdout(both).stderr(told).spawn();
        let mut child = child.map_err(failed(self.program.display()))?;
        let status = wait(&mut child, limit)?;
        if status.is_none() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let told = fs::read(&path).map_err(failed(path.display()))?;
        let told = String::from_utf8_lossy(&told[..told.len().min(64 << 10)]).into_owned();
        Ok((status, told))
    }
}

/// Returns the names in a folder, sorted; of what is no folder none.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

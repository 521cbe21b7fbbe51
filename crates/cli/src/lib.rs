//! The `stopgap` command: flags, inputs, records and screens. How it measures is in the crates below, but for four things that
//! have no other user: `watch` decides what fires and how often a window is written, `fixes` tries fixes, `prices` fits prices
//! to a probe's series, and `prediction` sets a model beside them.
//!
//! It is a library for the sake of two others: `stopgap-bench` runs [`replay`] with the peers' allocators beside our policies
//! (same flags, same table, same record), and the Python package calls what [`library`] has.
//!
//! | module | what |
//! |---|---|
//! | `args` | every flag, once |
//! | `places` | where records and the journal go |
//! | `session` | what each run sets up first and undoes last |
//! | `check`, `probe`, `record`, `replay`, `advise`, `explain`, `compare`, `campaign`, `fleet`, `export`, `ministat`, `kernels`, `watch`, `snapshot`, `report`, `run`, `doctor`, `restore`, `prune`, `shell` | the commands |
//! | `progress` | progress bars and the time that remains |
//! | `output` | writing the record and printing, with nothing lost |
//! | `fixes` | what the arena's fixes would bring here |
//! | `voice` | how much is printed, how wide, and whether in colour |
//! | [`library`] | the commands that only read, for another program: documents instead of prints |
//! | `whole_file` | writing a file that is there whole or not at all |
//! | `failure` | one line on standard error and the exit status |

mod advise;
mod args;
mod campaign;
mod check;
mod compare;
mod doctor;
mod explain;
mod export;
mod failure;
pub mod fixes;
mod fleet;
mod input_file;
mod kernels;
pub mod library;
mod ministat;
mod output;
mod places;
mod prediction;
mod prices;
mod probe;
mod progress;
mod prune;
mod record;
pub mod replay;
mod report;
mod restore;
mod run;
#[cfg(test)]
mod schemas;
mod session;
mod settings;
mod shell;
mod snapshot;
mod voice;
mod watch;
mod whole_file;

use std::process::ExitCode;

use stopgap_kernel::signals;

use args::{AdviseQuestion, Args, Command, ReplayQuestion};

pub use args::{command, parse};
pub use failure::Failure;
pub use output::print;
pub use places::{journal, records};
pub use progress::progress_bar;
pub use session::{put_back, tell};

/// The command: reads the command line, does it, gives the exit status.
#[must_use]
pub fn main() -> ExitCode {
    let result = parse().and_then(|args: Args| {
        voice::set(args.voice);
        // `run` and `fleet` become another program, which has signals as its caller left them.
        if !matches!(args.command, Command::Run(_) | Command::Fleet(_)) {
            signals::survive_file_limits();
        }
        if !args.command.leaves_all_as_it_is() {
            session::clean_up();
        }
        carry_out(args)
    });
    let result = result.map_err(compare::for_bisect);
    let status = result.unwrap_or_else(Failure::report);
    output::end();
    status
}

fn carry_out(args: Args) -> Result<ExitCode, Failure> {
    match args.command {
        Command::Check(args) => check::run(&args),
        Command::Probe(args) => probe::run(&args),
        Command::Record(args) => record::run(&args),
        Command::Watch(args) => watch::run(&args),
        Command::Replay(args) => match args.question {
            ReplayQuestion::Placement(flags) => replay::placement(&flags, &[]),
            ReplayQuestion::Chunks(flags) => replay::chunks::run(&flags),
            ReplayQuestion::Roundtrip(flags) => replay::roundtrip::run(&flags),
            ReplayQuestion::Reclaim(flags) => replay::reclaim::run(&flags),
        },
        Command::Advise(args) => match args.question {
            AdviseQuestion::Chunks(flags) => advise::chunks(&flags),
        },
        Command::Explain(args) => explain::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Campaign(args) => campaign::run(&args),
        Command::Fleet(args) => fleet::run(&args),
        Command::Kernels(args) => kernels::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Ministat(args) => ministat::run(&args),
        Command::Snapshot(args) => snapshot::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Restore(args) => restore::run(&args),
        Command::Prune(args) => prune::run(&args),
        Command::Completions(args) => shell::completions(&args),
        Command::Man(args) => shell::man(&args),
    }
}

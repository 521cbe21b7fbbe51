//! `stopgap kernels`: flags to [`stopgap_kernels::run`], its record to the screen, its standing to the exit status.

use std::process::ExitCode;

use stopgap_kernel::signals;
use stopgap_kernels::judge::Standing;
use stopgap_kernels::{Flags, Progress};

use crate::args;
use crate::failure::{BISECT_BAD, BISECT_SKIP, CANNOT_TELL, DONE, ERROR, Failure, REGRESSION};
use crate::output::Printed;
use crate::progress::{progress_bar, thousandths};
use crate::session::{tell, tell_error};
use crate::{output, places, session, voice};

pub(crate) fn run(args: &args::Kernels) -> Result<ExitCode, Failure> {
    if args.bisect && args.kernels.len() != 2 {
        let n = args.kernels.len();
        return Err(Failure::error(format!(
            "--bisect compares two kernels, the good one first; {n} were given"
        )));
    }
    signals::install();
    let mut flags = Flags {
        kernels: args.kernels.clone(),
        append: args.append.clone(),
        cells: Vec::new(),
        seeds: args.seeds,
        jobs: args.jobs,
        limit: args.limit,
        margin: args.margin,
        functions: args.functions,
        command: session::command(),
    };
    for cell in args.workloads.iter().flat_map(|cells| &cells.0) {
        if !flags.cells.contains(cell) {
            flags.cells.push(cell.clone());
        }
    }
    if args.dry_run {
        let records = places::would_be(args.place.output.as_deref());
        output::print(&stopgap_kernels::dry_run(&flags, &records))?;
        return Ok(ExitCode::from(DONE));
    }
    let directory = args.place.directory()?;
    let bar = progress_bar();
    let compared = stopgap_kernels::run(&flags, &mut |progress| match progress {
        Progress::Line(line) => tell(line),
        Progress::Boots { done, all } => {
            bar.set_position(thousandths(done as u64, all as u64));
            bar.set_message(format!("boot {done} of {all}"));
        }
    });
    bar.finish_and_clear();
    let compared = compared?;
    let record = &compared.record;
    let name = output::name("kernels", record.started_unix_s);
    let (directory, printed) = (directory.as_deref(), Printed::with(args.json));
    output::document(&record.to_json(), &name, directory, printed, |place| {
        stopgap_kernels::screen(record, place, voice::style())
    })?;
    compared.faults.iter().for_each(|fault| tell_error(fault));
    if args.gate || args.bisect {
        compared.gates().iter().for_each(|line| tell(line));
    }
    Ok(ExitCode::from(status(args, compared.standing)))
}

fn status(args: &args::Kernels, standing: Standing) -> u8 {
    let (bad, cannot_tell, error) = match (args.bisect, args.gate) {
        (true, _) => (BISECT_BAD, BISECT_SKIP, BISECT_SKIP),
        (_, true) => (REGRESSION, CANNOT_TELL, ERROR),
        (false, false) => (DONE, DONE, ERROR),
    };
    match standing {
        Standing::Error => error,
        Standing::Fail => bad,
        Standing::CannotTell => cannot_tell,
        Standing::Pass => DONE,
    }
}

impl From<stopgap_kernels::Error> for Failure {
    fn from(error: stopgap_kernels::Error) -> Failure {
        match error.is_unsupported() {
            true => Failure::unsupported(error.to_string()),
            false => Failure::error(error.to_string()),
        }
    }
}

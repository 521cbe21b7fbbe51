//! A real X server: its client as it is, and under `SCHED_BATCH` by the fix.

use std::ffi::OsString;

use stopgap_cli::{Failure, progress_bar, tell};
use stopgap_kernel::tasks::Tasks;
use stopgap_kernel::x11::{Placing, X11};
use stopgap_kernel::{Linux, signals};

use super::{Bound, Flags, middle, quantile};

/// Windows that the client asks for.
const WINDOWS: u32 = 500;

/// By how much the fix must lower switches.
const RATIO: f64 = 1.8;

/// Switches of both a flush; `None`: the kernel does not count flushes.
fn one(cpu: u32, through: &[OsString]) -> Result<Option<f64>, Failure> {
    let placing = Placing {
        server: vec![cpu],
        client: vec![cpu],
        batch: false,
        through: through.to_vec(),
    };
    let counted = Linux
        .start_x(WINDOWS, &placing.server)?
        .ask(&placing, &mut |_| Ok(()))?;
    if counted.windows < u64::from(WINDOWS) {
        return Err(Failure::error(format!(
            "the client named {} windows of {WINDOWS}",
            counted.windows
        )));
    }
    let ratio =
        |flushes: u64| (counted.client.total() + counted.server.total()) as f64 / flushes as f64;
    Ok(counted.flushes.filter(|&flushes| flushes > 0).map(ratio))
}

/// Prints the distributions; the bound.
pub(super) fn measure(flags: &Flags) -> Result<Vec<Bound>, Failure> {
    if flags.x_runs == 0 {
        return Ok(Vec::new());
    }
    if let Err(error) = Linux.x_programs() {
        tell(&error.to_string());
        return Ok(vec![Bound {
            holds: false,
            text: format!("real X: not measured: {error}"),
        }]);
    }
    let own =
        std::env::current_exe().map_err(|error| Failure::error(format!("own path: {error}")))?;
    let fix: Vec<OsString> = match &flags.through {
        Some(words) => words.split_whitespace().map(OsString::from).collect(),
        None => vec![own.into(), "batch-client-exec".into(), "--".into()],
    };
    let cpus = Linux.cpus()?;
    let cpu = flags.cpu.or(cpus.last().copied()).unwrap_or(0);
    // As `stopgap-bench x11`: we sleep while they run.
    Linux.set_cpus(&[cpu])?;
    println!(
        "\nXvfb with {WINDOWS} windows, xwininfo -root -tree, both on CPU {cpu}, {} runs of each in turn; switches of both a flush",
        flags.x_runs
    );
    let bar = progress_bar();
    let mut found: [Vec<f64>; 2] = Default::default();
    for run in 0..flags.x_runs {
        for turn in 0..2 {
            if signals::interrupted() {
                return Err(Failure::error("interrupted"));
            }
            let fixed = (turn + run as usize) % 2;
            let through = if fixed == 1 { fix.as_slice() } else { &[] };
            found[fixed].extend(one(cpu, through)?);
        }
        bar.set_position(u64::from(run + 1) * 1_000 / u64::from(flags.x_runs));
    }
    bar.finish_and_clear();
    Linux.set_cpus(&cpus)?;
    let words: Vec<String> = fix
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let through = match &flags.through {
        Some(_) => words.join(" "),
        None => "sched::batch_client()".to_owned(),
    };
    println!("client                    median    p10    p90");
    for (name, values) in [("as it is", &found[0]), (through.as_str(), &found[1])] {
        println!(
            "{name:24}  {:6.2}  {:5.2}  {:5.2}",
            middle(values),
            quantile(values, 0.1),
            quantile(values, 0.9)
        );
    }
    let ratio = middle(&found[0]) / middle(&found[1]);
    Ok(vec![Bound {
        holds: ratio >= RATIO,
        text: format!("real X: {ratio:.2}x fewer switches a flush by {through} ({RATIO}x)"),
    }])
}

//! `stopgap probe QUESTION`: one question in depth.

use std::process::ExitCode;

use stopgap_events::units::{Bytes, Nanos};
use stopgap_probes::Probe;
use stopgap_probes::chunks::vfio::VfioProbe;
use stopgap_probes::chunks::{Chunks, Fragment, Strategy};
use stopgap_probes::placement::Placement;
use stopgap_probes::reclaim::gem_syslatency::{Field, GemSyslatency};
use stopgap_probes::reclaim::{Mode, PressureParameters, Reclaim};
use stopgap_probes::roundtrip::{Matrix, Roundtrip, X11};
use stopgap_probes::wakeup::{Policy, Wakeup};
use stopgap_report::{details, screen};
use stopgap_stats::record::Answer;

use crate::args::{
    self, ChunksBackend, ChunksFlags, PlacementFlags, ProbeCommon, ProbeQuestion, ReclaimFlags,
    RoundtripFlags, WakeupFlags,
};
use crate::failure::{DONE, Failure, UNSUPPORTED};
use crate::output;
use crate::prediction;
use crate::session::{self, Session};

/// Within ten minutes with all that comes before and after.
const FRAGMENTED_TIME: Nanos = Nanos::secs(540);

/// Four modes six times each, within two minutes with all that comes before and after.
const RECLAIM_TIME: Nanos = Nanos::secs(110);

pub(crate) fn run(args: args::Probe) -> Result<ExitCode, Failure> {
    match args.question {
        ProbeQuestion::Placement(flags) => {
            let common = flags.common.clone();
            ask(&common, |session| placement(flags, session))
        }
        ProbeQuestion::Roundtrip(flags) => {
            let common = flags.common.clone();
            ask(&common, |_| roundtrip(flags))
        }
        ProbeQuestion::Chunks(flags) => {
            let mut common = flags.common.clone();
            if flags.backend == Some(ChunksBackend::Vfio) {
                let probe = vfio(&flags)?;
                return ask(&common, |_| probe);
            }
            if flags.fragment.is_some() {
                common.duration = common.duration.or(Some(FRAGMENTED_TIME));
            }
            ask(&common, |_| chunks(flags))
        }
        ProbeQuestion::Reclaim(flags) => {
            let mut common = flags.common.clone();
            if flags.gem.as_gem_syslatency {
                let field = flags.gem.field;
                return ask_and_print(&common, |_| gem_syslatency(&flags), field);
            }
            common.duration = common.duration.or(Some(RECLAIM_TIME));
            ask(&common, |_| reclaim(flags))
        }
        ProbeQuestion::Wakeup(flags) => {
            if flags.policy == Policy::Other && flags.priority.is_some() {
                return Err(Failure::error("--priority goes with --policy fifo alone"));
            }
            let common = flags.common.clone();
            ask(&common, |_| wakeup(&flags))
        }
    }
}

/// What was given, each once, because a value twice would count its runs twice; else what is
/// there anyway.
fn or<T: PartialEq>(given: Vec<T>, otherwise: Vec<T>) -> Vec<T> {
    if given.is_empty() {
        return otherwise;
    }
    let mut once = Vec::with_capacity(given.len());
    for value in given {
        if !once.contains(&value) {
            once.push(value);
        }
    }
    once
}

fn placement(flags: PlacementFlags, session: &Session) -> Box<dyn Probe> {
    let whole = Placement::check(session.system(), false);
    Box::new(Placement {
        ladder: or(flags.n, Vec::new()),
        few: false,
        also: None,
        backends: or(flags.backend, Vec::new()),
        steps: flags.steps,
        runs: flags.common.runs(),
        threads: match flags.threads {
            None => whole.threads,
            Some(threads) => threads.into_iter().filter(|&n| n != 0).collect(),
        },
        agua_loops: flags.agua_loops,
        agua_live: flags.agua_live,
        agua_drop: flags.agua_drop,
        freegap_rounds: flags.freegap_rounds,
    })
}

fn roundtrip(flags: RoundtripFlags) -> Box<dyn Probe> {
    let cpus = flags.common.common.cpus.clone().unwrap_or_default();
    if flags.x11 {
        // On one CPU it is bistable: only a distribution says something.
        let runs = flags.common.runs.unwrap_or(30);
        return Box::new(X11 { cpus, runs });
    }
    let whole = Matrix::default();
    let matrix = Matrix {
        clients: or(flags.client, whole.clients),
        servers: or(flags.server, whole.servers),
        descriptors: or(flags.k, whole.descriptors),
        work: or(flags.work, whole.work),
        batches: or(flags.batch, whole.batches),
        replies: or(flags.reply, whole.replies),
        cpus: or(flags.on, whole.cpus),
        policies: or(flags.policy, whole.policies),
    };
    Box::new(Roundtrip {
        cells: matrix.cells(),
        runs: flags.common.runs(),
        cpus,
        round_trips: flags.round_trips,
    })
}

fn reclaim(flags: ReclaimFlags) -> Box<dyn Probe> {
    let runs = flags.common.runs.unwrap_or(6);
    let modes = or(flags.mode, Vec::new());
    let (costs, beside) = match modes.is_empty() {
        true => (Mode::COSTS.to_vec(), Mode::LOADED.to_vec()),
        false => {
            let costs = modes.iter().copied().filter(|mode| mode.has_costs());
            (costs.collect(), modes.clone())
        }
    };
    let pressure = PressureParameters {
        modes: beside,
        load: flags.load,
        limit: flags.limit,
        pinned: or(flags.pinned, Vec::new()),
        file: flags.file,
        block: flags.block,
        runs,
        time: flags.each,
        stall: flags.stall,
        swappiness: flags.swappiness,
    };
    Box::new(Reclaim {
        modes: costs,
        bytes: flags.bytes,
        runs,
        passes: flags.passes,
        pressure: (!flags.no_load).then_some(pressure),
        swap: flags.swap,
        shrinker: flags.shrinker,
    })
}

fn gem_syslatency(flags: &ReclaimFlags) -> Box<dyn Probe> {
    Box::new(GemSyslatency {
        time: Nanos::secs(flags.gem.seconds.unwrap_or(10)),
        background: flags.gem.background.then(|| "/".into()),
        memory: flags.gem.memory_mode,
        stall: flags.stall,
    })
}

fn wakeup(flags: &WakeupFlags) -> Box<dyn Probe> {
    Box::new(Wakeup {
        interval: flags.interval,
        policy: flags.policy,
        priority: flags.priority.unwrap_or(80),
        stall: flags.stall,
        runs: flags.common.runs(),
    })
}

fn vfio(flags: &ChunksFlags) -> Result<Box<dyn Probe>, Failure> {
    let whole = VfioProbe::default();
    let size = match flags.size[..] {
        [] => whole.size,
        [size] => size,
        _ => return Err(Failure::error("--backend vfio takes one --size")),
    };
    Ok(Box::new(VfioProbe {
        device: flags.device,
        size,
        runs: flags.common.runs(),
        knobs: !flags.no_knobs,
        ..whole
    }))
}

fn chunks(flags: ChunksFlags) -> Box<dyn Probe> {
    let fragment = flags.fragment.map(|keep| Fragment {
        keep,
        pinned: flags.pinned,
    });
    // A fragmented state takes half a minute to make: less is taken from each by default.
    let (runs, sizes, strategies, buffers) = match fragment {
        None => (
            flags.common.runs(),
            vec![Bytes::mib(4), Bytes::mib(64)],
            Strategy::ALL.to_vec(),
            8,
        ),
        Some(_) => (
            flags.common.runs.unwrap_or(3),
            vec![Bytes::mib(64)],
            Strategy::FRAGMENTED.to_vec(),
            1,
        ),
    };
    Box::new(Chunks {
        sizes: or(flags.size, sizes),
        strategies: or(flags.strategy, strategies),
        runs,
        buffers: flags.buffers.unwrap_or(buffers),
        knobs: !flags.no_knobs,
        fragment,
    })
}

fn ask(
    flags: &ProbeCommon,
    probe: impl FnOnce(&Session) -> Box<dyn Probe>,
) -> Result<ExitCode, Failure> {
    ask_and_print(flags, probe, None)
}

/// Prints the answers, or of gem_syslatency's the one number that is asked for.
fn ask_and_print(
    flags: &ProbeCommon,
    probe: impl FnOnce(&Session) -> Box<dyn Probe>,
    field: Option<Field>,
) -> Result<ExitCode, Failure> {
    let mut session = Session::begin(&flags.common)?;
    let probe = probe(&session);
    if flags.common.dry_run {
        output::print(&describe(&session, probe.as_ref(), flags.duration())?)?;
        return Ok(ExitCode::from(DONE));
    }
    let snapshots = session.ask(probe.as_ref(), flags.duration())?;
    prediction::add(&mut session, &snapshots)?;
    session.end();
    let answered = session.run.answers.iter().all(Answer::answered);
    let name = format!("probe-{}", probe.question());
    let status = output::finish(
        &session.run,
        &name,
        &session.records,
        flags.common.json,
        |run, place| {
            if let Some(field) = field {
                let mut numbers = run.answers.iter().filter_map(|answer| field.print(answer));
                return numbers
                    .next()
                    .map_or_else(String::new, |number| number + "\n");
            }
            let style = session::style();
            let head = screen::environment_line(&run.environment, style);
            let answers = run.answers.iter().map(|a| details::answer(a, style));
            format!(
                "{head}{}\n{}",
                answers.collect::<String>(),
                screen::foot(run, place)
            )
        },
    )?;
    if answered {
        Ok(status)
    } else {
        Err(Failure::Silent {
            status: UNSUPPORTED,
        })
    }
}

/// What a probe would do, touch and use.
pub(crate) fn describe(
    session: &Session,
    probe: &dyn Probe,
    time: Nanos,
) -> Result<String, Failure> {
    let plan = session.plan(probe, time)?;
    let mut text = format!("{} {}\n", probe.question(), plan.what);
    text.push_str(&format!(
        "  uses at most {} of memory and about {}\n",
        plan.memory, plan.time
    ));
    if plan.touches.is_empty() {
        text.push_str("  changes no setting and leaves no file\n");
    }
    for touched in plan.touches {
        text.push_str(&format!("  touches and puts back {touched}\n"));
    }
    for missing in plan.missing {
        text.push_str(&format!("  unknown: {}: {}\n", missing.what, missing.why));
    }
    Ok(text)
}

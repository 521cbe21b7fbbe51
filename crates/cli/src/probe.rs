//! `stopgap probe QUESTION`: one question in depth.

mod again;

use std::process::ExitCode;

use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::Linux;
use stopgap_probes::Probe;
use stopgap_probes::chunks::vfio::VfioProbe;
use stopgap_probes::chunks::{Chunks, Fragment, Strategy};
use stopgap_probes::placement::Placement;
use stopgap_probes::reclaim::gem_syslatency::GemSyslatency;
use stopgap_probes::reclaim::{Mode, PressureParameters, Reclaim};
use stopgap_probes::roundtrip::{Matrix, Roundtrip, X11};
use stopgap_probes::wakeup::{Policy, Wakeup};
use stopgap_report::{details, screen};
use stopgap_stats::record::{Answer, Run};

use crate::args::{
    self, ChunksBackend, ChunksFlags, PlacementFlags, ProbeQuestion, ReclaimFlags, RoundtripFlags,
};
use crate::failure::{DONE, Failure, UNSUPPORTED};
use crate::output;
use crate::prediction;
use crate::session::Session;
use crate::voice;
use again::Earlier;

/// How long a probe takes by default.
const TIME: Nanos = Nanos::secs(60);

/// Within ten minutes with all that comes before and after.
const FRAGMENTED_TIME: Nanos = Nanos::secs(540);

/// Four modes six times each, within two minutes with all that comes before and after.
const RECLAIM_TIME: Nanos = Nanos::secs(110);

/// Runs of `reclaim` by default.
const RECLAIM_RUNS: u32 = 6;

pub(crate) fn run(args: &args::Probe) -> Result<ExitCode, Failure> {
    let asked = &args.question;
    let record = asked.common().again.as_deref();
    let earlier = record
        .map(|record| again::find(asked, record))
        .transpose()?;
    let question = match &earlier {
        Some(Earlier::Probe(question)) => question,
        _ => asked,
    };
    let flags = question.common();
    let (time, field) = match question {
        ProbeQuestion::Chunks(flags) if flags.fragment.is_some() => (FRAGMENTED_TIME, None),
        ProbeQuestion::Reclaim(flags) if flags.gem.as_gem_syslatency => (TIME, flags.gem.field),
        ProbeQuestion::Reclaim(_) => (RECLAIM_TIME, None),
        _ => (TIME, None),
    };
    let time = flags.duration.unwrap_or(time);
    let mut session = Session::begin(&flags.common)?;
    let probe = match earlier {
        Some(Earlier::Check { quick, mappings }) => {
            again::probe(asked.question(), quick, mappings, flags, RECLAIM_RUNS)
        }
        _ => probe(question, session.system())?,
    };
    if flags.common.dry_run {
        output::print(&describe(&session, probe.as_ref(), time)?)?;
        return Ok(ExitCode::from(DONE));
    }
    session.expect(time, false);
    let snapshots = session.ask(probe.as_ref(), time)?;
    prediction::add(&mut session, &snapshots)?;
    session.end();
    let answered = session.run.answers.iter().all(Answer::answered);
    let name = format!("probe-{}", probe.question());
    let status = output::finish(
        &session.run,
        &name,
        session.records.as_deref(),
        flags.common.json,
        |run, place| match field {
            Some(field) => {
                let mut numbers = run.answers.iter().filter_map(|answer| field.print(answer));
                numbers.next().map_or_else(String::new, |n| n + "\n")
            }
            None => screen(run, place),
        },
    )?;
    match answered {
        true => Ok(status),
        false => Err(Failure::Silent {
            status: UNSUPPORTED,
        }),
    }
}

fn screen(run: &Run, place: Option<&str>) -> String {
    let style = voice::style();
    let head = screen::environment_line(&run.environment, style);
    let answers = run.answers.iter().map(|a| details::answer(a, style));
    let answers: String = answers.collect();
    format!("{head}{answers}\n{}", screen::foot(run, place))
}

/// Makes the probe that the flags describe.
fn probe(question: &ProbeQuestion, system: &Linux) -> Result<Box<dyn Probe>, Failure> {
    Ok(match question {
        ProbeQuestion::Placement(flags) => Box::new(placement(flags, system)),
        ProbeQuestion::Roundtrip(flags) => roundtrip(flags),
        ProbeQuestion::Chunks(flags) if flags.backend == Some(ChunksBackend::Vfio) => {
            Box::new(vfio(flags)?)
        }
        ProbeQuestion::Chunks(flags) => Box::new(chunks(flags)),
        ProbeQuestion::Reclaim(flags) if flags.gem.as_gem_syslatency => Box::new(GemSyslatency {
            time: Nanos::secs(flags.gem.seconds.unwrap_or(10)),
            background: flags.gem.background.then(|| "/".into()),
            memory: flags.gem.memory_mode,
            stall: flags.stall,
        }),
        ProbeQuestion::Reclaim(flags) => Box::new(reclaim(flags)),
        ProbeQuestion::Wakeup(flags) => {
            if flags.policy == Policy::Other && flags.priority.is_some() {
                return Err(Failure::error("--priority needs --policy fifo"));
            }
            Box::new(Wakeup {
                interval: flags.interval,
                policy: flags.policy,
                priority: flags.priority.unwrap_or(80),
                stall: flags.stall,
                runs: flags.common.runs(),
            })
        }
    })
}

/// Returns the values `given`, each once because a value twice would count its runs twice; without any, `otherwise`.
fn or<T: PartialEq + Clone>(given: &[T], otherwise: impl Into<Vec<T>>) -> Vec<T> {
    if given.is_empty() {
        return otherwise.into();
    }
    let mut once = Vec::with_capacity(given.len());
    for value in given {
        if !once.contains(value) {
            once.push(value.clone());
        }
    }
    once
}

fn placement(flags: &PlacementFlags, system: &Linux) -> Placement {
    let threads = match &flags.threads {
        None => Placement::check(system, false).threads,
        Some(threads) => threads.iter().copied().filter(|&n| n != 0).collect(),
    };
    Placement {
        ladder: or(&flags.n, []),
        few: false,
        also: None,
        backends: or(&flags.backend, []),
        steps: flags.steps,
        runs: flags.common.runs(),
        threads,
        agua_loops: flags.agua_loops,
        agua_live: flags.agua_live,
        agua_drop: flags.agua_drop,
        freegap_rounds: flags.freegap_rounds,
    }
}

fn roundtrip(flags: &RoundtripFlags) -> Box<dyn Probe> {
    let cpus = flags.common.common.cpus.clone().unwrap_or_default();
    if flags.x11 {
        // On one CPU it is bistable: only a distribution says something.
        let runs = flags.common.runs.unwrap_or(30);
        return Box::new(X11 { cpus, runs });
    }
    let whole = Matrix::default();
    let matrix = Matrix {
        clients: or(&flags.client, whole.clients),
        servers: or(&flags.server, whole.servers),
        descriptors: or(&flags.k, whole.descriptors),
        work: or(&flags.work, whole.work),
        batches: or(&flags.batch, whole.batches),
        replies: or(&flags.reply, whole.replies),
        cpus: or(&flags.on, whole.cpus),
        policies: or(&flags.policy, whole.policies),
        ..whole
    };
    Box::new(Roundtrip {
        cells: matrix.cells(),
        runs: flags.common.runs(),
        cpus,
        round_trips: flags.round_trips,
    })
}

fn reclaim(flags: &ReclaimFlags) -> Reclaim {
    let runs = flags.common.runs.unwrap_or(RECLAIM_RUNS);
    let modes = or(&flags.mode, []);
    let (costs, beside) = match modes.is_empty() {
        true => (Mode::COSTS.to_vec(), Mode::LOADED.to_vec()),
        false => {
            let costs = modes.iter().copied().filter(|mode| mode.has_costs());
            (costs.collect(), modes)
        }
    };
    let pressure = PressureParameters {
        modes: beside,
        load: flags.load,
        limit: flags.limit,
        pinned: or(&flags.pinned, []),
        file: flags.file,
        block: flags.block,
        runs,
        time: flags.each,
        stall: flags.stall,
        swappiness: flags.swappiness,
    };
    Reclaim {
        modes: costs,
        bytes: flags.bytes,
        runs,
        passes: flags.passes,
        pressure: (!flags.no_load).then_some(pressure),
        swap: flags.swap,
        shrinker: flags.shrinker.clone(),
    }
}

fn vfio(flags: &ChunksFlags) -> Result<VfioProbe, Failure> {
    let whole = VfioProbe::default();
    let size = match flags.size[..] {
        [] => whole.size,
        [size] => size,
        _ => return Err(Failure::error("--backend vfio takes one --size")),
    };
    Ok(VfioProbe {
        device: flags.device,
        size,
        runs: flags.common.runs(),
        knobs: !flags.no_knobs,
        ..whole
    })
}

fn chunks(flags: &ChunksFlags) -> Chunks {
    let pinned = flags.pinned;
    let fragment = flags.fragment.map(|keep| Fragment { keep, pinned });
    // A fragmented state takes half a minute to make: less is taken from each by default.
    let (runs, sizes, strategies, buffers) = match fragment {
        None => (
            10,
            &[Bytes::mib(4), Bytes::mib(64)][..],
            &Strategy::ALL[..],
            8,
        ),
        Some(_) => (3, &[Bytes::mib(64)][..], &Strategy::FRAGMENTED[..], 1),
    };
    Chunks {
        sizes: or(&flags.size, sizes),
        strategies: or(&flags.strategy, strategies),
        runs: flags.common.runs.unwrap_or(runs),
        buffers: flags.buffers.unwrap_or(buffers),
        knobs: !flags.no_knobs,
        fragment,
    }
}

/// Describes what a probe would do, touch and use.
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

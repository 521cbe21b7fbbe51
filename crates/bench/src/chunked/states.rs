//! In memory that is fragmented and pinned: the longest block.

use stopgap_cli::{Failure, progress_bar, tell};
use stopgap_events::random::Random;
use stopgap_events::units::{Bytes, Nanos};
use stopgap_kernel::budget::meminfo;
use stopgap_kernel::memory::Advice;
use stopgap_kernel::{Linux, signals};
use stopgap_probes::chunks::fragment::recipe::Recipe;
use stopgap_probes::chunks::fragment::{Fragment, Maker, Ratio, fresh};

use super::side::{self, How, Side};
use super::{Bench, Bound, median};

/// How much longer than that of base pages the longest block of a chunked buffer may be.
const MOST: f64 = 2.0;

/// How many states in all may not come about before it is given up: others use memory as well.
const REFUSALS: u32 = 10;

const NAMES: [&str; 3] = ["chunked", "base pages", "thp-direct"];

pub(super) fn run(bench: &Bench<'_>) -> Result<Vec<Bound>, Failure> {
    let size = bench.flags.size;
    let mut random = Random::new(bench.flags.seed);
    let bar = progress_bar();
    let mut states: Vec<[Side; 3]> = Vec::new();
    let mut refusals = 0;
    println!(
        "\nfragmented, 1/4 of the frames kept and pinned; {size} each, `defrag` = {}",
        bench.flags.defrag
    );
    println!(
        "state  order                              chunked ms: all, worst  base: all, worst  direct: all, worst  worst/base"
    );
    for number in 0..bench.flags.states {
        if bench.over() {
            tell("time is over: fewer states");
            break;
        }
        bar.set_position(u64::from(number) * 1_000 / u64::from(bench.flags.states));
        let mut order = [0, 1, 2];
        random.shuffle(&mut order);
        let sides = loop {
            match state(bench, size, order) {
                Ok(sides) => break Some(sides),
                Err(why) if refusals >= REFUSALS => return Err(why),
                // Others took memory meanwhile, or gave large blocks back.
                Err(why) => {
                    refusals += 1;
                    let _ = why.report();
                }
            }
            if bench.over() {
                break None;
            }
            std::thread::sleep(std::time::Duration::from_secs(5));
        };
        let Some(sides) = sides else {
            tell("time is over: fewer states");
            break;
        };
        let line = line(number, order, &sides);
        bar.suspend(|| println!("{line}"));
        states.push(sides);
    }
    bar.finish_and_clear();
    if let Some([chunked, ..]) = states.last() {
        println!(
            "the last one got: {}",
            chunked.got.replace('\n', "\n                  ")
        );
    }
    let ratio = |sides: &[Side; 3]| per(sides[0].worst, sides[1].worst);
    let direct = |sides: &[Side; 3]| per(sides[2].worst, sides[1].worst);
    let Some(value) = median(states.iter().map(ratio).collect()) else {
        return Err(Failure::error("not one state was made"));
    };
    if let Some(direct) = median(states.iter().map(direct).collect()) {
        println!(
            "median of {}: thp-direct's worst is {direct:.1} times that of base pages",
            states.len()
        );
    }
    let what = format!(
        "median of {} states, worst 2 MiB of chunked over base pages'",
        states.len()
    );
    Ok(vec![Bound {
        what,
        value,
        most: MOST,
    }])
}

fn per(a: Nanos, b: Nanos) -> f64 {
    a.0 as f64 / (b.0 as f64).max(1.0)
}

fn line(number: u32, order: [usize; 3], sides: &[Side; 3]) -> String {
    let ms = |time: Nanos| time.0 as f64 / 1e6;
    let order = order.map(|at| NAMES[at]).join(", ");
    let mut line = format!("{number:>5}  {order:<34}");
    for side in sides {
        line += &format!(" {:>9.1} {:>8.2}", ms(side.total), ms(side.worst));
    }
    let [chunked, base, direct] = sides.each_ref().map(|side| side.direct);
    let ratio = per(sides[0].worst, sides[1].worst);
    line + &format!("  {ratio:>6.2}  {chunked}, {base}, {direct}")
}

/// A fresh state, and all sides in it in this order.
fn state(bench: &Bench<'_>, size: Bytes, order: [usize; 3]) -> Result<[Side; 3], Failure> {
    let keep = Ratio::new(4).ok_or_else(|| Failure::error("no ratio"))?;
    let fragment = Fragment { keep, pinned: true };
    let recipe = Recipe::new(
        fragment,
        meminfo(&Linux, "MemFree")?,
        meminfo(&Linux, "MemAvailable")?,
        meminfo(&Linux, "MemTotal")?,
    )
    .map_err(Failure::error)?;
    let need = recipe.peak() + size;
    if need > bench.flags.memory {
        let most = Bytes::gib(need.0.div_ceil(1 << 30)).short();
        return Err(Failure::error(format!(
            "a fragmented state takes up to {need} for a time: allow it with --memory {most}"
        )));
    }
    let maker = Maker {
        system: &Linux,
        journal: bench.journal,
        time: Nanos::secs(180),
        interrupted: &signals::interrupted,
    };
    let mut left = Vec::new();
    let state = fresh(&maker, &recipe, &mut left);
    if let Some(why) = left.first() {
        return Err(Failure::error(format!("putting a knob back: {why}")));
    }
    let state = state.map_err(Failure::error)?;
    let mut sides: [Side; 3] = Default::default();
    let mut all = || {
        for at in order {
            sides[at] = one(bench, at, size)?;
        }
        Ok(())
    };
    let done = all();
    state.release();
    done.map(|()| sides)
}

fn one(bench: &Bench<'_>, which: usize, size: Bytes) -> Result<Side, Failure> {
    match which {
        0 => bench.with_knobs(
            |journal| side::allow(journal, &bench.flags.defrag),
            || side::take(How::Chunked { hugetlb: false }, size),
        ),
        1 => side::take(How::Touch(Advice::NoHugePage), size),
        _ => bench.with_knobs(side::direct, || {
            side::take(How::Touch(Advice::HugePage), size)
        }),
    }
}

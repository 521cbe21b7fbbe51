//! What the machine does while a run takes place: steal, the CPU time of others, frequency, temperature.

use stopgap_events::machine::Conditions;
use stopgap_events::units::Nanos;

use crate::System;
use crate::cpu_time::{CpuTime, of_machine, of_process};
use crate::files::{list_if_there, read_number};

/// CPU time is counted in ticks of 10 ms: a share of less than this would be rounding.
const LEAST: Nanos = Nanos::millis(500);

/// No sensor of a working machine shows more, millidegrees.
const HOTTEST: u64 = 150_000;

/// CPU time as a run begins.
#[derive(Debug, Clone, Copy)]
pub struct Watch {
    /// The machine's, and this process's with the children that it waited for.
    before: Option<(CpuTime, Nanos)>,
}

impl Watch {
    /// Looks as a run begins.
    #[must_use]
    pub fn begin(system: &dyn System) -> Watch {
        Watch {
            before: now(system),
        }
    }

    /// Looks as the run ends, whose children were waited for. What cannot be read is `None`.
    #[must_use]
    pub fn end(&self, system: &dyn System) -> Conditions {
        let passed = self.before.zip(now(system));
        let share = passed.and_then(|((first, own), (last, own_last))| {
            let all = last.all.saturating_sub(first.all);
            let of = |time: Nanos| time.0 as f64 / all.0 as f64 * 100.0;
            let busy = last.busy.saturating_sub(first.busy);
            let others = busy.saturating_sub(own_last.saturating_sub(own));
            (all >= LEAST).then(|| (of(last.steal.saturating_sub(first.steal)), of(others)))
        });
        Conditions {
            steal: share.map(|(steal, _)| steal),
            others: share.map(|(_, others)| others),
            frequency_mhz: frequency(system),
            temperature_c: temperature(system),
        }
    }
}

fn now(system: &dyn System) -> Option<(CpuTime, Nanos)> {
    Some((
        of_machine(system).ok()?,
        of_process(system, system.pid()).ok()?,
    ))
}

/// Returns the numbers in `FOLDER/PREFIX*/file`.
fn numbers(system: &dyn System, folder: &str, prefix: &str, file: &str) -> Vec<u64> {
    let names = list_if_there(system, folder).unwrap_or_default();
    let of = names.iter().filter(|name| {
        let number = name.strip_prefix(prefix);
        number.is_some_and(|number| number.parse::<u32>().is_ok())
    });
    of.filter_map(|name| read_number(system, format!("{folder}/{name}/{file}")).ok())
        .collect()
}

fn frequency(system: &dyn System) -> Option<f64> {
    let file = "cpufreq/scaling_cur_freq";
    let each: Vec<u64> = numbers(system, "/sys/devices/system/cpu", "cpu", file);
    let sum: f64 = each.iter().map(|&khz| khz as f64 / 1e3).sum();
    (!each.is_empty()).then(|| sum / each.len() as f64)
}

fn temperature(system: &dyn System) -> Option<f64> {
    let each = numbers(system, "/sys/class/thermal", "thermal_zone", "temp");
    // A sensor that is switched off shows 0, or nonsense.
    let hottest = each.into_iter().filter(|&of| of > 0 && of <= HOTTEST).max();
    hottest.map(|millidegrees| millidegrees as f64 / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;
    use crate::tasks::Tasks;

    fn machine(cpu: &str, own: u32) -> Fake {
        let pid = Fake::default().pid();
        let stat = format!("{pid} (a) S 1 7 7 0 -1 4 9 8 0 0 {own} 0 0 0 20 0 1 0 5 6 7\n");
        Fake::default()
            .with_file("/proc/stat", format!("cpu  {cpu}\n"))
            .with_file(format!("/proc/{pid}/stat"), stat)
    }

    #[test]
    fn shares_are_of_the_time_between() {
        let before = machine("100 0 0 1000 0 0 0 50 0 0", 10);
        let watch = Watch::begin(&before);
        // 200 ticks later: 60 of ours, 20 of others, 10 stolen.
        let after = machine("180 0 0 1110 0 0 0 60 0 0", 70)
            .with_file(
                "/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq",
                "2000000\n",
            )
            .with_file(
                "/sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq",
                "3000000\n",
            )
            .with_file("/sys/devices/system/cpu/cpufreq/x", "1\n")
            .with_file("/sys/class/thermal/thermal_zone0/temp", "48000\n")
            .with_file("/sys/class/thermal/thermal_zone1/temp", "0\n");
        let expected = Conditions {
            steal: Some(5.0),
            others: Some(10.0),
            frequency_mhz: Some(2_500.0),
            temperature_c: Some(48.0),
        };
        assert_eq!(watch.end(&after), expected);
    }

    #[test]
    fn what_cannot_be_read_is_unknown() {
        let watch = Watch::begin(&Fake::default());
        assert_eq!(watch.end(&Fake::default()), Conditions::default());
        // So short that ticks are all there is to see.
        let machine = machine("100 0 0 1000 0 0 0 50 0 0", 10);
        assert_eq!(Watch::begin(&machine).end(&machine).steal, None);
    }
}

use stopgap_events::units::Nanos;

use super::Fake;
use crate::error::{Error, Result};
use crate::switches::SwitchEvents;
use crate::tasks::{ChildBody, ChildLimits, ChildOutcome, Running, Switches, Tasks};

impl Tasks for Fake {
    fn cpus(&self) -> Result<Vec<u32>> {
        Ok(vec![0])
    }

    fn set_cpus(&self, cpus: &[u32]) -> Result<()> {
        if cpus.contains(&0) {
            return Ok(());
        }
        Err(Error::refusal(
            "sched_setaffinity",
            format!("{cpus:?}"),
            libc::EINVAL,
        ))
    }

    /// Runs the bodies here, one after the other: there is only one process.
    fn run_children(
        &self,
        _limits: &ChildLimits,
        bodies: Vec<ChildBody<'_>>,
    ) -> Vec<Result<ChildOutcome>> {
        bodies
            .into_iter()
            .map(|body| {
                Ok(ChildOutcome {
                    output: body(),
                    peak_resident: 0,
                })
            })
            .collect()
    }

    /// Refused: there is only one process.
    fn start_child(&self, _limits: &ChildLimits, _body: ChildBody<'_>) -> Result<Running> {
        Err(Error::refusal("fork", "load child", libc::ENOSYS))
    }

    fn oom_score_fixed(&self) -> Option<Error> {
        None
    }

    /// None: there is nobody to switch to.
    fn switches(&self) -> Result<Switches> {
        Ok(Switches::default())
    }

    /// Refused, for what its `kernel.perf_event_paranoid` says.
    fn switch_events(&self) -> Result<SwitchEvents> {
        Err(crate::switches::refused(self, libc::EACCES))
    }

    fn set_batch(&self) -> Result<()> {
        Ok(())
    }

    fn set_timer_slack(&self, _slack: Nanos) -> Result<()> {
        Ok(())
    }

    fn uid(&self) -> u32 {
        0
    }

    fn pid(&self) -> u32 {
        1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::status_switches;

    #[test]
    fn switch_records_are_refused_with_the_setting_that_does_it() {
        let fake = Fake::default().with_file("/proc/sys/kernel/perf_event_paranoid", "3\n");
        let error = fake.switch_events().unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
        assert!(
            error.to_string().contains("perf_event_paranoid is 3"),
            "{error}"
        );
    }

    #[test]
    fn status_is_read_and_what_is_wrong_with_it_is_said() {
        let path = "/proc/thread-self/status";
        let fake = Fake::default().with_file(
            path,
            "Name:\tx\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t3\n",
        );
        let expected = Switches {
            voluntary: 12,
            involuntary: 3,
        };
        assert_eq!(status_switches(&fake).unwrap(), expected);
        fake.put(path, "voluntary_ctxt_switches:\tmany\n");
        let error = status_switches(&fake).unwrap_err().to_string();
        assert!(
            error.contains(path) && error.contains("'voluntary_ctxt"),
            "{error}"
        );
    }
}

use super::field;
use crate::tasks::Switches;

/// Context switches of a task since it began. `None` where the kernel does not print them.
pub(crate) fn switches(status: &str) -> Option<Switches> {
    Some(Switches {
        voluntary: number(status, "voluntary_ctxt_switches")?,
        involuntary: number(status, "nonvoluntary_ctxt_switches")?,
    })
}

/// A plain number.
pub(crate) fn number(status: &str, name: &str) -> Option<u64> {
    field(status, name)?.parse().ok()
}

/// The task's name (`comm`).
pub(crate) fn name(status: &str) -> String {
    field(status, "Name").unwrap_or("?").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::memory;
    use stopgap_events::units::Bytes;

    const STATUS: &str = "Name:\tX org\nTgid:\t7\nPid:\t7\nVmLck:\t      12 kB\nVmPin:\tx kB\n\
        voluntary_ctxt_switches:\t151\nnonvoluntary_ctxt_switches:\t12\n";

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let all = switches(STATUS).unwrap();
        assert_eq!((all.voluntary, all.involuntary), (151, 12));
        assert_eq!(memory(STATUS, "VmLck"), Some(Bytes::kib(12)));
        assert_eq!(name(STATUS), "X org");
    }

    #[test]
    fn what_is_not_there_or_broken_is_unknown() {
        assert_eq!(switches("Name:\ta\nvoluntary_ctxt_switches:\t1\n"), None);
        assert_eq!(memory(STATUS, "VmPin"), None);
        assert_eq!(memory(STATUS, "VmSwap"), None);
        let too_much = format!("VmSwap:\t{} kB", u64::MAX);
        assert_eq!(memory(&too_much, "VmSwap"), None);
    }
}

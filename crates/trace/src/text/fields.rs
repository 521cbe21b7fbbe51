//! The fields of an event as the kernel prints them: `name=value name=value`.

use std::borrow::Cow;

use crate::kernel_event;

/// The text of a line after the event's name.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields<'l>(pub(super) &'l str);

impl<'l> Fields<'l> {
    /// Where the value of `name` begins.
    fn find(self, name: &str) -> Option<&'l str> {
        self.0.match_indices(name).find_map(|(at, _)| {
            let begins = at == 0 || self.0[..at].ends_with(char::is_whitespace);
            let value = self.0[at + name.len()..].strip_prefix('=');
            value.filter(|_| begins)
        })
    }

    /// Returns the value of `name`, which has no space in it.
    pub(super) fn word(self, name: &str) -> Option<&'l str> {
        let value = self.find(name)?;
        let value = value.split([' ', '\t']).next()?;
        let value = value.trim_end_matches(',');
        (!value.is_empty()).then_some(value)
    }

    /// Returns the value of `name`, which goes up to `next`.
    pub(super) fn until(self, name: &str, next: &str) -> Option<&'l str> {
        let value = self.find(name)?;
        let end = value.match_indices(next).find(|&(at, _)| {
            let ends = value[..at].ends_with(' ');
            ends && value[at + next.len()..].starts_with('=')
        });
        end.map(|(at, _)| value[..at].trim_end())
    }

    /// Returns the value of `name` as a number that is neither negative nor larger than 32 bits.
    pub(super) fn u32(self, name: &str) -> Option<u32> {
        u32::try_from(number(self.word(name)?)?).ok()
    }

    /// Returns the value of `name` as a number.
    pub(super) fn i32(self, name: &str) -> Option<i32> {
        self.word(name)?.parse().ok()
    }

    /// Returns the word after `label`, where labels have spaces in them.
    fn after(self, label: &str) -> Option<&'l str> {
        let (_, rest) = self.0.split_once(label)?;
        rest.split_ascii_whitespace().next()
    }

    /// Returns what stands between `open` and the next closing parenthesis.
    fn within(self, open: &str) -> Option<&'l str> {
        let (_, rest) = self.0.split_once(open)?;
        rest.split(')').next().filter(|inside| !inside.is_empty())
    }

    fn first(self) -> Option<&'l str> {
        self.0.split_ascii_whitespace().next()
    }
}

/// A thread as libtraceevent's plug-in prints it: `name:tid [priority]`, and what follows.
#[derive(Debug)]
pub(super) struct Task<'l> {
    pub(super) comm: &'l str,
    pub(super) tid: u32,
    pub(super) priority: Option<i32>,
    pub(super) rest: &'l str,
}

impl<'l> Task<'l> {
    pub(super) fn parse(text: &'l str) -> Option<Task<'l>> {
        let (name, rest) = text.rsplit_once('[')?;
        let (priority, rest) = rest.split_once(']')?;
        let (comm, tid) = name.trim_end().rsplit_once(':')?;
        Some(Task {
            comm: comm.trim_start(),
            tid: tid.parse().ok()?,
            priority: priority.parse().ok(),
            rest: rest.trim(),
        })
    }
}

/// A line, with its values under the names of the kernel's fields.
pub(super) struct Line<'l> {
    event: &'l str,
    fields: Fields<'l>,
}

impl<'l> Line<'l> {
    pub(super) fn new(event: &'l str, fields: &'l str) -> Line<'l> {
        let fields = Fields(fields);
        Line { event, fields }
    }

    /// Returns the label under which the line has a field.
    pub(super) fn label<'n>(&self, name: &'n str) -> &'n str {
        match (self.event, name) {
            ("vm_unmapped_area", "length") => "len",
            ("vm_unmapped_area", "low_limit") => "lo",
            ("vm_unmapped_area", "high_limit") => "hi",
            ("vm_unmapped_area", "align_mask") => "mask",
            ("vm_unmapped_area", "align_offset") => "ofs",
            ("mm_shrink_slab_start" | "mm_shrink_slab_end", "nid") => "nid: ",
            ("mm_shrink_slab_start" | "mm_shrink_slab_end", "total_scan") => "total_scan ",
            ("mm_shrink_slab_start", "gfp_flags") => "gfp_flags ",
            ("mm_shrink_slab_end", "retval") => "return val ",
            ("signal_generate", "group") => "grp",
            ("signal_generate", "result") => "res",
            ("contention_begin", "flags") => "(flags=",
            ("contention_end", "ret") => "(ret=",
            ("mm_compaction_begin", "sync") => "mode",
            ("posix_lock_inode" | "flock_lock_inode", "i_ino") => "ino",
            ("posix_lock_inode" | "flock_lock_inode", "s_dev") => "dev",
            ("posix_lock_inode" | "flock_lock_inode", "owner") => "fl_owner",
            ("posix_lock_inode" | "flock_lock_inode", "flags") => "fl_flags",
            ("posix_lock_inode" | "flock_lock_inode", "type") => "fl_type",
            _ => name,
        }
    }

    /// Returns the value of a field as it is printed.
    fn value(&self, name: &str) -> Option<&'l str> {
        match self.label(name) {
            "lock_addr" => self.fields.first(),
            // The kernel's own spelling, since it prints the field.
            "usec_delayed" => (self.fields.word("usect_delayed")).or(self.fields.word(name)),
            label if label.ends_with(' ') => self.fields.after(label),
            label if label.starts_with('(') => self.fields.within(label),
            label => self.fields.word(label),
        }
    }

    /// Returns the thread that is woken, where libtraceevent's plug-in printed the line: `a:1 [120] CPU:000`.
    fn woken(&self) -> Option<Task<'l>> {
        let plug_in = matches!(self.event, "sched_waking" | "sched_wakeup_new")
            && self.fields.word("pid").is_none();
        plug_in.then(|| Task::parse(self.fields.0)).flatten()
    }
}

impl kernel_event::Fields for Line<'_> {
    fn u64(&self, name: &str) -> Option<u64> {
        number(self.value(name)?)
    }

    fn i64(&self, name: &str) -> Option<i64> {
        self.value(name)?.parse().ok()
    }

    fn u32(&self, name: &str) -> Option<u32> {
        match (name, self.woken()) {
            ("pid", Some(task)) => Some(task.tid),
            ("target_cpu", Some(task)) => task.rest.split_once("CPU:")?.1.trim().parse().ok(),
            _ => u32::try_from(self.u64(name)?).ok(),
        }
    }

    fn i32(&self, name: &str) -> Option<i32> {
        match (name, self.woken()) {
            ("prio", Some(task)) => task.priority,
            _ => self.value(name)?.parse().ok(),
        }
    }

    fn address(&self, name: &str) -> Option<u64> {
        // The kernel has either in one field.
        let error = (name == "addr").then(|| self.i64("err")).flatten();
        match error {
            Some(error) if error != 0 => Some(error.cast_unsigned()),
            _ => hexadecimal(self.value(name)?),
        }
    }

    fn flag(&self, name: &str) -> Option<bool> {
        match self.value(name)? {
            "true" | "sync" => Some(true),
            "false" => Some(false),
            _ if name == "sync" => Some(false),
            word => number(word).map(|number| number != 0),
        }
    }

    fn text(&self, name: &str) -> Option<Cow<'_, str>> {
        let next = match name {
            "comm" | "filename" => "pid",
            "child_comm" => "child_pid",
            "driver" => "timeline",
            _ => "context",
        };
        let text = match self.woken() {
            Some(task) => Some(task.comm),
            None => self.fields.until(name, next),
        };
        text.map(Cow::Borrowed)
    }

    /// `0x8:0x1`, as the kernel prints it, or decimal.
    fn device(&self, name: &str) -> Option<String> {
        let (major, minor) = self.value(name)?.split_once(':')?;
        Some(format!("{}:{}", number(major)?, number(minor)?))
    }

    fn words(&self, name: &str) -> Option<Cow<'_, str>> {
        self.value(name).map(Cow::Borrowed)
    }

    /// `super_cache_scan+0x0/0x1a0 000000..: nid: 0 ...`
    fn function(&self, _: &str) -> Option<Cow<'_, str>> {
        let name = self.fields.first()?.split('+').next()?;
        (!name.is_empty()).then_some(Cow::Borrowed(name))
    }
}

/// Decimal, or hexadecimal after `0x`.
pub(super) fn number(word: &str) -> Option<u64> {
    match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
}

/// Hexadecimal, with or without `0x`.
pub(super) fn hexadecimal(word: &str) -> Option<u64> {
    u64::from_str_radix(word.strip_prefix("0x").unwrap_or(word), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_end_alike_are_told_apart() {
        let fields = Fields("comm=a b=c pid=7 child_comm=x y child_pid=0x1f mode=sync,");
        assert_eq!(fields.until("comm", "pid"), Some("a b=c"));
        assert_eq!(fields.until("child_comm", "child_pid"), Some("x y"));
        assert_eq!(fields.u32("pid"), Some(7));
        assert_eq!(fields.u32("child_pid"), Some(31));
        assert_eq!(fields.word("mode"), Some("sync"));
        assert_eq!((fields.word("id"), fields.word("c")), (None, None));
        assert_eq!(Fields("pid=").word("pid"), None);
        assert_eq!(Fields("n=-3").i32("n"), Some(-3));
    }
}

//! The fields of an event as the kernel prints them: `name=value name=value`.

/// What an event's line says after its name.
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

    /// The value of `name`, which has no space in it.
    pub(super) fn word(self, name: &str) -> Option<&'l str> {
        let value = self.find(name)?;
        let value = value.split([' ', '\t']).next()?;
        let value = value.trim_end_matches(',');
        (!value.is_empty()).then_some(value)
    }

    /// The value of `name`, which goes up to `next`.
    pub(super) fn until(self, name: &str, next: &str) -> Option<&'l str> {
        let value = self.find(name)?;
        let end = value.match_indices(next).find(|&(at, _)| {
            let ends = value[..at].ends_with(' ');
            ends && value[at + next.len()..].starts_with('=')
        });
        end.map(|(at, _)| value[..at].trim_end())
    }

    /// The value of `name` as a number that is not negative.
    pub(super) fn u64(self, name: &str) -> Option<u64> {
        number(self.word(name)?)
    }

    pub(super) fn u32(self, name: &str) -> Option<u32> {
        u32::try_from(self.u64(name)?).ok()
    }

    pub(super) fn i64(self, name: &str) -> Option<i64> {
        self.word(name)?.parse().ok()
    }

    pub(super) fn i32(self, name: &str) -> Option<i32> {
        self.word(name)?.parse().ok()
    }

    /// The value of `name` as an address: hexadecimal, with or without `0x`.
    pub(super) fn address(self, name: &str) -> Option<u64> {
        hexadecimal(self.word(name)?)
    }

    /// `true`, `false`, or a number.
    pub(super) fn flag(self, name: &str) -> Option<bool> {
        match self.word(name)? {
            "true" => Some(true),
            "false" => Some(false),
            word => number(word).map(|number| number != 0),
        }
    }

    /// `found`, or that `name` has no such value.
    pub(super) fn need<T>(name: &str, found: Option<T>) -> Result<T, String> {
        found.ok_or_else(|| format!("no value that can be read for {name}"))
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
        assert_eq!(
            (fields.u32("pid"), fields.u64("child_pid")),
            (Some(7), Some(31))
        );
        assert_eq!(fields.word("mode"), Some("sync"));
        assert_eq!((fields.word("id"), fields.word("c")), (None, None));
        assert_eq!(Fields("pid=").word("pid"), None);
        assert_eq!(Fields("n=-3").i64("n"), Some(-3));
    }
}

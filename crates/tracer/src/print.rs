//! The names of flags and states, from the C source in an event's `print fmt`: every kernel says
//! itself what its numbers mean.
//!
//! ```text
//! __print_symbolic(REC->status, {1, "skipped"}, {2, "deferred"}, ...)
//! __print_flags(REC->gfp_flags, "|", {( unsigned long)(( gfp_t)((((1UL))) << (6))), "__GFP_IO"}, ...)
//! ```

/// Numbers and their names, in the kernel's order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Names(Vec<(u64, String)>);

impl Names {
    /// The pairs `{ number, "name" }` after the first use of `field` in a `__print_flags` or
    /// `__print_symbolic` of `print`; none where there is no such thing. A number that is no
    /// constant expression is left out.
    #[must_use]
    pub fn parse(print: &str, field: &str) -> Names {
        let uses = format!("REC->{field}");
        let call = ["__print_flags(", "__print_symbolic("]
            .iter()
            .flat_map(|call| print.match_indices(call).map(|(at, call)| at + call.len()))
            .filter(|&at| {
                let argument = print[at..].split(',').next().unwrap_or("");
                argument.match_indices(&uses).any(|(found, _)| {
                    let after = argument[found + uses.len()..].chars().next();
                    !after.is_some_and(|c| c.is_alphanumeric() || c == '_')
                })
            })
            .min();
        let Some(start) = call else {
            return Names::default();
        };
        let mut names = Vec::new();
        let mut rest = &print[start..];
        // Pairs follow each other; the call ends where no brace comes before its parenthesis.
        while let Some(open) = rest.find('{') {
            if rest[..open].contains("__print_") || ends_before(&rest[..open], names.is_empty()) {
                break;
            }
            let Some(close) = rest[open..].find('}') else {
                break;
            };
            let pair = &rest[open + 1..open + close];
            if let Some((number, name)) = pair.rsplit_once(',')
                && let Some(number) = constant(number)
                && let Some(name) = name.trim().strip_prefix('"')
            {
                names.push((number, name.trim_end_matches('"').to_owned()));
            }
            rest = &rest[open + close + 1..];
        }
        Names(names)
    }

    /// The name of exactly this number.
    #[must_use]
    pub fn symbol(&self, number: u64) -> Option<&str> {
        let pair = self.0.iter().find(|(known, _)| *known == number);
        pair.map(|(_, name)| name.as_str())
    }

    /// The names of the flags in `bits`, joined by `|` as the kernel joins them
    /// (`trace_print_flags_seq()`): what has no name is in hexadecimal. `None` for no bits.
    #[must_use]
    pub fn flags(&self, mut bits: u64) -> Option<String> {
        if bits == 0 {
            return None;
        }
        let mut words = Vec::new();
        for (mask, name) in &self.0 {
            if *mask != 0 && bits & mask == *mask {
                words.push(name.clone());
                bits &= !mask;
            }
        }
        if bits != 0 {
            words.push(format!("{bits:#x}"));
        }
        Some(words.join("|"))
    }

    /// The largest of the numbers.
    #[must_use]
    pub fn largest(&self) -> Option<u64> {
        self.0.iter().map(|(number, _)| *number).max()
    }
}

/// Whether the call has ended in what stands before the next brace: more parentheses close than
/// open. Before the first pair stand the call's other arguments, which are expressions.
fn ends_before(text: &str, first: bool) -> bool {
    let mut depth = 0_i32;
    for c in text.chars() {
        depth += match c {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        if depth < 0 {
            return true;
        }
    }
    !first && text.contains('"')
}

/// The value of a constant expression of C: numbers, `| & << >> + - ~`, parentheses, casts.
fn constant(text: &str) -> Option<u64> {
    let mut parser = Parser {
        rest: text.trim(),
        depth: 0,
    };
    let value = parser.binary(0)?;
    parser.rest.trim().is_empty().then_some(value)
}

/// Operators, loosest first.
const LEVELS: [&[&str]; 4] = [&["|"], &["&"], &["<<", ">>"], &["+", "-"]];
/// Nested parentheses: gfp flags have some 20.
const DEEPEST: u32 = 100;

struct Parser<'t> {
    rest: &'t str,
    depth: u32,
}

impl Parser<'_> {
    fn accept(&mut self, token: &str) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn binary(&mut self, level: usize) -> Option<u64> {
        let Some(operators) = LEVELS.get(level) else {
            return self.unary();
        };
        let mut left = self.binary(level + 1)?;
        while let Some(operator) = operators.iter().find(|operator| self.accept(operator)) {
            let right = self.binary(level + 1)?;
            let by = u32::try_from(right).unwrap_or(64);
            left = match *operator {
                "|" => left | right,
                "&" => left & right,
                "<<" => left.checked_shl(by)?,
                ">>" => left.checked_shr(by)?,
                "+" => left.wrapping_add(right),
                _ => left.wrapping_sub(right),
            };
        }
        Some(left)
    }

    fn unary(&mut self) -> Option<u64> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return None;
        }
        let value = if self.accept("~") {
            !self.unary()?
        } else if self.accept("-") {
            self.unary()?.wrapping_neg()
        } else if self.accept("(") {
            let end = self.rest.find(')')?;
            let inside = self.rest[..end].trim();
            let word = |c: char| c.is_alphanumeric() || c == '_' || c.is_whitespace() || c == '*';
            if inside.starts_with(|c: char| c.is_alphabetic() || c == '_')
                && inside.chars().all(word)
            {
                self.rest = &self.rest[end + 1..];
                self.unary()? // a cast: none here makes a value smaller
            } else {
                let value = self.binary(0)?;
                self.accept(")").then_some(value)?
            }
        } else {
            self.number()?
        };
        self.depth -= 1;
        Some(value)
    }

    fn number(&mut self) -> Option<u64> {
        self.rest = self.rest.trim_start();
        let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric());
        let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        let digits = word.trim_end_matches(['U', 'L', 'u', 'l']);
        let number = match digits.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => digits.parse(),
        };
        self.rest = rest;
        number.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_computed_as_c_does() {
        for (text, value) in [
            ("1", 1),
            (" 0x00000080", 128),
            ("(1U << 5)", 32),
            ("( gfp_t)((((1UL))) << (10))", 1024),
            (
                "( unsigned long)(((( gfp_t)1|( gfp_t)8)) & ~(( gfp_t)((((1UL))) << (3))))",
                1,
            ),
            ("((1 + 1) << 1) - 1", 3),
            ("-1", u64::MAX),
        ] {
            assert_eq!(constant(text), Some(value), "{text}");
        }
        for text in [
            "",
            "REC->flags",
            "(1",
            "1 <<",
            "1 << 64",
            "IOPRIO_CLASS_RT",
            "1 2",
        ] {
            assert_eq!(constant(text), None, "{text}");
        }
        assert_eq!(constant(&"(".repeat(100_000)), None);
        assert_eq!(constant(&"~".repeat(100_000)), None);
    }

    #[test]
    fn each_field_has_its_own_names() {
        let print = r#""a=%s b=%s", __print_flags(REC->a, "|", { (1U << 0), "SPIN" }, { 2, "READ" }), __print_symbolic((((REC->bee) >> 13) & 7), { 1, "one" }, { WORD, "none" }), REC->b"#;
        let a = Names::parse(print, "a");
        assert_eq!(a.flags(3).as_deref(), Some("SPIN|READ"));
        assert_eq!(a.flags(6).as_deref(), Some("READ|0x4"));
        assert_eq!(a.flags(0), None);
        let bee = Names::parse(print, "bee");
        assert_eq!((bee.symbol(1), bee.symbol(2)), (Some("one"), None));
        assert_eq!(Names::parse(print, "b"), Names::default());
        assert_eq!(Names::parse("__print_flags(REC->a", "a"), Names::default());
        assert_eq!(
            Names::parse("__print_flags(REC->a, {", "a"),
            Names::default()
        );
    }
}

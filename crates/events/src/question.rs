//! The questions that stopgap answers. Each has one word, which modules, sub-commands, records and documents share, and one row
//! of [`FACTS`].

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::Nanos;
use crate::words;

/// A question to stopgap, as records name it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Question {
    /// Does mapping memory slow down as mappings pile up?
    Placement,
    /// Does a request and its reply cost more context switches than they must?
    Roundtrip,
    /// Does building a big buffer stall, and can the IOMMU map it well?
    Chunks,
    /// Do held buffers make everyone else wait when memory is short?
    Reclaim,
    /// How late does a thread wake? A measurement without blame, so `check` asks it only on request.
    Wakeup,
}

/// What the rest of stopgap has to know of a question. A further question is one more row of [`FACTS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// The question.
    pub question: Question,
    /// The question in one sentence.
    pub asks: &'static str,
    /// Whether `check` asks it unless told otherwise.
    pub in_check: bool,
    /// How long its part of `check` may take. All parts and NOW end within 75 s.
    pub check_time: Nanos,
    /// The same for `check --quick`, which ends within 15 s.
    pub quick_time: Nanos,
    /// The series whose latency the question is judged by.
    pub led_by: &'static str,
    /// The workload of that series, where the series exists for several workloads.
    pub led_by_workload: Option<&'static str>,
    /// The series by which two occasions are compared, each in all setups together; the first one tells most.
    pub judged_by: &'static [&'static str],
}

/// The facts of every question, in the order in which `check` asks.
pub const FACTS: [Facts; 5] = [
    Facts {
        question: Question::Placement,
        asks: "does mapping memory slow down as mappings pile up?",
        in_check: true,
        check_time: Nanos::secs(22),
        quick_time: Nanos::secs(3),
        led_by: "map",
        led_by_workload: Some("pbobench"),
        judged_by: &["map"],
    },
    Facts {
        question: Question::Roundtrip,
        asks: "does a request and its reply cost more context switches than they must?",
        in_check: true,
        check_time: Nanos::secs(14),
        quick_time: Nanos::secs(3),
        led_by: "latency",
        led_by_workload: None,
        judged_by: &["switches", "CPU time", "latency"],
    },
    Facts {
        question: Question::Chunks,
        asks: "does building a big buffer stall, and can the IOMMU map it well?",
        in_check: true,
        check_time: Nanos::secs(14),
        quick_time: Nanos::secs(3),
        led_by: "block",
        led_by_workload: None,
        judged_by: &["block"],
    },
    Facts {
        question: Question::Reclaim,
        asks: "do held buffers make everyone else wait when memory is short?",
        in_check: true,
        check_time: Nanos::secs(16),
        quick_time: Nanos::secs(3),
        led_by: "populate a block",
        led_by_workload: None,
        judged_by: &["populate a block"],
    },
    Facts {
        question: Question::Wakeup,
        asks: "how late does a thread wake?",
        in_check: false,
        check_time: Nanos::secs(10),
        quick_time: Nanos::secs(3),
        led_by: "wake-up",
        led_by_workload: None,
        judged_by: &["wake-up"],
    },
];

impl Question {
    /// The questions that `check` asks unless told otherwise, in its order.
    pub const FOUR: [Question; 4] = [
        Question::Placement,
        Question::Roundtrip,
        Question::Chunks,
        Question::Reclaim,
    ];

    /// Returns the question's row of [`FACTS`].
    #[must_use]
    pub const fn facts(self) -> &'static Facts {
        &FACTS[self as usize]
    }
}

words!(
    Question, "question",
    Placement "placement",
    Roundtrip "roundtrip",
    Chunks "chunks",
    Reclaim "reclaim",
    Wakeup "wakeup",
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_question_has_its_row_in_the_order_of_all() {
        assert_eq!(FACTS.map(|facts| facts.question), Question::ALL);
        let asked = FACTS.iter().filter(|facts| facts.in_check);
        assert!(asked.map(|facts| &facts.question).eq(&Question::FOUR));
    }

    #[test]
    fn words_read_back() {
        for &question in Question::ALL {
            assert_eq!(question.word().parse::<Question>(), Ok(question));
        }
        assert!("gpu".parse::<Question>().unwrap_err().contains("placement"));
    }
}

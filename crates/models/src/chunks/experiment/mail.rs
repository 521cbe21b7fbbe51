//! Mail 001's times, beside the model's.

use stopgap_chunks::policy::Name;
use stopgap_stats::replay::chunks::{MailKind, MailTime};

/// Milliseconds that a 4 MiB buffer took in mail 001, and what they are to the model. `old` is the usual bad case
/// (120 s were seen once); the others are what its author saw "still" or "at most".
pub const MAIL_001: [(Name, f64, MailKind); 5] = [
    (Name::Old, 24_000.0, MailKind::Compared),
    (Name::OnePage, 250.0, MailKind::Fitted),
    (Name::Sticky, 3_208.093_877, MailKind::Compared),
    (Name::Start64k, 674.318_751, MailKind::Compared),
    (Name::Fold, 450.0, MailKind::Compared),
];

/// Base pages of the mail's buffer, and their bytes.
pub const BUFFER: (u64, u64) = (1_024, 4_096);

/// A modelled time beside the mail's; a policy that the mail has no time of has none.
#[must_use]
pub fn beside(policy: Name, time_ms: f64) -> MailTime {
    let measured = MAIL_001.iter().find(|(name, ..)| *name == policy);
    MailTime {
        mail_ms: measured.map(|(_, ms, _)| *ms),
        factor: measured.map(|(_, ms, _)| time_ms / ms),
        kind: measured.map_or(MailKind::Absent, |(.., kind)| *kind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_never_measured_has_no_time() {
        let sticky = beside(Name::Sticky, 1_604.046_938_5);
        assert_eq!(
            (sticky.factor, sticky.kind),
            (Some(0.5), MailKind::Compared)
        );
        assert_eq!(beside(Name::OnePage, 250.0).kind, MailKind::Fitted);
        let list = beside(Name::List, 600.0);
        assert_eq!((list.mail_ms, list.factor), (None, None));
        assert_eq!(list.kind, MailKind::Absent);
    }
}

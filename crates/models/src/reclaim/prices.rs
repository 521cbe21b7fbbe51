//! Prices of all steps, each with its source.

use stopgap_stats::replay::chunks::Assumption;

/// Nanoseconds a page, except where noted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prices {
    /// Allocating, clearing, mapping and later unmapping a page of a populated block.
    pub fault: u64,
    /// Bringing a page of a file, and copying it.
    pub read: u64,
    /// Copying a page that is there.
    pub hit: u64,
    /// Entering reclaim, a call.
    pub call: u64,
    /// A page that is scanned and stays: taken off its list, looked at, put back.
    pub kept: u64,
    /// A clean page that is scanned and freed.
    pub clean: u64,
    /// An anonymous or shmem page that is written to swap and freed.
    pub written: u64,
    /// A page that is moved from an active list to an inactive one.
    pub deactivate: u64,
    /// A page that must stay, met on a list: moved to the unevictable one.
    pub cull: u64,
    /// Allocating and clearing a page of an object.
    pub fill: u64,
    /// Taking a reference.
    pub pin: u64,
    /// Locking a single page and moving it.
    pub lock: u64,
    /// Marking a mapping, an object.
    pub mark: u64,
    /// Dropping a reference.
    pub unpin: u64,
    /// Moving a page back to the lists alone, a lock hold each.
    pub unlock: u64,
    /// Moving a page back to the lists, in a batch.
    pub move_back: u64,
    /// Looking a page up a second time, as the second pass over a file does.
    pub walk: u64,
    /// Freeing a page of an object that is not needed any more.
    pub purge: u64,
    /// The part of taking a page off a list, or putting it on one, with interrupts off.
    pub list: u64,
}

const PAGE: &str = "ns a page";

impl Prices {
    /// Linux 6.18 in a virtual machine of 2 CPUs (`probe reclaim`; docs/questions/reclaim.md): what is held against what
    /// is not, per page scanned and per GiB read.
    /// Both CPUs at work, as they are in the probe's load: they are two threads of one core, and each takes about twice
    /// as long as alone.
    pub const RECENT: Prices = Prices {
        fault: 1_000,
        read: 650,
        hit: 250,
        call: 300,
        kept: 250,
        clean: 50,
        written: 2_950,
        deactivate: 60,
        cull: 375,
        fill: 400,
        pin: 80,
        lock: 341,
        mark: 2_000,
        unpin: 36,
        unlock: 182,
        move_back: 114,
        walk: 60,
        purge: 100,
        list: 20,
    };

    /// Mail 004's machine (Kaby Lake, 2018, one LRU lock for a whole node): populating is fitted to the mail's mean beside
    /// nothing held, which is therefore no prediction. No other price is fitted to the mail.
    pub const MAIL: Prices = Prices {
        fault: 1_450,
        read: 260,
        hit: 120,
        kept: 230,
        clean: 60,
        deactivate: 30,
        ..Prices::RECENT
    };

    /// Returns each with its name and source, for a record.
    #[must_use]
    pub fn assumptions(&self) -> Vec<Assumption> {
        const SCANS: &str = "measured: PSI a GiB read, pinned against locked, a scan";
        const BLOCKS: &str = "measured by probe reclaim: a block of 2 MiB in 0.6 ms";
        const RATES: &str = "assumption: so that as many pages are reclaimed a second, beside nothing held, as /proc/vmstat counts";
        const SHARE: &str = "fit: 64 MiB of 128 MiB pinned";
        const MEASURED: &str = "measured by probe reclaim";
        const TOLD: &str = "assumption";
        let mail = *self == Prices::MAIL;
        let of = |mails: &'static str, else_: &'static str| if mail { mails } else { else_ };
        [
            (
                "populating",
                self.fault,
                PAGE,
                of("fit: mail 004, idle", BLOCKS),
            ),
            (
                "reading from a file",
                self.read,
                PAGE,
                of("measured: system time a GiB read", RATES),
            ),
            ("reading what is there", self.hit, PAGE, TOLD),
            ("a call of reclaim", self.call, "ns", TOLD),
            ("scanned and kept", self.kept, PAGE, of(SCANS, SHARE)),
            ("scanned and freed, clean", self.clean, PAGE, TOLD),
            ("scanned and freed, to swap", self.written, PAGE, MEASURED),
            ("made inactive", self.deactivate, PAGE, TOLD),
            (
                "met and moved to the unevictable list",
                self.cull,
                PAGE,
                MEASURED,
            ),
            ("filling an object", self.fill, PAGE, TOLD),
            ("taking a reference", self.pin, PAGE, MEASURED),
            ("locking", self.lock, PAGE, MEASURED),
            (
                "marking a mapping",
                self.mark,
                "ns a 16 MiB object",
                MEASURED,
            ),
            ("dropping a reference", self.unpin, PAGE, MEASURED),
            ("moving back alone", self.unlock, PAGE, MEASURED),
            (
                "moving back in a batch",
                self.move_back,
                PAGE,
                "measured: SHM_UNLOCK less the look-up",
            ),
            (
                "looking up in a second pass",
                self.walk,
                PAGE,
                "assumed part of SHM_UNLOCK, of which the whole is measured",
            ),
            ("freeing a purged page", self.purge, PAGE, TOLD),
            ("on or off a list, interrupts off", self.list, PAGE, TOLD),
        ]
        .into_iter()
        .map(|(name, ns, unit, why)| Assumption::new(name, ns as f64, unit, why))
        .collect()
    }
}

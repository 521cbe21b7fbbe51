//! What a guest said, as it is judged; a boot that says nothing to rely on says why.

use crate::Boot;
use crate::judge::{self, Booted, Said};
use stopgap_events::machine::Missing;
use stopgap_guest::protocol::{DMA, Dma, Transcript, Unit};

/// A boot, read.
pub(crate) struct Read {
    pub(crate) booted: Booted,
    /// `uname -r` of the guest.
    pub(crate) release: Option<String>,
}

/// Reads a boot's lines.
pub(crate) fn read(boot: &Boot, repetition: u32) -> Read {
    let mut of = judge::Boot {
        seed: boot.seed,
        repetition,
        whole: false,
        end: boot.why.clone(),
        last_lines: boot.console.clone(),
        set_aside: false,
    };
    let nothing = |of| Read {
        booted: Booted {
            boot: of,
            said: Vec::new(),
            dma: Vec::new(),
            missing: Vec::new(),
        },
        release: None,
    };
    if !boot.is_whole() {
        return nothing(of);
    }
    let read = Transcript::read(&boot.lines).and_then(|transcript| {
        let figures = (said(&transcript, boot.seed)?, dma(&transcript)?);
        Ok((figures, transcript))
    });
    let ((said, dma), transcript) = match read {
        Ok(read) => read,
        Err(wrong) => {
            of.end = wrong;
            return nothing(of);
        }
    };
    let failed = transcript.failed.into_iter();
    let mut missing: Vec<Missing> = failed.map(|(name, why)| Missing::new(name, why)).collect();
    missing.extend(transcript.missing);
    of.whole = true;
    of.end = "powered off".to_owned();
    of.last_lines.clear();
    Read {
        booted: Booted {
            boot: of,
            said,
            dma,
            missing,
        },
        release: Some(transcript.hello.release),
    }
}

/// The counts, if they are guest instructions of that layout.
fn said(transcript: &Transcript, seed: u64) -> Result<Vec<Said>, String> {
    let hello = &transcript.hello;
    if hello.seed != seed {
        return Err(format!(
            "the guest took layout {}, not {seed}: its kernel's command line is not ours",
            hello.seed
        ));
    }
    match hello.unit {
        Unit::Instructions { per_tick: 1 } => {}
        // The machine pins the counter's frequency, so no figure of ours is a multiple of anything.
        Unit::Instructions { per_tick } => {
            return Err(format!(
                "the guest's counter counts in steps of {per_tick} instructions: QEMU did not set its frequency to 1 GHz"
            ));
        }
        Unit::Ticks => {
            return Err(
                "the guest's counter does not count instructions: a loop of known length took another number of ticks"
                    .to_owned(),
            );
        }
    }
    let each = transcript.counted.iter().map(|counted| Said {
        cell: counted.name.clone(),
        operation: counted.operation.clone(),
        counts: counted.counts.clone(),
    });
    Ok(each.collect())
}

/// Returns the guest's readings of the IOMMU, by cell.
fn dma(transcript: &Transcript) -> Result<Vec<(String, Dma)>, String> {
    let mut all = Vec::new();
    for ((cell, name), bytes) in &transcript.files {
        if let (Some(cell), DMA) = (cell, name.as_str()) {
            let read = Dma::from_json(bytes).map_err(|why| format!("{cell}: {why}"))?;
            all.push((cell.clone(), read));
        }
    }
    Ok(all)
}

/// A command line of QEMU's with words in the place of what differs from boot to boot, or is gone after it.
pub(crate) fn pinned(words: &[String], unpacked: bool) -> Vec<String> {
    let mut before = "";
    let mut pinned = Vec::with_capacity(words.len());
    for word in words {
        let shown = match before {
            "-initrd" => "INITRAMFS".to_owned(),
            "-kernel" if unpacked => "KERNEL".to_owned(),
            "-seed" => "SEED".to_owned(),
            "-append" => {
                let each = word.split(' ').map(|word| {
                    let seed = word.starts_with(stopgap_guest::protocol::SEED);
                    if seed { "stopgap.seed=SEED" } else { word }
                });
                each.collect::<Vec<_>>().join(" ")
            }
            _ => word.clone(),
        };
        pinned.push(shown);
        before = word;
    }
    pinned
}

#[cfg(test)]
mod tests {
    use stopgap_guest::protocol::Line;

    use super::*;
    use crate::End;
    use crate::testing::hello;

    const INSTRUCTIONS: Unit = Unit::Instructions { per_tick: 1 };

    fn boot(lines: &[Line]) -> Boot {
        crate::testing::boot(3, lines)
    }

    fn counts() -> Line {
        Line::Counts {
            name: "fork".to_owned(),
            operation: "wait".to_owned(),
            counts: "5x2 7x1".parse().unwrap(),
        }
    }

    #[test]
    fn a_whole_boot_has_its_counts() {
        let failed = Line::Failed {
            name: "vgem N=1".to_owned(),
            why: "no device".to_owned(),
        };
        let lines = [
            hello(3, INSTRUCTIONS),
            counts(),
            failed,
            Line::Done { lines: 3 },
        ];
        let read = read(&boot(&lines), 1);
        assert_eq!(read.release.as_deref(), Some("6.12.0"));
        let booted = read.booted;
        assert!(booted.boot.whole && booted.boot.last_lines.is_empty());
        assert_eq!((booted.boot.seed, booted.boot.repetition), (3, 1));
        assert_eq!(booted.said[0].counts.to_string(), "5x2 7x1");
        assert_eq!(booted.missing, [Missing::new("vgem N=1", "no device")]);
    }

    #[test]
    fn what_the_iommu_took_is_read_and_what_is_no_such_file_says_so() {
        let told = |text: &str| {
            let mut lines = vec![hello(3, INSTRUCTIONS), counts()];
            lines.extend(Line::file(Some("vfio 4K"), DMA, text.as_bytes()));
            lines.push(Line::Done { lines: 3 });
            read(&boot(&lines), 0).booted
        };
        let booted = told(
            "{\"entries\": {\"unknown\": \"a\"}, \"physical_runs\": 4, \"table_pages\": 2, \"copied_bytes\": 32768}",
        );
        assert!(booted.boot.whole, "{}", booted.boot.end);
        let [(cell, dma)] = &booted.dma[..] else {
            panic!("{booted:?}")
        };
        assert_eq!(
            (cell.as_str(), dma.physical_runs.get()),
            ("vfio 4K", Ok(&4))
        );
        let booted = told("{}");
        assert!(
            !booted.boot.whole && booted.boot.end.starts_with("vfio 4K: vfio.json: "),
            "{}",
            booted.boot.end
        );
    }

    #[test]
    fn a_boot_that_cannot_be_relied_on_says_why_and_counts_for_nothing() {
        let whole = [hello(3, INSTRUCTIONS), counts(), Line::Done { lines: 2 }];
        let mut torn = boot(&whole);
        torn.lines[1].truncate(30);
        let mut elsewhere = boot(&whole);
        elsewhere.seed = 4;
        let mut killed = boot(&whole[..2]);
        killed.end = End::TimeLimit;
        killed.why = "it had not ended after 120 s".to_owned();
        let ticks = boot(&[hello(3, Unit::Ticks), counts(), Line::Done { lines: 2 }]);
        let coarse = Unit::Instructions { per_tick: 16 };
        let coarse = boot(&[hello(3, coarse), counts(), Line::Done { lines: 2 }]);
        for (boot, says) in [
            (coarse, "in steps of 16 instructions"),
            (torn, "torn"),
            (boot(&whole[..2]), "did not come to its end"),
            (elsewhere, "layout 3, not 4"),
            (killed, "it had not ended after 120 s"),
            (ticks, "does not count instructions"),
        ] {
            let booted = read(&boot, 0).booted;
            assert!(!booted.boot.whole && booted.said.is_empty());
            assert!(booted.boot.end.contains(says), "{}", booted.boot.end);
            assert_eq!(booted.boot.last_lines, ["a last line"]);
        }
    }

    #[test]
    fn a_command_line_is_pinned_but_for_what_differs() {
        let words = "q -seed 7 -kernel /tmp/x/vmlinuz -initrd /tmp/y -append";
        let mut words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        words.push("quiet stopgap.seed=7 panic=-1".to_owned());
        let pinned = |unpacked| super::pinned(&words, unpacked).join(" ");
        let rest = "-initrd INITRAMFS -append quiet stopgap.seed=SEED panic=-1";
        assert_eq!(pinned(true), format!("q -seed SEED -kernel KERNEL {rest}"));
        assert_eq!(
            pinned(false),
            format!("q -seed SEED -kernel /tmp/x/vmlinuz {rest}")
        );
    }
}

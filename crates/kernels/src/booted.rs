//! What a guest said, as it is judged; a boot that says nothing to rely on says why.

use crate::Boot;
use crate::judge::{self, Booted};
use stopgap_events::machine::Missing;
use stopgap_guest::protocol::{DMA, Dma, Transcript, Unit};

/// Reads a boot's lines.
pub(crate) fn read(boot: &Boot, repetition: u32) -> Booted {
    let figures = match boot.is_whole() {
        true => Transcript::read(&boot.lines).and_then(|said| figures(said, boot.seed)),
        false => Err(boot.why.clone()),
    };
    let (whole, end, last_lines, figures) = match figures {
        Ok(figures) => (true, "powered off".to_owned(), Vec::new(), figures),
        Err(why) => (false, why, boot.console.clone(), Booted::default()),
    };
    let of = judge::Boot {
        seed: boot.seed,
        repetition,
        whole,
        end,
        last_lines,
        set_aside: false,
    };
    Booted {
        boot: of,
        ..figures
    }
}

/// The figures, if they are guest instructions of that layout.
fn figures(transcript: Transcript, seed: u64) -> Result<Booted, String> {
    let hello = transcript.hello;
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
    let mut dma = Vec::new();
    for ((cell, name), bytes) in transcript.files {
        if let (Some(cell), DMA) = (cell, name.as_str()) {
            let read = Dma::from_json(&bytes).map_err(|why| format!("{cell}: {why}"))?;
            dma.push((cell, read));
        }
    }
    let failed = transcript.failed.into_iter();
    let failed = failed.map(|(name, why)| Missing::new(name, why));
    Ok(Booted {
        boot: judge::Boot::default(),
        release: Some(hello.release),
        said: transcript.counted,
        dma,
        missing: failed.chain(transcript.missing).collect(),
    })
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
        crate::testing::counted("fork", "wait", "5x2 7x1")
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
        let booted = read(&boot(&lines), 1);
        assert_eq!(booted.release.as_deref(), Some("6.12.0"));
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
            read(&boot(&lines), 0)
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
            let booted = read(&boot, 0);
            assert!(!booted.boot.whole && booted.said.is_empty());
            assert!(booted.boot.end.contains(says), "{}", booted.boot.end);
            assert_eq!(booted.boot.last_lines, ["a last line"]);
        }
    }
}

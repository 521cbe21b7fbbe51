//! Mail 003.

use super::claim::{Command, Kind, Mail, claim, command, model};
use super::mail_000::looked_at_grows;
use super::record::{Record, ms, n, ns, seen, within};

/// The probe of mails 000 and 003.
pub(super) static PROBE: Command = command("probe placement --runs 5 --duration 180s", Kind::Live);
static AGUA: Command = model(
    "replay placement agua --policy linux-3.4,van-riel-v1,linux-3.8",
    "--ops {}",
    4_000_000,
);
static FREEGAP: Command = model(
    "replay placement freegap --policy linux-3.4,linux-3.8,van-riel-v1,weiner-lazy",
    "--ops {}",
    1_000_000,
);
static LADDER: Command = model(
    "replay placement pbobench --policy linux-3.4,van-riel-v1,linux-3.8 --n 1k,2k,5k,10k",
    "--ops {}",
    200_000,
);

/// Returns what agua prints of its loops by linux-3.4 and by van-riel-v1: `avg_ms`, `max_ms`, `min_ms` or `sd_ms`.
fn loops(record: &Record, what: &str) -> Result<(f64, f64), String> {
    let at = |policy| record.row(policy)?.f(&format!("loops.{what}"));
    Ok((at("policy=linux-3.4")?, at("policy=van-riel-v1")?))
}

/// Returns a row's figure of `freegap`'s forms.
fn freegap(record: &Record, form: &str, policy: &str, figure: &str) -> Result<f64, String> {
    let row = record.row(&format!("workload=freegap-{form} policy={policy}"))?;
    match figure {
        "steps" => Ok(row.f("propagated")? / row.f("operations")?),
        _ => row.f(figure),
    }
}

pub(super) static MAIL: Mail = Mail {
    number: "003",
    title: "van Riel and Weiner, June 2012, linux-mm: a tree of gaps, and what it costs",
    claims: &[
        claim(
            "agua: the patches make the mean loop several times shorter",
            "65",
            "Avg. Time (ms): 294.0000",
        )
        .figures("294 -> 38 ms a loop (lines 65 and 75), 7.7 times less, and 31 ms by the next version")
        .test(
            &[&AGUA],
            "the mean loop gets 7.7 times shorter, within a factor of 2: the mail's time is that of whole system calls, on another machine",
            |r| {
                let (old, new) = loops(&r[0], "avg_ms")?;
                seen(within(2.0, old / new, 7.7), format!("{} -> {}, {}x", ms(old), ms(new), n(old / new)))
            },
        )
        .because(
            "the model times the search alone. The mail's loop of 10,000 maps holds system calls and page tables as well, which cost \
             the same before and after and make its factor smaller; the direction agrees",
        )
        .conclusion(),
        claim("agua: the patched search looks at less", "56-58", "Testing performance with a benchmark that allocates tens of thousands of VMAs, unmaps them and mmaps them some more in a loop, shows promising results.")
            .test(
                &[&AGUA],
                "van-riel-v1 visits fewer mappings or nodes than linux-3.4; counts of visits depend on no machine",
                |r| {
                    let at = |policy| -> Result<f64, String> {
                        let row = r[0].row(policy)?;
                        Ok(row.f("visited")? / row.f("maps")?)
                    };
                    let (old, new) = (at("policy=linux-3.4")?, at("policy=van-riel-v1")?);
                    seen(new < old, format!("{} -> {} visits a map", n(old), n(new)))
                },
            ),
        claim(
            "agua keeps tens of thousands of mappings",
            "56-57",
            "a benchmark that allocates tens of thousands of VMAs",
        )
        .test(&[&AGUA], "between 20,000 and 200,000 ranges are held at the end", |r| {
            let live = r[0].row("policy=linux-3.4")?.f("live")?;
            seen((20_000.0..=200_000.0).contains(&live), format!("{} held", n(live)))
        }),
        claim(
            "the linear search hurts programs with many mappings",
            "16-18",
            "The linear search in arch_get_unmapped_area and arch_get_unmapped_area_topdown can be a real issue for those programs.",
        )
        .test(&[&LADDER], "the mappings that linux-3.4 looks at for a map grow as N to a power between 0.8 and 1.1, from N = 1,000 to 10,000", |r| {
            let exponent = looked_at_grows(&r[0], "linux-3.4", 1_000, 10_000)?;
            seen((0.8..=1.1).contains(&exponent.0), exponent.1)
        }),
        claim(
            "tracking each hole in the tree mends that",
            "20-22",
            "fix the scalability issue by tracking the size of each free hole in the VMA rbtree, propagating the free hole info up the tree",
        )
        .test(
            &[&LADDER],
            "from N = 1,000 to 10,000 mappings, 10 times, the work of a map in van-riel-v1 at most doubles; a search and an update that are logarithmic grow by 1.3 each",
            |r| {
                let at = |n| r[0].row(n)?.f("work_per_map");
                let few = at("policy=van-riel-v1 n=1000")?;
                let many = at("policy=van-riel-v1 n=10000")?;
                seen(many <= 2.0 * few, format!("{} -> {} a map, {}x", n(few), n(many), n(many / few)))
            },
        ),
        claim(
            "freegap as posted: the patches take longer",
            "105",
            "patched: 1.710614276 seconds time elapsed",
        )
        .figures("0.80 -> 1.71 s, 2.13 times as long")
        .test(
            &[&FREEGAP],
            "van-riel-v1 takes longer than linux-3.4, at most 2 times 2.13: the model has no system call around the search, so only the direction and an upper end are known",
            |r| {
                let at = |policy| freegap(&r[0], "posted", policy, "ns_per_operation");
                let (old, new) = (at("linux-3.4")?, at("van-riel-v1")?);
                let text = format!("{} -> {}, {}x", ns(old), ns(new), n(new / old));
                seen((1.0..=4.3).contains(&(new / old)), text)
            },
        )
        .conclusion(),
        claim(
            "freegap as corrected: the patches take longer",
            "100-101",
            "a worst-case scenario that creates a bunch of vmas next to each other and then unmaps and remaps one in the middle",
        )
        .figures("the author's corrected runs, two days later on the same list: 8.0 -> 18.8 s (`innermprot`) and 5.0 -> 12.7 s (`innerremap`)")
        .test(
            &[&FREEGAP],
            "van-riel-v1 takes longer than linux-3.4 in both forms",
            |r| {
                let (mut holds, mut texts) = (true, Vec::new());
                for form in ["innermprot", "innerremap"] {
                    let at = |policy| freegap(&r[0], form, policy, "ns_per_operation");
                    let (old, new) = (at("linux-3.4")?, at("van-riel-v1")?);
                    holds &= new > old;
                    texts.push(format!("{form} {} -> {}, {}x", ns(old), ns(new), n(new / old)));
                }
                seen(holds, texts.join("; "))
            },
        )
        .conclusion(),
        claim(
            "the cause is the propagation up the tree",
            "98-100",
            "I suspect this comes from the freegap propagation, which can be quite a bit of work if vmas are created, split/merged, or unmapped deep down in the rb tree",
        )
        .test(
            &[&FREEGAP],
            "van-riel-v1 recomputes at least 5 nodes an operation in both corrected forms, and linux-3.4 none",
            |r| {
                let at = |form, policy| freegap(&r[0], form, policy, "steps");
                let (protect, remap) = (at("innermprot", "van-riel-v1")?, at("innerremap", "van-riel-v1")?);
                let old = at("innermprot", "linux-3.4")? + at("innerremap", "linux-3.4")?;
                let text = format!("{} (innermprot) and {} (innerremap) nodes an operation, {} in linux-3.4", n(protect), n(remap), n(old));
                seen(protect >= 5.0 && remap >= 5.0 && old == 0.0, text)
            },
        ),
        claim(
            "this is the worst case",
            "100",
            "Here is a worst-case scenario",
        )
        .test(
            &[&FREEGAP, &LADDER],
            "van-riel-v1 recomputes more nodes an operation than in pbobench at N = 10,000, which has more mappings",
            |r| {
                let worst = freegap(&r[0], "innermprot", "van-riel-v1", "steps")?;
                let row = r[1].row("policy=van-riel-v1 n=10000")?;
                let usual = row.f("propagated")? / row.f("operations")?;
                seen(worst > usual, format!("{} nodes an operation, {} in pbobench", n(worst), n(usual)))
            },
        )
        .because("the first version climbs to the root after every change, so each load that changes mappings in a tree as deep pays about as much"),
        claim(
            "the posted test is a deep tree",
            "100-101",
            "creates a bunch of vmas next to each other",
        )
        .test(
            &[&FREEGAP],
            "the posted form recomputes at least half as many nodes an operation as the author's corrected one",
            |r| {
                let at = |form| freegap(&r[0], form, "van-riel-v1", "steps");
                let (posted, corrected) = (at("posted")?, at("innermprot")?);
                seen(posted >= corrected / 2.0, format!("{} nodes an operation, {} when corrected", n(posted), n(corrected)))
            },
        )
        .because("all 1,025 mappings have the same protection, so the kernel merges them into one, and the tree stays small. Two days later the author said so himself"),
        claim(
            "lazy updates would need no extra work where a mapping is protected and unprotected",
            "135-136",
            "so no extra work in this case",
        )
        .test(&[&FREEGAP], "weiner-lazy recomputes less than 0.01 nodes an operation in innermprot", |r| {
            let steps = freegap(&r[0], "innermprot", "weiner-lazy", "steps")?;
            seen(steps < 0.01, format!("{} nodes an operation", n(steps)))
        }),
        claim(
            "lazy updates would need no extra work where a mapping is unmapped and mapped again",
            "132-134",
            "it would first move to the left-most gap but then the vma that'd need propagation would always be the same neighboring one",
        )
        .test(&[&FREEGAP], "weiner-lazy recomputes less than 0.01 nodes an operation in innerremap", |r| {
            let steps = freegap(&r[0], "innerremap", "weiner-lazy", "steps")?;
            let looked = freegap(&r[0], "innerremap", "weiner-lazy", "visited")? / freegap(&r[0], "innerremap", "weiner-lazy", "maps")?;
            seen(steps < 0.01, format!("{} nodes an operation; its searches look at {} nodes a map", n(steps), n(looked)))
        })
        .more("nobody built it"),
        claim(
            "splits and merges that change no hole need no update",
            "141-142",
            "vma_adjust() could probably be more discriminate about splits and merges where the holes don't change, no?",
        )
        .test(&[&FREEGAP], "what was merged (linux-3.8) recomputes at most a fifth of van-riel-v1's nodes in innermprot", |r| {
            let at = |policy| freegap(&r[0], "innermprot", policy, "steps");
            let (first, merged) = (at("van-riel-v1")?, at("linux-3.8")?);
            seen(merged <= first / 5.0, format!("{} -> {} nodes an operation", n(first), n(merged)))
        }),
        claim(
            "programs may have no more than 64k mappings",
            "12-13",
            "A long time ago, we decided to limit the number of VMAs per process to 64k.",
        )
        .test(&[&PROBE], "this machine's vm.max_map_count is within 10 % of 65,536", |r| {
            let most = r[0].f("environment.max_map_count")?;
            seen(within(1.1, most, 65_536.0), format!("vm.max_map_count = {}", n(most)))
        }),
        claim(
            "kernel builds take as long, with a little more system time",
            "96",
            "Walltime is unchanged, but system time went up a tiny notch.",
        )
        .figures("elapsed 273.95 -> 274.11 s, system 49.36 -> 50.16 s (lines 89 to 93)")
        .lacks("a machine that boots linux-next of June 2012 with and without the patches (no such kernel is at hand, and an emulated one has no time)"),
        claim(
            "the profile of freegap",
            "119",
            "28.36% freegap [kernel.kallsyms] [k] vma_rb_augment_cb",
        )
        .figures("28.4 % in vma_rb_augment_cb and 12.2 % in rb_augment_path, of the patched kernel")
        .lacks("a CPU with performance counters, and a machine that boots the patched 3.5-rc3"),
        claim(
            "agua: the worst loop gets 10 times shorter",
            "81-83",
            "the worst case performance of the loop (which is what really hurt some applications) has gone down by about a factor 10",
        )
        .figures("609 -> 60 ms (lines 66 and 76)")
        .test(&[&AGUA], "the longest loop gets shorter by a factor of 10, within a factor of 2", |r| {
            let (old, new) = loops(&r[0], "max_ms")?;
            seen(within(2.0, old / new, 10.0), format!("{} -> {}, {}x", ms(old), ms(new), n(old / new)))
        })
        .because("the mail's loops hold system calls and page tables, which have a worst case of their own, and the model's only the search; the longest of some 200 loops is chance as well"),
        claim("agua: the loops become even", "67", "Std Dev (ms): 113.1664")
            .figures("standard deviation 113 -> 3.9 ms (lines 67 and 77)")
            .test(&[&AGUA], "the standard deviation falls to less than half", |r| {
                let (old, new) = loops(&r[0], "sd_ms")?;
                seen(new < old / 2.0, format!("{} -> {}", ms(old), ms(new)))
            }),
        claim("agua: the shortest loop gets longer", "64", "Min Time (ms): 6")
            .figures("6 -> 14 ms (lines 64 and 74)")
            .test(&[&AGUA], "the shortest loop of van-riel-v1 is longer than that of linux-3.4", |r| {
                let (old, new) = loops(&r[0], "min_ms")?;
                seen(new > old, format!("{} -> {}", ms(old), ms(new)))
            }),
    ],
};

//! Mail 002.

use super::claim::{Command, Kind, Mail, Seen, claim, command, model};
use super::record::{Record, n, seen, within};

/// The mail's worst case: a client that draws, requests that take long, a server that waits for many descriptors.
static WORST: Command = model(
    "replay roundtrip --policy linux-2.6.35 --client poll --server select --k 50 --work 3950us --think 6ms \
     --keyed no,yes --preempt yes,no",
    "--round-trips {}",
    2_000,
)
.quick();
/// The same where a request takes 0.5 ms.
static SHORT: Command = model(
    "replay roundtrip --policy linux-2.6.35 --client poll --server select --k 50 --work 500us --think 6ms \
     --keyed no,yes --preempt yes,no",
    "--round-trips {}",
    2_000,
)
.quick();
static GATHERED: Command = model(
    "replay roundtrip --policy linux-2.6.35 --client poll --server select --k 50 --work 0 --batch 1,32 --keyed no",
    "--round-trips {}",
    2_000,
)
.quick();
static LATER: Command = model(
    "replay roundtrip --policy linux-6.12 --client poll --server select --k 50 --work 3950us --think 6ms",
    "--round-trips {}",
    2_000,
)
.quick();
static EACH: Command = model(
    "replay roundtrip --policy linux-6.12 --client poll --work 0 --batch 32 --reply together,each",
    "--round-trips {}",
    2_000,
)
.quick();
static PROBE: Command = command(
    "probe roundtrip --client poll --server poll --k 1 --work 0 --batch 32 --reply together,each --runs 5",
    Kind::Live,
);
static PROBE_READ: Command = command(
    "probe roundtrip --client poll,read --server select --k 50 --work 0,50us --runs 5",
    Kind::Live,
);
static X11: Command = command("probe roundtrip --x11 --runs 12", Kind::Live);

/// Returns how often a kind of switch happens in a request of the mail's kernel: unkeyed, pre-empting.
fn cause(record: &Record, name: &str) -> Result<f64, String> {
    let causes = mails_kernel(record)?.part("causes")?;
    Ok(causes.or_0(name))
}

fn mails_kernel(record: &Record) -> Result<Record, String> {
    record.row("keyed=no preempt=yes")
}

/// Judges "this happens in about every request": at least in half of them.
fn happens(record: &Record, name: &str) -> Result<Seen, String> {
    let often = cause(record, name)?;
    seen(often >= 0.5, format!("{} times a request", n(often)))
}

const HALF: &str = "it happens in at least half of the requests of the worst case";

pub(super) static MAIL: Mail = Mail {
    number: "002",
    title: "Nieminen, August 2010, linux-kernel: switches between X clients and server",
    claims: &[
        claim(
            "two to three times as many switches as needed",
            "3",
            "Numbers were showing 20-30 context switches per frame. Theoretical minimum context switches is less than 10.",
        )
        .figures("20 to 30 a frame, less than 10 needed: 2 to 3 times and more")
        .test(&[&WORST], "at its worst the mail's kernel needs 2 to 4 times the 2 switches that a request needs; the mail has no figure for a request", |r| {
            let switches = mails_kernel(&r[0])?.f("switches_per_request")?;
            seen((4.0..=8.0).contains(&switches), format!("{} switches a request, {}x", n(switches), n(switches / 2.0)))
        })
        .conclusion(),
        claim(
            "2 switches a request are enough",
            "3",
            "In perfect case scheduling should be only twice the number of request.",
        )
        .test(&[&WORST], "with a keyed wake-up and no pre-emption the same programs need 2, within 5 %", |r| {
            let switches = r[0].row("keyed=yes preempt=no")?.f("switches_per_request")?;
            seen(within(1.05, switches, 2.0), format!("{} switches a request", n(switches)))
        }),
        claim(
            "every call may switch",
            "3",
            "But in worst case every system call is triggering context switch.",
        )
        .test(&[&WORST], "the client's write pre-empts it, its poll blocks, and its read wakes the server: each in at least half of the requests", |r| {
            let names = ["client pre-empted after write", "client blocks", "server woken for room, blocks again"];
            let (mut holds, mut texts) = (true, Vec::new());
            for name in names {
                let often = cause(&r[0], name)?;
                holds &= often >= 0.5;
                texts.push(format!("{name} {}", n(often)));
            }
            seen(holds, texts.join(", "))
        }),
        claim(
            "writev switches",
            "3",
            "writev does implicit context switch in kernel after writing to socket.",
        )
        .test(&[&WORST], HALF, |r| happens(&r[0], "client pre-empted after write"))
        .more("the flag `--preempt no` takes it away, and another switch comes in its place: the tick"),
        claim(
            "the client comes back before there is a response",
            "3",
            "While xserver is handlnig the request kernel decides to schedule client before there is response.",
        )
        .test(&[&WORST], HALF, |r| happens(&r[0], "server pre-empted, slice over"))
        .more("the server of the model works for 3.95 ms; a slice is 3 ms"),
        claim(
            "then poll blocks",
            "3",
            "Now poll blocks because there is no response from xserver.",
        )
        .test(&[&WORST], HALF, |r| happens(&r[0], "client blocks")),
        claim(
            "read wakes the server",
            "3",
            "When read call is returning from kernel unlocking the socket triggers xserver scheduling.",
        )
        .test(&[&WORST], "every request wakes the server for room once, within 10 %", |r| {
            let wakes = mails_kernel(&r[0])?.f("room_wakes")?;
            seen(within(1.1, wakes, 1.0), format!("{} wake-ups for room a request", n(wakes)))
        }),
        claim(
            "and the server looks at all descriptors for nothing",
            "3",
            "This schedulnig never returns from kernel space but it iterates over all file descriptors that xserver is waiting for.",
        )
        .test(&[&WORST], HALF, |r| happens(&r[0], "server woken for room, blocks again"))
        .more("Linux 2.6.37, two months later, gave the wake-up a key; with it (`--keyed yes`) the server sleeps on"),
        claim(
            "requests that take long make it worse",
            "3",
            "There is some X calls (DRI2GetBuffers etc) that takes very long to handle.",
        )
        .test(&[&WORST, &SHORT], "requests of 3.95 ms need more switches than those of 0.5 ms", |r| {
            let switches = |r: &Record| mails_kernel(r)?.f("switches_per_request");
            let (long, short) = (switches(&r[0])?, switches(&r[1])?);
            seen(long > short, format!("{} and {} switches a request", n(long), n(short)))
        }),
        claim(
            "gathering requests in xcb avoids the switch of each write",
            "3",
            "This doesn't affect X communication because there is buffering implementation in xcb for asynchronous operations.",
        )
        .test(&[&GATHERED], "32 requests by one write need less than a quarter of the switches of 32 requests by a write each", |r| {
            let at = |batch| r[0].row(batch)?.f("switches_per_request");
            let (one, gathered) = (at("parameters.batch=1")?, at("parameters.batch=32")?);
            let text = format!("{} switches for 32 requests, {} one by one", n(gathered), n(32.0 * one));
            seen(gathered < 8.0 * one, text)
        }),
        claim(
            "2.6.35-rc4 is broken",
            "3",
            "2.6.35-rc4 (x86 vanila, Ubuntu Karmic user space)",
        )
        .test(&[&WORST], "more than twice the number of requests, by more than 10 %", |r| {
            let switches = mails_kernel(&r[0])?.f("switches_per_request")?;
            seen(switches > 2.2, format!("{} switches a request", n(switches)))
        }),
        claim(
            "the kernel is the cause, not the programs",
            "3",
            "my debugging is pointing to kernel problem because same userspace hits the bug with different kernel",
        )
        .test(&[&WORST, &LATER], "the same programs need fewer switches by the rules of a later kernel (6.12)", |r| {
            let at = |row: Record| -> Result<(f64, f64), String> {
                Ok((row.f("switches_per_request")?, row.f("room_wakes")?))
            };
            let (old, room) = at(mails_kernel(&r[0])?)?;
            let (new, later) = at(r[1].row("policy=linux-6.12")?)?;
            let text = format!("{} -> {} switches a request, {} -> {} wake-ups for room", n(old), n(new), n(room), n(later));
            seen(new < old, text)
        })
        .because("where a request takes longer than a slice, the slices and the pre-emption of 6.12 cost as many switches as those of 2.6.35. What is gone is the wake-up for room"),
        claim(
            "an X client needs more than two switches a request, today as well",
            "3",
            "Test case is xwininfo tool modified not to output anything. Running it with -root and -tree parameters is generating lots of request for xserver.",
        )
        .test(&[&X11], "Xvfb and xwininfo on one CPU switch more than 2.2 times a flush of the client, in the median of the runs", |r| {
            let one = r[0].series("switches", "on=one policy=other")?;
            let two = r[0].series("switches", "on=two policy=other")?;
            seen(one > 2.2, format!("{} switches a flush on one CPU, {} with a CPU each", n(one), n(two)))
        })
        .more("the cause has changed: the server writes each reply by itself and is pre-empted by the client (`stopgap explain` of a recording)"),
        claim(
            "the switches of a write a reply: the model beside the live kernel",
            "3",
            "check if kernel is scheduling too many times",
        )
        .figures("no figure; X's server writes each reply by itself, so this pattern is what is left of the mail")
        .test(&[&EACH, &PROBE], "the model is within 25 % of the probe, with a write a reply and with one writev", |r| {
            let (mut holds, mut texts) = (true, Vec::new());
            for reply in ["each", "together"] {
                let model = r[0].row(&format!("parameters.reply={reply}"))?;
                let model = model.f("switches_per_request")?;
                let live = r[1].series("switches", &format!("reply={reply}"))?;
                holds &= within(1.25, model, live);
                texts.push(format!("{reply}: model {}, live {}, {}x", n(model), n(live), n(model / live)));
            }
            seen(holds, texts.join("; "))
        })
        .because("in the model every reply wakes the client, and the client pre-empts the server. On the live kernel some replies do not, and by which rule is not known")
        .conclusion(),
        claim(
            "a poller is disturbed by the server's read, today as well",
            "3",
            "xserver has gone to sleep in select call waiting for multiple file descriptor.",
        )
        .test(&[&PROBE_READ], "a client that polls needs more than 2.2 switches a request on the kernel that runs here", |r| {
            let poll = r[0].series("switches", "client=poll work=50us")?;
            let read = r[0].series("switches", "client=read work=50us")?;
            seen(poll > 2.2, format!("poll {}, a blocking read {} switches a request", n(poll), n(read)))
        })
        .because("since Linux 2.6.37 the wake-up for room carries a key, and a poller that waits for input sleeps on. A blocking read is still woken"),
        claim("2.6.31 works correctly", "3", "correctly working: 2.6.31 (x86 Ubuntu Karmic)")
            .lacks("the author's desktop of 2010 with Ubuntu's 2.6.31; the rules by which it would differ from 2.6.28 and 2.6.32 are not known"),
        claim("2.6.32 on Arm and 2.6.28 are broken", "3", "broken: 2.6.32 (ARM) 2.6.28 (x86 Debian Lenny)")
            .lacks("an Arm board of 2010, and machines that boot 2.6.28 and 2.6.32"),
        claim(
            "the trace shows it by instruction",
            "3",
            "Tracing down to per instruction view what happens in system.",
        )
        .lacks("an Arm core with its trace port (ETM) and the hardware that records it"),
    ],
};

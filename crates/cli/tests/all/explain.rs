//! What `explain` says of traces of other tools, and of hardware that a virtual machine lacks.

use crate::common::{Run, has, may};

/// 40 frames of a desktop, 16.667 ms each, as ftrace prints them. `game` gives a GPU a job of `drm_sched`, whose two fences it makes in an
/// ioctl, and sends a message to `compositor`, which waits for the job's end in an ioctl. The GPU takes 4 ms, and of frame 20 `late_ms` more.
/// The names are those of Linux 6.18: drivers/gpu/drm/scheduler/sched_fence.c, gpu_scheduler_trace.h.
fn frames(submitter: &str, late_ms: u32) -> String {
    let mut lines: Vec<(u64, String)> = Vec::new();
    let mut line = |us: u64, task: &str, cpu: u8, flags: &str, event: String| {
        let (s, us) = (us / 1_000_000, us % 1_000_000);
        lines.push((
            s * 1_000_000 + us,
            format!("{task:>16} [00{cpu}] {flags} {s:5}.{us:06}: {event}"),
        ));
    };
    let name_and_tid = |task: &str| -> (String, u32) {
        let (name, tid) = task.rsplit_once('-').unwrap();
        (name.to_owned(), tid.parse().unwrap())
    };
    let switch = |from: &str, state: char, to: &str| {
        let ((from, from_tid), (to, to_tid)) = (name_and_tid(from), name_and_tid(to));
        format!(
            "sched_switch: prev_comm={from} prev_pid={from_tid} prev_prio=120 prev_state={state} ==> next_comm={to} next_pid={to_tid} next_prio=120"
        )
    };
    let waking = |whom: &str, cpu: u8| {
        let (comm, tid) = name_and_tid(whom);
        format!("sched_waking: comm={comm} pid={tid} prio=120 target_cpu=00{cpu}")
    };
    let (idle, compositor) = ("<idle>-0", "compositor-2204");
    let idle0 = "swapper/0-0";
    let idle1 = "swapper/1-0";
    for frame in 1..=40_u64 {
        let late = u64::from(late_ms) * 1000;
        let at = 100_000_000 + frame * 16_667 + if frame > 20 { late } else { 0 };
        let late = if frame == 20 { late } else { 0 };
        let mut game = |us: u64, event: String| line(at + us, submitter, 0, ".....", event);
        game(500, "sys_exit: NR 230 = 0".into());
        game(
            1000,
            "sys_enter: NR 16 (8, c0186444, 7ffd2a10, 0, 0, 0)".into(),
        );
        for context in [60, 61] {
            game(
                1100 + context,
                format!(
                    "dma_fence_init: driver=drm_sched timeline=gfx_0.0.0 context={context} seqno={frame}"
                ),
            );
        }
        game(
            1200,
            format!(
                "drm_sched_job_queue: dev=0000:03:00.0, fence=61:{frame}, ring=gfx_0.0.0, job count:1, hw job count:0, client_id:7"
            ),
        );
        game(1400, "sys_exit: NR 16 = 0".into());
        game(1500, "sys_enter: NR 46 (5, 7ffd2b00, 40, 0, 0, 0)".into());
        game(1520, "sys_exit: NR 46 = 24".into());
        game(1530, "sys_enter: NR 230 (1, 1, 7ffd2c00, 0, 0, 0)".into());
        line(at, idle, 0, "d.h4.", waking(submitter, 0));
        line(at + 5, idle, 0, "d..2.", switch(idle0, 'R', submitter));
        line(at + 1510, submitter, 0, "d..3.", waking(compositor, 1));
        line(
            at + 1550,
            submitter,
            0,
            "d..2.",
            switch(submitter, 'S', idle0),
        );
        let fence = format!("driver=drm_sched timeline=gfx_0.0.0 context=61 seqno={frame}");
        let end = at + 6_000 + late;
        let mut waiter = |us: u64, event: String| line(us, compositor, 1, ".....", event);
        waiter(at + 1550, "sys_exit: NR 232 = 1".into());
        waiter(
            at + 1600,
            "sys_enter: NR 47 (9, 7ffe1000, 40, 0, 0, 0)".into(),
        );
        waiter(at + 1610, "sys_exit: NR 47 = 24".into());
        waiter(
            at + 2000,
            "sys_enter: NR 16 (11, c02864ca, 7ffe2000, 0, 0, 0)".into(),
        );
        waiter(at + 2020, format!("dma_fence_wait_start: {fence}"));
        waiter(end + 8, format!("dma_fence_wait_end: {fence}"));
        waiter(end + 9, "sys_exit: NR 16 = 0".into());
        waiter(
            end + 1000,
            "sys_enter: NR 232 (4, 7ffe3000, 20, ffffffff, 0, 0)".into(),
        );
        line(at + 1520, idle, 1, "d..2.", switch(idle1, 'R', compositor));
        line(
            at + 2030,
            compositor,
            1,
            "d..2.",
            switch(compositor, 'S', idle1),
        );
        line(
            end,
            idle,
            1,
            "d.h1.",
            format!("drm_sched_job_done: fence=61:{frame} signaled"),
        );
        line(end + 2, idle, 1, "d.h3.", waking(compositor, 1));
        line(end + 6, idle, 1, "d..2.", switch(idle1, 'R', compositor));
        line(
            end + 1020,
            compositor,
            1,
            "d..2.",
            switch(compositor, 'S', idle1),
        );
    }
    lines.sort_by_key(|&(at, _)| at);
    let head = "# tracer: nop\n#\n#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION\n#              | |         |   |||||     |         |\n";
    let lines = lines.into_iter().map(|(_, line)| line + "\n");
    head.to_owned() + &lines.collect::<String>()
}

#[test]
fn a_late_job_of_drm_sched_has_its_driver_timeline_and_submitter() {
    let run = Run::new();
    run.write("late.txt", frames("game-2210", 500));
    let said = run.stopgap("explain late.txt");
    assert_eq!(said.status, Some(0), "{said:#?}");
    has(
        &said.out,
        &[
            "FOUND STALLS\na thread lost 504 ms at a time, the longest ioctl of compositor: 504.0 ms, 100 % of it waiting for a fence",
            "waited for a fence of drm_sched (timeline gfx_0.0.0), submitted by game",
            "100 % the device, with work of game",
        ],
    );
    // A job of an unknown submitter has no culprit.
    let unknown = frames("game-2210", 500).replace("dma_fence_init", "dma_fence_destroy");
    run.write("unknown.txt", unknown);
    let said = run.stopgap("explain unknown.txt");
    has(
        &said.out,
        &[
            "waited for a fence of drm_sched (timeline gfx_0.0.0)\n",
            "100 % the device\n",
        ],
    );
    assert!(
        !said.out.contains("game lost") && !said.out.contains("work of"),
        "{said:#?}"
    );
    // The same jobs, none late: a GPU that draws for 4 ms a frame is no stall.
    run.write("even.txt", frames("game-2210", 0));
    let said = run.stopgap("explain even.txt");
    has(&said.out, &["FOUND NO STALL\nno thread lost 10 ms"]);
    let verdict = said.out.lines().next().unwrap();
    assert!(!verdict.contains("game"), "{said:#?}");
}

/// 500 ms pass in a read from a child that sleeps on purpose: no stall, and the screen says where the time went.
#[test]
fn a_wait_for_a_child_that_sleeps_is_told_with_the_sleeper() {
    if !may("record") {
        return;
    }
    let run = Run::new();
    run.write("reads", "(sleep 0.5; echo) | cat\n");
    run.stopgap("record -o t.parquet -- sh reads").quiet();
    let said = run.stopgap("explain t.parquet");
    // `cat` for 500 ms, or both shells for 1.00 s: who waited first depends on who ended first.
    let is_told = |line: &str| {
        let by = line.starts_with("  cat waited ") || line.starts_with("  sh waited ");
        by && line.contains(" for sleep, which slept on purpose: not counted as lost")
    };
    assert!(said.out.lines().any(is_told), "{said:#?}");
    // By BPF there are no rows of calls: requests that neither waited nor woke anybody are not seen.
    let said = run.stopgap("explain t.parquet --request write..read");
    assert_eq!(said.status, Some(0), "{said:#?}");
    has(
        &said.err,
        &["--request write..read: found none.", "--events all"],
    );
}

#[test]
fn where_no_process_of_the_name_came_nobody_else_is_explained() {
    if !may("record") {
        return;
    }
    let run = Run::new();
    let recorded = run.stopgap("record --comm nobody-has-it -d 300ms -o t.parquet");
    assert_eq!(recorded.status, Some(0), "{recorded:#?}");
    let said = run.stopgap("explain t.parquet");
    has(
        &said.out,
        &[
            "CANNOT TELL\nthe processes to record: none came while the recording ran (processes named nobody-has-it)",
        ],
    );
    assert!(!said.out.contains("WHY"), "{said:#?}");
}

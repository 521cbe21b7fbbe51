use super::*;
use crate::fake::Fake;

const KNOB: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
const DIRECTORY: &str = "/run/stopgap";

fn machine() -> Fake {
    Fake::default()
        .with_file(KNOB, "always [madvise] never\n")
        .with_file("/sys/fs/cgroup/cgroup.procs", "")
        .with_file("/run/x", "")
        .with_file("/tmp/x", "")
}

#[test]
fn a_scope_puts_everything_back_and_leaves_no_journal() {
    let fake = machine();
    let journal = Journal::new(&fake, Path::new(DIRECTORY));
    {
        let _scope = journal.scope();
        journal.set(Path::new(KNOB), "always").unwrap();
        let group = Path::new("/sys/fs/cgroup/stopgap-1");
        journal.make_dir(group).unwrap();
        journal
            .make_file(Path::new("/tmp/set"), || {
                fake.create(Path::new("/tmp/set"), b"")
            })
            .unwrap();
        assert_eq!(current(&fake, Path::new(KNOB)).unwrap(), "always");
        assert_eq!(fake.list(Path::new(DIRECTORY)).unwrap(), ["1.json"]);
    }
    assert_eq!(current(&fake, Path::new(KNOB)).unwrap(), "madvise");
    assert!(fake.content("/tmp/set").is_none());
    assert!(fake.list(Path::new("/sys/fs/cgroup/stopgap-1")).is_err());
    assert!(fake.list(Path::new(DIRECTORY)).unwrap().is_empty());
}

#[test]
fn a_machine_without_the_directory_is_told_which_one_to_create() {
    let fake = Fake::default().with_file(KNOB, "always [madvise] never\n");
    let journal = Journal::new(&fake, Path::new(DIRECTORY));
    let refused = journal.set(Path::new(KNOB), "always").unwrap_err();
    assert_eq!(
        refused.to_string(),
        "changing settings of this machine: what must be put back is kept in /run/stopgap, and there is no directory /run; create it"
    );
    assert_eq!(current(&fake, Path::new(KNOB)).unwrap(), "madvise");
}

/// `set_recommended_min_free_kbytes`: the kernel moves it when huge pages are allowed or not, and once more when they
/// are put back.
#[test]
fn what_the_kernel_moves_along_is_put_back_too() {
    let min_free = Path::new(thp::MIN_FREE);
    let fake = machine().with_file(min_free, "20000\n");
    let value = || current(&fake, min_free).unwrap();
    let journal = Journal::new(&fake, Path::new(DIRECTORY));
    {
        let scope = journal.scope();
        journal.set(Path::new(KNOB), "never").unwrap();
        fake.put(min_free, "11264\n");
        journal.set(Path::new(KNOB), "always").unwrap();
        fake.put(min_free, "67584\n");
        assert!(scope.undo().is_empty());
    }
    assert_eq!(value(), "20000");

    journal.set(Path::new(KNOB), "never").unwrap();
    fake.put(min_free, "11264\n");
    std::mem::forget(journal); // killed
    let fake = fake.without("/proc/1");
    let restored = restore(&fake, Path::new(DIRECTORY)).unwrap();
    let last = restored.done.last().map(String::as_str);
    assert_eq!(last, Some("/proc/sys/vm/min_free_kbytes back to '20000'"));
    assert_eq!(current(&fake, min_free).unwrap(), "20000");
}

/// A SIGKILL between any two steps: the journal of a dead process is undone by the next.
#[test]
fn the_next_run_undoes_what_a_killed_one_left() {
    let fake = machine();
    let journal = Journal::new(&fake, Path::new(DIRECTORY));
    journal.set(Path::new(KNOB), "never").unwrap();
    journal
        .make_dir(Path::new("/sys/fs/cgroup/stopgap-1"))
        .unwrap();
    std::mem::forget(journal); // killed

    let nothing = restore(&fake, Path::new(DIRECTORY)).unwrap();
    assert!(
        nothing.done.is_empty(),
        "its process still lives: {nothing:?}"
    );

    let fake = fake.without("/proc/1");
    let restored = restore(&fake, Path::new(DIRECTORY)).unwrap();
    assert_eq!(restored.done.len(), 2, "{restored:?}");
    assert!(restored.failed.is_empty(), "{restored:?}");
    assert_eq!(current(&fake, Path::new(KNOB)).unwrap(), "madvise");
    assert!(fake.list(Path::new(DIRECTORY)).unwrap().is_empty());
}

/// In another PID namespace, or without /proc, a run that lives looks as if it were dead.
#[test]
fn a_run_whose_id_says_nothing_here_is_left_alone() {
    let fake = machine();
    let journal = Journal::new(&fake, Path::new(DIRECTORY));
    journal.set(Path::new(KNOB), "never").unwrap();
    std::mem::forget(journal);
    let file = format!("{DIRECTORY}/1.json");
    let text = fake.content(&file).unwrap();
    let elsewhere = text.replace("\"namespace\": \"\"", "\"namespace\": \"pid:[7]\"");
    assert_ne!(text, elsewhere);
    fake.put(&file, &elsewhere);
    fake.put(format!("{DIRECTORY}/1.new"), &elsewhere); // it is about to change something more
    let fake = fake.without("/proc/1");
    let restored = restore(&fake, Path::new(DIRECTORY)).unwrap();
    assert!(restored.done.is_empty(), "{restored:?}");
    assert!(restored.failed[0].contains("without /proc"), "{restored:?}");
    let fake = fake.with_link("/proc/self/ns/pid", "pid:[8]");
    let restored = restore(&fake, Path::new(DIRECTORY)).unwrap();
    assert!(restored.done.is_empty(), "{restored:?}");
    assert!(restored.failed[0].contains("namespace"), "{restored:?}");
    assert_eq!(current(&fake, Path::new(KNOB)).unwrap(), "never");
    assert!(fake.content(&file).is_some());
    assert!(fake.content(format!("{DIRECTORY}/1.new")).is_some());
}

#[test]
fn after_a_reboot_only_files_are_undone() {
    let fake = machine().with_file("/proc/sys/kernel/random/boot_id", "first");
    let journal = Journal::new(&fake, Path::new(DIRECTORY));
    journal.set(Path::new(KNOB), "never").unwrap();
    journal
        .make_file(Path::new("/tmp/set"), || {
            fake.create(Path::new("/tmp/set"), b"")
        })
        .unwrap();
    std::mem::forget(journal);
    fake.put("/proc/sys/kernel/random/boot_id", "second");
    fake.put(KNOB, "[always] madvise never"); // as the new boot has it
    let restored = restore(&fake, Path::new(DIRECTORY)).unwrap();
    assert_eq!(restored.done, ["/tmp/set removed"]);
    assert_eq!(fake.content(KNOB).unwrap(), "[always] madvise never");
}

#[test]
fn what_cannot_be_undone_stays_in_the_journal() {
    let fake = machine();
    let journal = Journal::new(&fake, Path::new(DIRECTORY));
    journal.set(Path::new(KNOB), "never").unwrap();
    fake.refuse_writes(KNOB);
    assert_eq!(journal.undo().len(), 1);
    assert_eq!(fake.list(Path::new(DIRECTORY)).unwrap(), ["1.json"]);
}

#[test]
fn a_change_that_fails_leaves_nothing() {
    let fake = machine().read_only(KNOB);
    let journal = Journal::new(&fake, Path::new(DIRECTORY));
    assert!(journal.set(Path::new(KNOB), "never").is_err());
    assert!(fake.list(Path::new(DIRECTORY)).unwrap().is_empty());
}

/// Both changed the same setting, and the later one put back what the earlier had set.
#[test]
fn settings_are_one_runs_at_a_time() {
    let stat = format!("2 (other) S{}", " 0".repeat(30));
    let fake = machine().with_file("/proc/2/stat", stat);
    let others = |before: &str| {
        format!(
            r#"{{"schema": "{SCHEMA}", "pid": 2, "start_time": 0, "boot": "", "changes": [
            {{"change": "setting", "path": "{KNOB}", "before": "{before}"}}]}}"#
        )
    };
    fake.make_dir(Path::new(DIRECTORY)).unwrap();
    fake.put(format!("{DIRECTORY}/2.json"), others("madvise"));
    fake.put(KNOB, "always madvise [never]");
    let journal = Journal::new(&fake, Path::new(DIRECTORY));
    for value in ["always", "never"] {
        let error = journal.set(Path::new(KNOB), value).unwrap_err();
        assert!(error.to_string().contains("process 2"), "{error}");
    }
    // Files and groups are each run's own.
    journal
        .make_dir(Path::new("/sys/fs/cgroup/stopgap-1"))
        .unwrap();
    assert!(journal.undo().is_empty());
    assert_eq!(fake.content(KNOB).unwrap(), "always madvise [never]");
    assert_eq!(fake.list(Path::new(DIRECTORY)).unwrap(), ["2.json"]);

    fake.put(KNOB, "always [madvise] never"); // the other has ended
    fake.remove_file(&Path::new(DIRECTORY).join("2.json"))
        .unwrap();
    journal.set(Path::new(KNOB), "always").unwrap();
    assert_eq!(current(&fake, Path::new(KNOB)).unwrap(), "always");
}

#[test]
fn what_somebody_else_made_is_not_removed() {
    let fake = machine().with_file("/tmp/theirs", "precious");
    fake.make_dir(Path::new("/tmp/their-folder")).unwrap();
    let journal = Journal::new(&fake, Path::new(DIRECTORY));
    let path = Path::new("/tmp/theirs");
    let made = journal.make_file(path, || fake.create(path, b"ours"));
    assert!(made.unwrap_err().is_taken());
    let made = journal.make_dir(Path::new("/tmp/their-folder"));
    assert!(made.unwrap_err().is_taken());
    assert!(journal.undo().is_empty());
    assert_eq!(fake.content(path).unwrap(), "precious");
    assert!(fake.list(Path::new("/tmp/their-folder")).is_ok());
    assert!(fake.list(Path::new(DIRECTORY)).unwrap().is_empty());
}

/// In a user namespace we may be root without the right to write in its folder.
#[test]
fn where_nothing_was_changed_nothing_is_written() {
    let fake = machine();
    let journal = Journal::new(&fake, Path::new(DIRECTORY));
    fake.refuse_writes(DIRECTORY);
    assert!(journal.undo().is_empty());
    assert!(journal.scope().undo().is_empty());
}

#[test]
fn a_journal_of_another_form_is_named_and_kept() {
    let fake = machine().with_file("/run/stopgap/9.json", "{\"schema\": 3");
    let restored = restore(&fake, Path::new(DIRECTORY)).unwrap();
    assert!(restored.failed[0].contains("9.json"), "{restored:?}");
}

#[test]
fn a_half_written_journal_goes_with_its_process() {
    let fake = machine()
        .with_file("/run/stopgap/1.new", "{")
        .with_file("/run/stopgap/9.new", "{");
    let restored = restore(&fake, Path::new(DIRECTORY)).unwrap();
    assert!(restored.failed.is_empty(), "{restored:?}");
    assert_eq!(fake.list(Path::new(DIRECTORY)).unwrap(), ["1.new"]);
}

/// Killed, and nobody has waited for it: in a container without an init, for ever.
#[test]
fn a_zombie_is_a_dead_run() {
    let fake = machine();
    let journal = Journal::new(&fake, Path::new(DIRECTORY));
    journal.set(Path::new(KNOB), "never").unwrap();
    std::mem::forget(journal);
    fake.put("/proc/1/stat", stat(1, 'Z'));
    let restored = restore(&fake, Path::new(DIRECTORY)).unwrap();
    assert_eq!(restored.done.len(), 1, "{restored:?}");
    assert_eq!(current(&fake, Path::new(KNOB)).unwrap(), "madvise");
}

/// The stat line of process `pid` in `state`, begun at 77 as the fake's own.
fn stat(pid: u32, state: char) -> String {
    format!("{pid} (fake) {state} 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 77 0")
}

#[test]
fn a_trace_instance_is_switched_off_and_removed() {
    let instances = Path::new("/sys/kernel/tracing/instances");
    let fake = machine()
        .with_file("/sys/kernel/tracing/events/enable", "0")
        .with_file(instances.join("other/tracing_on"), "1");
    let journal = Journal::new(&fake, Path::new(DIRECTORY));
    journal.make_trace_instance("stopgap-1").unwrap();
    fake.put(instances.join("stopgap-1/tracing_on"), "1");
    std::mem::forget(journal); // killed
    let fake = fake.without("/proc/1");
    let restored = restore(&fake, Path::new(DIRECTORY)).unwrap();
    assert_eq!(restored.done, ["trace instance stopgap-1 removed"]);
    assert_eq!(fake.list(instances).unwrap(), ["other"]);
    // Where there is no tracefs, nothing is made and nothing announced.
    let fake = fake.without("/sys/kernel/tracing");
    let journal = Journal::new(&fake, Path::new(DIRECTORY));
    let error = journal.make_trace_instance("stopgap-1").unwrap_err();
    assert!(error.to_string().contains("tracefs"), "{error}");
    assert!(fake.list(Path::new(DIRECTORY)).unwrap().is_empty());
}

//! `stopgap prune`: what it deletes, and what it leaves.

use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::path::Path;
use std::process::Command;

use crate::common::{NOBODY, Run, has, names, root};

/// Makes a file, link or directory look as if it was written 40 days ago.
fn age(path: &Path) {
    let touched = Command::new("touch")
        .args(["-h", "-d", "40 days ago"])
        .arg(path)
        .status();
    assert!(touched.unwrap().success());
}

#[test]
fn only_old_files_of_stopgap_are_deleted() {
    let run = Run::new();
    run.stopgap("check --passive").ok();
    let folder = run.path("stopgap");
    let ours = names(&folder);
    assert_eq!(ours.len(), 2, "{ours:?}");
    run.write("precious", "{\"schema\": \"stopgap.run/1\"}");
    let record = fs::read(folder.join(&ours[1])).unwrap();
    let foreign = |name: &str, content: &[u8]| fs::write(folder.join(name), content).unwrap();
    foreign("notes.txt", b"mine");
    foreign("check-1-1.json", b"{\"mine\": 1}");
    foreign("my-check-1-1.json", &record);
    symlink(run.path("precious"), folder.join("check-2-2.json")).unwrap();
    fs::create_dir(folder.join("check-3-3.json")).unwrap();
    fs::create_dir(folder.join("watch")).unwrap();
    foreign("watch/check-4-4.json", &record);
    if root() {
        foreign("check-5-5.json", &record);
        chown(folder.join("check-5-5.json"), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let young = run.stopgap("prune --older 30d").quiet();
    has(&young, &["deleted 0 files (0 B); 2 files ("]);
    let all = names(&folder);
    for name in &all {
        age(&folder.join(name));
    }
    age(&folder.join("watch/check-4-4.json"));
    has(
        &run.stopgap("doctor").ok().out,
        &["records and traces kept", "2 files (", "40 days"],
    );

    let said = run.stopgap("prune --older 30d --dry-run").quiet();
    has(&said, &[&ours[0], &ours[1], "would delete 2 files ("]);
    assert_eq!(names(&folder), all);
    has(
        &run.stopgap("prune --older 41d").quiet(),
        &["deleted 0 files"],
    );
    assert_eq!(names(&folder), all);
    has(
        &run.stopgap("prune --older 30d").quiet(),
        &["deleted 2 files (", "; none stay"],
    );
    let left: Vec<String> = all
        .iter()
        .filter(|name| !ours.contains(name))
        .cloned()
        .collect();
    assert_eq!(names(&folder), left);
    assert_eq!(names(&folder.join("watch")), ["check-4-4.json"]);
    assert!(run.path("precious").exists());
    has(
        &run.stopgap("doctor").ok().out,
        &["records and traces kept"],
    );
    run.refuses("prune", &["--older"]);
    run.refuses("prune --older 30", &["30d or 12h"]);
}

/// Where there is no such directory, nothing is deleted and none is made.
#[test]
fn nothing_is_there_to_delete() {
    let run = Run::new();
    has(
        &run.stopgap("prune --older 0s").quiet(),
        &["deleted 0 files (0 B); none stay"],
    );
    assert!(!run.path("stopgap").exists());
}

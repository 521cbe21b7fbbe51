use std::os::unix::fs::PermissionsExt;

use super::*;

#[test]
fn it_is_ours_alone_and_goes() {
    let place = tempfile::tempdir().unwrap();
    let folder = Folder::below(place.path()).unwrap();
    assert_eq!(
        fs::metadata(folder.path()).unwrap().permissions().mode() & 0o777,
        0o700
    );
    folder.write("file", b"x").unwrap();
    drop(folder);
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
}

#[test]
fn what_a_killed_owner_left_goes_and_what_a_living_one_has_stays() {
    let place = tempfile::tempdir().unwrap();
    let living = Folder::below(place.path()).unwrap();
    // As a SIGKILL leaves it: the file is there, the lock is not.
    let left = place.path().join("stopgap-emulate-left");
    fs::create_dir(&left).unwrap();
    fs::write(left.join(OWNER), "").unwrap();
    fs::write(left.join("vmlinuz"), "").unwrap();
    // Others', and one whose owner has not come so far.
    let others = place.path().join("somebody-elses");
    fs::create_dir(&others).unwrap();
    fs::write(others.join(OWNER), "").unwrap();
    let young = place.path().join("stopgap-emulate-young");
    fs::create_dir(&young).unwrap();
    let target = tempfile::tempdir().unwrap();
    fs::write(target.path().join(OWNER), "").unwrap();
    let link = place.path().join("stopgap-emulate-link");
    std::os::unix::fs::symlink(target.path(), &link).unwrap();

    let second = Folder::below(place.path()).unwrap();
    assert!(!left.exists());
    for kept in [
        living.path(),
        second.path(),
        &others,
        &young,
        &link,
        target.path(),
    ] {
        assert!(kept.exists(), "{}", kept.display());
    }
}

#[test]
fn a_place_that_cannot_be_written_is_an_error() {
    assert!(Folder::below(Path::new("/nonexistent")).is_err());
    // A full file system has its own word.
    let error = Error::file(
        Path::new("/tmp/x/file"),
        std::io::ErrorKind::StorageFull.into(),
    );
    assert_eq!(
        error.to_string(),
        "no space left in /tmp/x: name another place with TMPDIR=FOLDER"
    );
}

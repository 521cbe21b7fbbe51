use std::fs;

use super::*;

/// A folder with a QEMU of our own.
fn place(script: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("qemu-system-x86_64");
    stopgap_kernel::fake::script(&path, format!("#!/bin/sh\n{script}\n"));
    folder
}

fn find(script: &str) -> Result<Qemu> {
    Qemu::find_in(Architecture::X86_64, place(script).path().as_os_str())
}

#[test]
fn a_new_one_is_taken_and_an_old_one_refused() {
    for version in [
        "7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)",
        "5.2.0",
        "10.0.2",
    ] {
        let found = find(&format!(
            "echo 'QEMU emulator version {version}'; echo Copyright"
        ));
        assert_eq!(found.unwrap().version(), version);
    }
    for version in ["5.1.92", "2.11.1(Debian 1:2.11)"] {
        let error = find(&format!("echo 'QEMU emulator version {version}'")).unwrap_err();
        assert!(error.is_unsupported());
        let end = format!("version {version} is older than 5.2; install qemu-system-x86");
        assert!(error.to_string().ends_with(&end), "{error}");
    }
}

#[test]
fn none_is_unsupported_with_the_package_to_install() {
    let folder = tempfile::tempdir().unwrap();
    // A file that may not be executed, and a folder of that name, are none.
    fs::write(folder.path().join("qemu-system-x86_64"), "").unwrap();
    fs::create_dir(folder.path().join("qemu-system-aarch64")).unwrap();
    for (architecture, package) in [
        (Architecture::X86_64, "qemu-system-x86"),
        (Architecture::Aarch64, "qemu-system-arm"),
    ] {
        let error = Qemu::find_in(architecture, folder.path().as_os_str()).unwrap_err();
        assert!(error.is_unsupported());
        let begin = format!("unsupported: install {package} ");
        assert!(error.to_string().starts_with(&begin), "{error}");
    }
}

#[test]
fn something_else_of_that_name_is_refused() {
    for script in [
        "echo hello",
        "exit 1",
        "echo 'QEMU emulator version unknown'",
        "kill -9 $$",
    ] {
        let error = find(script).unwrap_err();
        assert!(error.is_unsupported(), "{script}: {error}");
    }
    let garbage = tempfile::tempdir().unwrap();
    let path = garbage.path().join("qemu-system-x86_64");
    stopgap_kernel::fake::script(&path, [0, 1, 2]);
    assert!(Qemu::find_in(Architecture::X86_64, garbage.path().as_os_str()).is_err());
}

//! What a packager does, and what a C programmer does with the result: `make install` into a staging directory, then
//! everything that was installed is looked at, compiled against, linked with and run.

#![allow(unsafe_code)]

mod stage {
    use std::ffi::OsStr;
    use std::path::{Path, PathBuf};
    use std::process::{Command, Output};
    use std::sync::OnceLock;

    use stopgap_testing::{Skip, skip};

    pub(crate) fn package() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR"))
    }

    /// A staging directory with everything installed under `/usr`.
    pub(crate) struct Stage {
        pub(crate) root: tempfile::TempDir,
    }

    impl Stage {
        pub(crate) fn usr(&self, path: &str) -> PathBuf {
            self.root.path().join("usr").join(path)
        }

        /// What `pkg-config` says of the package, as its words; from the staging directory, and of nothing else.
        pub(crate) fn pkg_config(&self, ask: &[&str]) -> Vec<String> {
            let text = text(
                command("pkg-config")
                    .args(ask)
                    .arg("stopgap")
                    .env("PKG_CONFIG_LIBDIR", self.usr("lib/pkgconfig"))
                    .env_remove("PKG_CONFIG_PATH")
                    .env("PKG_CONFIG_SYSROOT_DIR", self.root.path()),
            );
            text.split_whitespace().map(str::to_owned).collect()
        }

        /// A folder for programs, beside what was installed.
        pub(crate) fn build(&self) -> PathBuf {
            let folder = self.root.path().join("build");
            std::fs::create_dir_all(&folder).unwrap();
            folder
        }

        /// Runs a program that was linked against the installed shared library.
        pub(crate) fn run(&self, program: &Path) -> Output {
            command(program)
                .env("LD_LIBRARY_PATH", self.usr("lib"))
                .output()
                .unwrap()
        }
    }

    pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env("LC_ALL", "C.UTF-8");
        command
    }

    /// Returns the output of a command, which must succeed and write nothing to standard error.
    #[track_caller]
    pub(crate) fn text(command: &mut Command) -> String {
        let output = command.output().unwrap();
        let complaints = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && complaints.is_empty(),
            "{command:?}: {}\n{complaints}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns whether a program is there; if not, the test is skipped.
    pub(crate) fn have(program: &str) -> bool {
        let there = Command::new(program).arg("--version").output().is_ok();
        if !there {
            skip(&Skip::program(program));
        }
        there
    }

    /// The staging directory, made once. `None` where something is missing to make it.
    pub(crate) fn stage() -> Option<&'static Stage> {
        static STAGE: OnceLock<Option<Result<Stage, String>>> = OnceLock::new();
        let stage = STAGE.get_or_init(|| {
            ["make", "cc", "ar", "objcopy", "pkg-config"]
                .iter()
                .all(|program| have(program))
                .then(make)
        });
        stage
            .as_ref()
            .map(|made| made.as_ref().unwrap_or_else(|why| panic!("{why}")))
    }

    /// Where cargo builds for the Makefile: features differ from those of tests, so not where these are built. `None`
    /// where this user may not write there.
    pub(crate) fn target() -> Option<PathBuf> {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("install");
        let made = std::fs::create_dir_all(&target).and_then(|()| tempfile::tempfile_in(&target));
        made.ok().map(|_| target)
    }

    /// Removes the folder at exit: a static is never dropped.
    fn remove_at_exit(folder: &Path) {
        static FOLDER: OnceLock<PathBuf> = OnceLock::new();
        extern "C" fn remove() {
            if let Some(folder) = FOLDER.get() {
                let _ = std::fs::remove_dir_all(folder);
            }
        }
        FOLDER.get_or_init(|| folder.to_owned());
        // SAFETY: a function that any thread may run once at the end; where this fails a folder stays.
        let _ = unsafe { libc::atexit(remove) };
    }

    fn make() -> Result<Stage, String> {
        let root = tempfile::tempdir().unwrap();
        remove_at_exit(root.path());
        let target = target().unwrap_or_else(|| root.path().join("target"));
        let run = |command: &mut Command| {
            let output = command
                .args(["-C", package().to_str().unwrap()])
                .arg(format!("CARGO_TARGET_DIR={}", target.display()))
                .output()
                .unwrap();
            output
                .status
                .success()
                .then_some(())
                .ok_or_else(|| String::from_utf8_lossy(&output.stderr).into_owned())
        };
        let cargo = format!("CARGO={}", env!("CARGO"));
        run(command("make").args([&cargo, "CARGOFLAGS=--locked --offline"]))?;
        // Installing compiles nothing.
        let destination = format!("DESTDIR={}", root.path().display());
        run(command("make").args(["install", "CARGO=false", "PREFIX=/usr", &destination]))?;
        Ok(Stage { root })
    }

    /// Warnings are errors, and all of them are wanted.
    pub(crate) const STRICT: [&str; 5] = [
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Werror",
        "-Wstrict-prototypes",
    ];

    /// Compiles and links a C file against the installed library. `how` are further flags.
    #[track_caller]
    pub(crate) fn compile(
        stage: &Stage,
        source: &Path,
        name: &str,
        how: &[&str],
        linked: &[String],
    ) -> PathBuf {
        let program = stage.build().join(name);
        text(
            command("cc")
                .args(STRICT)
                .args(how)
                .args(stage.pkg_config(&["--cflags"]))
                .arg(source)
                .arg("-o")
                .arg(&program)
                .args(linked),
        );
        program
    }
}

use stopgap_testing::{Skip, skip};

use std::collections::BTreeSet;
use std::path::Path;

use stage::{Stage, command, compile, have, package, stage, text};

fn read(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path).unwrap()
}

/// The names in the version script.
fn promised() -> BTreeSet<String> {
    let map = read(package().join("stopgap.map"));
    let names = map
        .lines()
        .filter_map(|line| line.strip_prefix("\t\tstopgap_")?.strip_suffix(';'))
        .map(|name| format!("stopgap_{name}"));
    names.collect()
}

/// The functions in the header, without its comments.
fn declared() -> BTreeSet<String> {
    let header = read(package().join("include/stopgap.h"));
    let mut code = String::new();
    let mut rest = header.as_str();
    while let Some((before, comment)) = rest.split_once("/*") {
        code.push_str(before);
        rest = comment.split_once("*/").unwrap().1;
    }
    code.push_str(rest);
    let mut names = BTreeSet::new();
    for (at, _) in code.match_indices("stopgap_") {
        let whole = &code[at..];
        let end = whole
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .unwrap();
        if whole[end..].starts_with('(') {
            names.insert(whole[..end].to_owned());
        }
    }
    names
}

/// Names in the NAME section of a page.
fn named(page: &str) -> Vec<String> {
    let (_, section) = page.split_once(".SH NAME\n").unwrap();
    let (names, _) = section.split_once(" \\- ").unwrap();
    names
        .split(", ")
        .map(|name| name.trim().to_owned())
        .collect()
}

fn pages() -> Vec<(String, String)> {
    let mut pages: Vec<_> = std::fs::read_dir(package().join("man"))
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            (entry.file_name().into_string().unwrap(), read(entry.path()))
        })
        .collect();
    pages.sort();
    pages
}

#[test]
fn header_version_script_and_manual_name_the_same_functions() {
    let promised = promised();
    assert!(promised.len() > 10, "{promised:?}");
    assert_eq!(declared(), promised);
    let mut in_pages = BTreeSet::new();
    for (file, page) in pages() {
        let names = named(&page);
        assert_eq!(
            format!("{}.3", names[0]),
            file,
            "the first name is the page's"
        );
        for name in names {
            // A page of a group begins with the group's name, which is no function.
            if format!("{name}.3") == file && !promised.contains(&name) {
                continue;
            }
            assert!(
                page.contains(&format!(" {name}(")) || page.contains(&format!("*{name}(")),
                "{file}: {name} is not in the synopsis"
            );
            assert!(in_pages.insert(name.clone()), "{name} is in two pages");
        }
    }
    assert_eq!(in_pages, promised);
}

#[test]
fn the_header_has_the_packages_version() {
    let version = env!("CARGO_PKG_VERSION");
    let header = read(package().join("include/stopgap.h"));
    assert!(header.contains(&format!("#define STOPGAP_VERSION \"{version}\"")));
    let parts: Vec<_> = version.split('.').collect();
    assert!(header.contains(&format!("#define STOPGAP_VERSION_MAJOR {}\n", parts[0])));
    assert!(header.contains(&format!("#define STOPGAP_VERSION_MINOR {}\n", parts[1])));
}

#[test]
fn nothing_but_the_interface_can_be_seen() {
    let Some(stage) = stage() else { return };
    let expected = promised();
    let shared = stage.usr("lib/libstopgap.so");
    if have("objdump") {
        let table = text(command("objdump").arg("-T").arg(&shared));
        let mut defined = BTreeSet::new();
        for line in table
            .lines()
            .filter(|line| line.starts_with('0') && !line.contains("*UND*"))
        {
            let words: Vec<_> = line.split_whitespace().collect();
            let [.., version, name] = words[..] else {
                panic!("{line}")
            };
            assert_eq!(version, "STOPGAP_0.1", "{line}");
            if name != "STOPGAP_0.1" {
                assert!(line.contains(" DF .text"), "not a function: {line}");
                defined.insert(name.to_owned());
            }
        }
        assert_eq!(defined, expected);
        let dynamic = text(command("objdump").arg("-p").arg(&shared));
        let entry = |key: &str| -> Vec<&str> {
            dynamic
                .lines()
                .filter_map(|line| line.trim().strip_prefix(key))
                .map(str::trim)
                .collect()
        };
        assert_eq!(entry("SONAME"), ["libstopgap.so.0"]);
        for needed in entry("NEEDED") {
            assert!(
                needed.starts_with("libc.so")
                    || needed.starts_with("libgcc_s.so")
                    || needed.starts_with("ld-linux"),
                "needs {needed}"
            );
        }
    }
    if have("nm") {
        let table = text(
            command("nm")
                .args(["-g", "--defined-only"])
                .arg(stage.usr("lib/libstopgap.a")),
        );
        let defined: BTreeSet<_> = table
            .lines()
            .filter_map(|line| line.split_once(" T ").map(|(_, name)| name.to_owned()))
            .collect();
        let others: Vec<_> = table
            .lines()
            .filter(|line| !line.is_empty() && !line.ends_with(':') && !line.contains(" T "))
            .collect();
        assert_eq!((defined, others), (expected, vec![]));
    }
}

#[test]
fn exactly_this_is_installed_and_removed_again() {
    let Some(stage) = stage() else { return };
    let mut expected: BTreeSet<String> = [
        "include/stopgap.h",
        "include/stopgap_mark.h",
        "lib/libstopgap.a",
        "lib/libstopgap.so",
        "lib/libstopgap.so.0",
        "lib/pkgconfig/stopgap.pc",
    ]
    .map(str::to_owned)
    .into();
    expected.insert(format!("lib/libstopgap.so.{}", env!("CARGO_PKG_VERSION")));
    for name in pages().iter().flat_map(|(_, page)| named(page)) {
        expected.insert(format!("share/man/man3/{name}.3"));
    }
    assert_eq!(files(&stage.usr("")), expected);
    let text_of = |path: &str| read(stage.usr(path));
    assert_eq!(
        text_of("share/man/man3/stopgap_version.3"),
        ".so man3/stopgap_error.3\n"
    );
    let package_config = text_of("lib/pkgconfig/stopgap.pc");
    assert!(
        package_config.contains("\nlibdir=/usr/lib\n"),
        "{package_config}"
    );
    assert!(!package_config.contains('@'), "{package_config}");
    assert_eq!(
        stage.pkg_config(&["--modversion"]),
        [env!("CARGO_PKG_VERSION")]
    );

    // A second staging directory, with a libdir of its own, from what was built; and removed again.
    let other = tempfile::tempdir().unwrap();
    let Some(target) = stage::target() else {
        return;
    }; // what this user built is in the first one
    let make = |goal: &str| {
        text(
            command("make")
                .args([
                    "-C",
                    package().to_str().unwrap(),
                    goal,
                    "PREFIX=/opt/x",
                    "LIBDIR=/opt/x/lib64",
                ])
                .arg("CARGO=false")
                .arg(format!("CARGO_TARGET_DIR={}", target.display()))
                .arg(format!("DESTDIR={}", other.path().display())),
        )
    };
    make("install");
    let moved = expected.iter().map(|path| {
        path.strip_prefix("lib/")
            .map_or(path.clone(), |rest| format!("lib64/{rest}"))
    });
    assert_eq!(files(&other.path().join("opt/x")), moved.collect());
    make("uninstall");
    assert_eq!(files(other.path()), BTreeSet::new());
}

#[test]
fn a_path_that_is_not_absolute_is_refused_and_nothing_is_written() {
    if !have("make") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let beside = format!("{}/a b", folder.path().display());
    let before = files(package());
    for (name, value) in [
        ("PREFIX", "stage"),
        ("PREFIX", "~/stage"),
        ("DESTDIR", "./stage"),
        ("DESTDIR", &beside),
        ("LIBDIR", "lib64"),
        ("MANDIR", "/one /two"),
    ] {
        for goal in ["install", "uninstall"] {
            let output = command("make")
                .args(["-C", package().to_str().unwrap(), goal, "CARGO=false"])
                .arg(format!("DESTDIR={}", folder.path().display()))
                .arg(format!("{name}={value}"))
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{name}={value}: {said}");
            assert!(
                said.contains(&format!("{name}={value}: give an absolute path")),
                "{said}"
            );
        }
    }
    assert_eq!(files(package()), before);
    assert_eq!(files(folder.path()), BTreeSet::new());
}

#[test]
fn header_and_manual_name_every_policy() {
    let header = read(package().join("include/stopgap.h"));
    let page = read(package().join("man/stopgap_chunked.3"))
        .replace("\\-", "-")
        .replace("\\(dq", "\"");
    for policy in stopgap_arena::chunked::Policy::ALL {
        let quoted = format!("\"{}\"", policy.word());
        assert!(header.contains(&quoted), "{quoted} is not in the header");
        assert!(page.contains(&quoted), "{quoted} is not in the page");
    }
}

/// Files and links below a folder.
fn files(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open = vec![folder.to_owned()];
    while let Some(at) = open.pop() {
        for entry in std::fs::read_dir(at).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                open.push(entry.path());
            } else {
                let path = entry.path();
                found.insert(
                    path.strip_prefix(folder)
                        .unwrap()
                        .to_str()
                        .unwrap()
                        .to_owned(),
                );
            }
        }
    }
    found
}

#[test]
fn the_header_is_c89_to_c23_and_any_cplusplus() {
    let Some(stage) = stage() else { return };
    let build = stage.build();
    let source = "#include <stopgap.h>\n#include <stopgap.h>\nint one(void);\nint one(void) { return STOPGAP_VERSION_MAJOR; }\n";
    std::fs::write(build.join("header.c"), source).unwrap();
    std::fs::write(build.join("header.cc"), source).unwrap();
    let check = |compiler: &str, file: &str, standard: &str, strict: &[&str]| {
        text(
            command(compiler)
                .args(strict)
                .arg(format!("-std={standard}"))
                .args(["-Wshadow", "-Wconversion", "-fsyntax-only"])
                .args(stage.pkg_config(&["--cflags"]))
                .arg(build.join(file)),
        );
    };
    for standard in ["c89", "gnu89", "c99", "c11", "c17", "c2x"] {
        check("cc", "header.c", standard, &stage::STRICT);
    }
    if have("c++") {
        for standard in ["c++98", "c++11", "c++17", "c++20"] {
            check("c++", "header.cc", standard, &stage::STRICT[..4]);
        }
    }
}

/// Compiles a program of `tests/c` and runs it; its last line must be `done`.
fn runs(name: &str) {
    let Some(stage) = stage() else { return };
    let source = package().join("tests/c").join(format!("{name}.c"));
    let shared = compile(
        stage,
        &source,
        name,
        &["-std=gnu99"],
        &libraries(stage, name),
    );
    said_done(name, &stage.run(&shared));
}

/// Shared; programs with threads say so in their first line.
fn libraries(stage: &Stage, name: &str) -> Vec<String> {
    let mut words = stage.pkg_config(&["--libs"]);
    if read(package().join("tests/c").join(format!("{name}.c"))).contains("pthread.h") {
        words.push("-pthread".to_owned());
    }
    words
}

fn said_done(name: &str, output: &std::process::Output) {
    let said = String::from_utf8_lossy(&output.stdout);
    let complaints = String::from_utf8_lossy(&output.stderr);
    for line in said.lines() {
        if let Some(why) = line.strip_prefix("skipped: ") {
            skip(&Skip::machine(format_args!("{name}: {why}")));
        }
    }
    assert!(
        output.status.success() && said.lines().last() == Some("done"),
        "{name}: {}\n{said}{complaints}",
        output.status
    );
}

#[test]
fn error_c() {
    runs("error");
}

#[test]
fn arena_c() {
    runs("arena");
}

#[test]
fn chunked_c() {
    runs("chunked");
}

#[test]
fn sched_c() {
    runs("sched");
}

#[test]
fn locked_c() {
    runs("locked");
}

#[test]
fn channel_c() {
    runs("channel");
}

/// The example of the manual, compiled and run by the commands that stand below it, prints what stands there.
#[test]
fn the_documented_example_runs() {
    let Some(stage) = stage() else { return };
    let page = read(package().join("../../docs/fixes/c.md"));
    let block = |kind: &str, from: &str| {
        let (_, rest) = page.split_once(from).unwrap();
        let (_, rest) = rest.split_once(&format!("```{kind}\n")).unwrap();
        rest.split_once("```").unwrap().0.to_owned()
    };
    let source = block("c", "`example.c`:");
    let shown = block("console", "`example.c`:");
    let mut lines = shown.lines();
    let compiles = lines.next().unwrap().strip_prefix("$ ").unwrap();
    assert_eq!(lines.next(), Some("$ ./example"));
    let expected: String = lines.map(|line| format!("{line}\n")).collect();

    let folder = stage.build().join("example");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("example.c"), source).unwrap();
    text(
        command("sh")
            .args(["-c", compiles])
            .current_dir(&folder)
            .env("PKG_CONFIG_LIBDIR", stage.usr("lib/pkgconfig"))
            .env("PKG_CONFIG_SYSROOT_DIR", stage.root.path()),
    );
    let output = stage.run(&folder.join("example"));
    assert_eq!(
        (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        ),
        (expected.into(), "".into())
    );
    // It is C89 but for nothing.
    compile(
        stage,
        &folder.join("example.c"),
        "example89",
        &["-std=c89"],
        &stage.pkg_config(&["--libs"]),
    );
}

/// Under valgrind, which takes the vDSO away and sees every byte that is read: nothing is read that was not written,
/// and all that was taken from malloc can be found.
#[test]
fn programs_run_under_valgrind() {
    let Some(stage) = stage() else { return };
    if !have("valgrind") {
        return;
    }
    for name in ["error", "chunked", "sched"] {
        let source = package().join("tests/c").join(format!("{name}.c"));
        let program = compile(
            stage,
            &source,
            &format!("{name}-valgrind"),
            &["-std=gnu99", "-g"],
            &libraries(stage, name),
        );
        let output = command("valgrind")
            .args(["-q", "--error-exitcode=9", "--leak-check=full"])
            .arg(&program)
            .env("LD_LIBRARY_PATH", stage.usr("lib"))
            .output()
            .unwrap();
        said_done(name, &output);
    }
}

#[test]
fn cost_c() {
    runs("cost");
}

/// Every function is called by one of the programs that are compiled here.
#[test]
fn the_programs_call_every_function() {
    let mut all = String::new();
    for entry in std::fs::read_dir(package().join("tests/c")).unwrap() {
        all += &read(entry.unwrap().path());
    }
    for name in promised() {
        assert!(all.contains(&format!("{name}(")), "{name}");
    }
}

/// The static library alone, and a program that is static as a whole.
#[test]
fn static_programs_run() {
    let Some(stage) = stage() else { return };
    let source = package().join("tests/c/error.c");
    let private = stage.pkg_config(&["--libs", "--static"]);
    let archive: Vec<_> = private
        .iter()
        .map(|word| {
            if word == "-lstopgap" {
                "-l:libstopgap.a".to_owned()
            } else {
                word.clone()
            }
        })
        .collect();
    let program = compile(stage, &source, "static-library", &["-std=gnu99"], &archive);
    // Without LD_LIBRARY_PATH: it needs no libstopgap.so.
    said_done("static-library", &command(&program).output().unwrap());
    let program = compile(
        stage,
        &source,
        "static-whole",
        &["-std=gnu99", "-static"],
        &private,
    );
    said_done("static-whole", &command(&program).output().unwrap());
}

#[test]
fn a_cplusplus_program_runs() {
    let Some(stage) = stage() else { return };
    if !have("c++") {
        return;
    }
    let program = stage.build().join("plusplus");
    text(
        command("c++")
            .args(&stage::STRICT[..4])
            .arg("-std=c++11")
            .args(stage.pkg_config(&["--cflags"]))
            .arg(package().join("tests/c/plusplus.cc"))
            .arg("-o")
            .arg(&program)
            .args(stage.pkg_config(&["--libs"])),
    );
    said_done("plusplus", &stage.run(&program));
}

#[test]
fn the_manual_has_no_faults() {
    let files: Vec<_> = pages()
        .iter()
        .map(|(file, _)| package().join("man").join(file))
        .collect();
    if have("groff") {
        for file in &files {
            let said = text(
                command("groff")
                    .args(["-man", "-ww", "-rCHECKSTYLE=3", "-Tutf8", "-z"])
                    .arg(file),
            );
            assert_eq!(said, "", "{}", file.display());
        }
    }
    if have("man") {
        for file in &files {
            let shown = text(
                command("man")
                    .args(["--warnings", "-P", "cat", "-l"])
                    .arg(file)
                    .env("MANWIDTH", "80"),
            );
            for section in [
                "NAME",
                "SYNOPSIS",
                "DESCRIPTION",
                "RETURN VALUE",
                "ERRORS",
                "ATTRIBUTES",
                "EXAMPLES",
            ] {
                assert!(
                    shown.contains(&format!("\n{section}\n")),
                    "{}: no {section}",
                    file.display()
                );
            }
        }
    }
}

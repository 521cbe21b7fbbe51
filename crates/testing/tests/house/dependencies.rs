//! The dependencies of the product: packaging/dependencies.md has each with its reason and its size, and none needs a newer Rust
//! than `Cargo.toml` promises.
//!
//! To write the table's numbers again: `UPDATE_TABLE=1 cargo test -p stopgap-testing dependencies::`.

use std::collections::{BTreeMap, BTreeSet};

use crate::root;
use cargo_metadata::{CargoOpt, DependencyKind, Metadata, MetadataCommand, Package, PackageId};

const HEAD: &str =
    "| crate | why | version | lines | unsafe | goes with it |\n|---|---|---|---|---|---|\n";

/// Returns what cargo says of all packages of Linux on x86-64, as the lock file has them.
fn metadata(features: Option<CargoOpt>) -> Metadata {
    let mut command = MetadataCommand::new();
    let platform = ["--filter-platform", "x86_64-unknown-linux-gnu"];
    let options = ["--offline", "--locked"].into_iter().chain(platform);
    command
        .manifest_path(root().join("Cargo.toml"))
        .other_options(options.map(str::to_owned).collect::<Vec<_>>());
    if let Some(features) = features {
        command.features(features);
    }
    command.exec().unwrap()
}

fn foreign(package: &Package) -> bool {
    package.source.is_some()
}

/// Returns what `package` is compiled with, test dependencies left out.
fn uses<'a>(metadata: &'a Metadata, package: &PackageId) -> impl Iterator<Item = &'a PackageId> {
    let node = &metadata[package];
    let _: &Package = node;
    let nodes = &metadata.resolve.as_ref().unwrap().nodes;
    let node = nodes.iter().find(|node| node.id == *package).unwrap();
    node.deps.iter().filter_map(|dependency| {
        let compiled = |kind: DependencyKind| kind != DependencyKind::Development;
        let mut kinds = dependency.dep_kinds.iter();
        kinds
            .any(|info| compiled(info.kind))
            .then_some(&dependency.pkg)
    })
}

/// Returns the packages of others that our crates name, bench's own left out: no package contains it.
fn direct(metadata: &Metadata) -> BTreeSet<&PackageId> {
    let members = metadata.workspace_packages();
    let product = members
        .iter()
        .filter(|member| !["stopgap-bench", "stopgap-testing"].contains(&member.name.as_str()));
    let used = product.flat_map(|member| uses(metadata, &member.id));
    used.filter(|id| foreign(&metadata[*id])).collect()
}

/// Returns `from` and all that they are compiled with.
fn closure<'a>(
    metadata: &'a Metadata,
    from: impl Iterator<Item = &'a PackageId>,
) -> BTreeSet<&'a PackageId> {
    let mut open: Vec<&PackageId> = from.collect();
    let mut reached = BTreeSet::new();
    while let Some(id) = open.pop() {
        if reached.insert(id) {
            open.extend(uses(metadata, id));
        }
    }
    reached
}

/// Lines of Rust with code on them, and those with the word `unsafe`.
#[derive(Clone, Copy, Default)]
struct Size {
    lines: u64,
    with_unsafe: u64,
}

impl std::ops::AddAssign for Size {
    fn add_assign(&mut self, other: Size) {
        self.lines += other.lines;
        self.with_unsafe += other.with_unsafe;
    }
}

/// Counts the sources below the folder of the package's library.
fn size(package: &Package) -> Size {
    let library = package.targets.iter().find(|target| {
        !["bin", "example", "test", "bench", "custom-build"]
            .iter()
            .any(|kind| target.kind.iter().any(|own| own.to_string() == *kind))
    });
    let mut folders = vec![
        library
            .unwrap()
            .src_path
            .parent()
            .unwrap()
            .to_path_buf()
            .into_std_path_buf(),
    ];
    let mut size = Size::default();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                size += count(&std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    size
}

fn count(text: &str) -> Size {
    let mut size = Size::default();
    for line in text.lines() {
        let code = line.split_once("//").map_or(line, |(code, _)| code);
        size.lines += u64::from(!code.trim_start().is_empty());
        let part_of_word = |c: char| c.is_alphanumeric() || c == '_';
        let is_word =
            code.contains("unsafe") && code.split(|c| !part_of_word(c)).any(|w| w == "unsafe");
        size.with_unsafe += u64::from(is_word);
    }
    size
}

/// Writes 1234567 as 1,234,567.
fn thousands(number: u64) -> String {
    match number {
        0..1_000 => number.to_string(),
        _ => format!("{},{:03}", thousands(number / 1_000), number % 1_000),
    }
}

/// Returns the table as the sources have it, with the reasons given, and the line of sums below it.
fn table(metadata: &Metadata, why: &BTreeMap<String, String>) -> String {
    let direct = direct(metadata);
    let all = closure(metadata, direct.iter().copied());
    let sizes: BTreeMap<&PackageId, Size> =
        all.iter().map(|id| (*id, size(&metadata[*id]))).collect();
    let sum = |ids: &BTreeSet<&PackageId>| {
        let mut total = Size::default();
        ids.iter().for_each(|id| total += sizes[id]);
        total
    };
    let mut rows: Vec<String> = Vec::new();
    for id in &direct {
        let package = &metadata[*id];
        let others = closure(metadata, direct.iter().copied().filter(|other| other != id));
        let alone: BTreeSet<&PackageId> = all
            .difference(&others)
            .copied()
            .filter(|other| other != id)
            .collect();
        let goes = match alone.len() {
            0 => String::new(),
            1 => format!("1 crate, {} lines", thousands(sum(&alone).lines)),
            n => format!("{n} crates, {} lines", thousands(sum(&alone).lines)),
        };
        let name = package.name.to_string();
        let reason = why.get(&name).map_or("", String::as_str);
        let own = sizes[id];
        let (lines, with_unsafe) = (thousands(own.lines), thousands(own.with_unsafe));
        let version = &package.version;
        rows.push(format!(
            "| {name} | {reason} | {version} | {lines} | {with_unsafe} | {goes} |\n"
        ));
    }
    rows.sort();
    let total = sum(&all);
    format!(
        "{HEAD}{}\nIn all {} crates, {} lines, {} of them with `unsafe`.\n",
        rows.concat(),
        all.len(),
        thousands(total.lines),
        thousands(total.with_unsafe)
    )
}

#[test]
fn the_table_of_dependencies_is_true() {
    let path = root().join("packaging/dependencies.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(HEAD).expect("the table of dependencies");
    let (rows, rest) = rest.split_once("\n\nIn all ").expect("the table's sums");
    let (sums, after) = rest.split_once('\n').unwrap();
    let documented = format!("{HEAD}{rows}\n\nIn all {sums}\n");
    let why: BTreeMap<String, String> = rows
        .lines()
        .map(|row| {
            let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
            (cells[0].to_owned(), cells[1].to_owned())
        })
        .collect();
    let actual = table(&metadata(Some(CargoOpt::AllFeatures)), &why);
    if std::env::var_os("UPDATE_TABLE").is_some() {
        std::fs::write(&path, format!("{before}{actual}{after}")).unwrap();
    } else {
        assert!(
            actual == documented,
            "packaging/dependencies.md: the dependencies have changed:\n{actual}\n\
             UPDATE_TABLE=1 cargo test -p stopgap-testing dependencies::"
        );
    }
    let bare: Vec<&str> = actual.lines().filter(|row| row.contains("|  | ")).collect();
    assert!(
        bare.is_empty(),
        "say why in packaging/dependencies.md: {bare:#?}"
    );
}

/// One backend of one probe needs OpenGL: no package contains it.
#[test]
fn opengl_is_in_no_ordinary_build() {
    let metadata = metadata(None);
    let all = closure(&metadata, direct(&metadata).into_iter());
    let names: BTreeSet<&str> = all.iter().map(|id| metadata[*id].name.as_str()).collect();
    assert!(names.contains("rustix"), "{names:?}");
    assert!(!names.contains("glow") && !names.contains("khronos-egl"));
}

#[test]
fn no_dependency_needs_a_newer_rust() {
    let metadata = metadata(Some(CargoOpt::AllFeatures));
    let members = metadata.workspace_packages();
    let ours = members[0].rust_version.clone().expect("rust-version");
    assert!(
        members
            .iter()
            .all(|member| member.rust_version.as_ref() == Some(&ours))
    );
    let mut silent = BTreeSet::new();
    let mut newer = Vec::new();
    for package in metadata.packages.iter().filter(|package| foreign(package)) {
        match &package.rust_version {
            Some(needs) if *needs > ours => newer.push(format!("{} {needs}", package.name)),
            Some(_) => (),
            None => _ = silent.insert(package.name.as_str()),
        }
    }
    eprintln!("these state no rust-version: {silent:?}");
    assert!(newer.is_empty(), "newer than {ours}: {newer:?}");
}

#[test]
fn lines_are_counted_by_their_code() {
    let text = "// unsafe\nunsafe fn a() {} // b\n\n    let not_unsafe = 1;\n";
    let size = count(text);
    assert_eq!((size.lines, size.with_unsafe), (2, 1));
}

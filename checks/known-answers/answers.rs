//! stopgap's answers, held against stalls whose size is known: checks/known-answers/README.md.
//!
//! A kernel of Debian's is booted twice in QEMU, from the same initramfs but for the parameters of our module: armed and
//! unarmed. In both the same commands of `stopgap` itself run, and what they say is compared with what the module did.
//! Both boots have the same settings, so a verdict of the armed one comes from the module.

#[path = "capture.rs"]
mod capture;
#[path = "fences.rs"]
mod fences;
#[path = "states.rs"]
mod states;
#[path = "survive.rs"]
mod survive;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde_json::Value;
use stopgap_events::units::Nanos;
use stopgap_guest::protocol::{Cell, Plan, Transcript, Work};
use stopgap_kernels::qemu::Qemu;
use stopgap_kernels::{Image, Initramfs, InitramfsFile, Machine, Module, run_all};
use stopgap_testing::{Skip, skip};

/// What the module does when it is armed. The number is a prime, so that nothing else comes to it.
const SLEEPS: u64 = 23;
const SLEEP_NS: u64 = 200_000_000;
const ARMED: &str = "walk=1 sleeps=23";

/// The function that sleeps.
const SHRINKER: &str = "known_scan";

/// How far a time may be off, as a part of it: a sleep never ends early, and the kernel decides how late.
const LATE: f64 = 0.03;
/// How far an exponent of 1 may be off.
const OFF: f64 = 0.05;

/// By the guest's clock.
const CELL_LIMIT: Nanos = Nanos(300 * 1_000_000_000);
/// By the host's, which may be busy.
const LIMIT: Duration = Duration::from_secs(900);

const STOPGAP: &str = "/stopgap/stopgap";
const KNOWN: &str = "/stopgap/known";
const TRACE: &str = "/tmp/pressure.parquet";

/// Ways to pin shmem; udmabuf is a part of Debian's 6.12 (CONFIG_UDMABUF is no module).
const WAYS: [&str; 3] = ["vmsplice", "io-uring", "udmabuf"];

#[test]
fn the_answers_are_what_the_module_did() {
    let kernels = match std::env::var_os("STOPGAP_KERNELS") {
        Some(folder) => PathBuf::from(folder),
        None => {
            return skip(&Skip::image(
                "STOPGAP_KERNELS names no folder with packages (checks/known-answers/fetch FOLDER)",
            ));
        }
    };
    let packages = match Packages::newest(&kernels) {
        Ok(packages) => packages,
        Err(why) => return skip(&Skip::image(why)),
    };
    println!("kernel {}", packages.release);
    let work = tempfile::tempdir().unwrap();
    let module = packages.build_module(work.path());

    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml");
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let init = static_program(&workspace, "stopgap-guest", "stopgap-guest");
    let files = [
        (
            STOPGAP,
            static_program(&workspace, "stopgap-cli", "stopgap"),
        ),
        (
            KNOWN,
            static_program(&own, "stopgap-check-known-answers", "known"),
        ),
    ];
    let files = files.map(|(path, bytes)| InitramfsFile {
        path: path.to_owned(),
        bytes,
        executable: true,
    });

    let image = Image::open(packages.image.to_str().unwrap()).unwrap();
    let zram = image
        .modules
        .resolve(&["zram"], image.release.as_deref())
        .unwrap();
    assert!(zram.missing.is_empty(), "{:?}", zram.missing);
    let mut modules = zram.modules;
    modules.push(module);

    let qemu = Qemu::find(image.architecture).unwrap();
    let machine = |parameters: &str| {
        let plan = serde_json::to_string(&plan(&modules, parameters)).unwrap();
        let initramfs = Initramfs::build(&init, &plan, &modules, &files).unwrap();
        Machine {
            limit: LIMIT,
            ..Machine::new(qemu.clone(), image.clone(), initramfs, 1)
        }
    };
    let machines = [machine(ARMED), machine("")];
    let mut boots = run_all(&machines, 2, &AtomicBool::new(false), &mut |_, _| {}).unwrap();
    let (unarmed, armed) = (boots.pop().unwrap(), boots.pop().unwrap());
    let said = [("armed", armed), ("unarmed", unarmed)].map(|(name, boot)| {
        let console = boot.console.join("\n");
        assert!(boot.is_whole(), "{name}: {}\n{console}", boot.why);
        let transcript = Transcript::read(&boot.lines).unwrap();
        assert!(
            transcript.failed.is_empty(),
            "{name}: {:?}",
            transcript.failed
        );
        assert!(
            transcript.missing.is_empty(),
            "{name}: {:?}",
            transcript.missing
        );
        println!("\n== {name}, {:?} by the host's clock", boot.host_time);
        for ran in &transcript.ran {
            let [said, errors] =
                ["stdout", "stderr"].map(|file| text(&transcript, &ran.name, file));
            let end = ran
                .status
                .map_or("a signal".to_owned(), |status| status.to_string());
            match ran.name.as_str() {
                "placement" if ran.status == Some(0) => println!("{}", verdict(&transcript)),
                "explain json" | "held" if ran.status == Some(0) => {}
                name => println!("-- {name} ended with {end}\n{said}{errors}"),
            }
        }
        transcript
    });
    for transcript in &said {
        for ran in &transcript.ran {
            assert_eq!(ran.status, Some(0), "{}", ran.name);
        }
    }
    placement(&said);
    reclaim(&said);
    held(&said);
}

/// What it takes to hold shmem in each way, in instructions a page. `memfd_pin_folios()` and `get_user_pages()` go page by
/// page, so udmabuf costs what the others do, within a factor of 4; both boots agree.
fn held(said: &[Transcript; 2]) {
    let costs = said.each_ref().map(|transcript| {
        let record = json(transcript, "held");
        let series = record["answers"][0]["series"].as_array().unwrap().clone();
        let cost = |name: &str, way: &str| {
            let is_it = |one: &&Value| one["name"] == name && one["parameters"]["mode"] == way;
            let one = series.iter().find(is_it).unwrap();
            let value = one["blocks"][0]["value"].as_f64();
            value.unwrap_or_else(|| panic!("{way}, {name}: {one}"))
        };
        WAYS.map(|way| (cost("take", way), cost("release", way)))
    });
    for (way, (take, release)) in WAYS.iter().zip(costs[1]) {
        println!("held: {way}: take {take:.0}, release {release:.0} instructions a page");
    }
    let [pipes, ring, udmabuf] = costs[1].map(|(take, release)| take + release);
    for other in [pipes, ring] {
        let ratio = udmabuf / other;
        assert!((1.0 / 4.0..=4.0).contains(&ratio), "{costs:?}");
    }
    // Work that the kernel puts off (RCU) falls into either part, so the boots agree on both together.
    for ((take, release), (other_take, other_release)) in costs[0].iter().zip(costs[1]) {
        let ratio = (take + release) / (other_take + other_release);
        assert!((ratio - 1.0).abs() < 0.1, "{costs:?}");
    }
}

/// Returns the verdict of the placement probe.
fn verdict(transcript: &Transcript) -> String {
    let record = json(transcript, "placement");
    let verdict = &record["answers"][0]["verdict"]["text"];
    format!("placement: {}", verdict.as_str().unwrap_or("none"))
}

/// (a) and (c) of placement.
fn placement([armed, unarmed]: &[Transcript; 2]) {
    let answer = |transcript: &Transcript| json(transcript, "placement")["answers"][0].clone();
    let found = answer(armed);
    let text = found["verdict"]["text"].as_str().unwrap();
    assert_eq!(found["verdict"]["word"], "grows", "{text}");
    let exponent = text
        .strip_prefix("grows ~N^")
        .and_then(|rest| rest.split(' ').next());
    let exponent: f64 = exponent.and_then(|p| p.parse().ok()).unwrap_or(f64::NAN);
    assert!((exponent - 1.0).abs() <= OFF, "{text}");

    let found = answer(unarmed);
    assert_eq!(
        found["verdict"]["word"], "flat",
        "{}",
        found["verdict"]["text"]
    );
}

/// (b) and (c) of reclaim.
fn reclaim([armed, unarmed]: &[Transcript; 2]) {
    let of_it = |findings: &Value| {
        let rows = findings["memory"]["reclaim"].as_array().unwrap().clone();
        let of_it = rows.into_iter().filter(|row| row["function"] == SHRINKER);
        of_it.collect::<Vec<Value>>()
    };
    let findings = json(armed, "explain json");
    assert_eq!(findings["losses"]["lost"], 0);
    let [row] = &of_it(&findings)[..] else {
        panic!("one row of {SHRINKER}: {:?}", findings["memory"]["reclaim"]);
    };
    assert_eq!(
        (&row["by"], &row["count"]),
        (&"shrinker".into(), &SLEEPS.into()),
        "{row}"
    );
    about(&row["wall_ns"], SLEEPS * SLEEP_NS);
    about(&row["most_ns"], SLEEP_NS);
    let explained = &findings["memory"]["explained_by"];
    assert_eq!(
        (&explained["cause"], &explained["function"]),
        (&"shrinker".into(), &SHRINKER.into()),
        "{explained}"
    );
    let verdict = findings["verdict"]["text"].as_str().unwrap();
    assert_eq!(findings["verdict"]["word"], "stalls", "{verdict}");
    assert!(
        verdict.ends_with(&format!("% of it shrinker {SHRINKER}")),
        "{verdict}"
    );
    let advice = &findings["advice"][0]["evidence"];
    assert!(
        advice
            .as_str()
            .unwrap()
            .contains(&format!("called {SLEEPS} times, 4.6")),
        "{advice}"
    );
    // What the faults are made of is that and little else: parts add up to the whole, and the whole to the sleeps.
    let faults = findings["calls"].as_array().unwrap();
    let faults = faults
        .iter()
        .find(|calls| calls["kind"] == "fault")
        .unwrap();
    let parts = faults["slow_parts"].as_array().unwrap();
    let slept = parts
        .iter()
        .find(|part| part["function"] == SHRINKER)
        .unwrap();
    about(&slept["ns"], SLEEPS * SLEEP_NS);

    let findings = json(unarmed, "explain json");
    assert_eq!(findings["losses"]["lost"], 0);
    // It had to reclaim as well: there was something to be found in.
    let reclaims = findings["memory"]["reclaim"].as_array().unwrap();
    assert!(
        reclaims.iter().any(|row| row["by"] == "memcg"),
        "{reclaims:?}"
    );
    assert!(of_it(&findings).is_empty(), "{reclaims:?}");
    let verdict = &findings["verdict"];
    assert_eq!(verdict["word"], "clean", "{}", verdict["text"]);
    assert_ne!(findings["memory"]["explained_by"]["cause"], "shrinker");
}

/// A time that is `expected_ns` or up to [`LATE`] more.
fn about(found_ns: &Value, expected_ns: u64) {
    let found_ns = found_ns.as_u64().unwrap();
    let latest = expected_ns as f64 * (1.0 + LATE);
    assert!(
        found_ns >= expected_ns && found_ns as f64 <= latest,
        "{found_ns} ns, not {expected_ns} ns"
    );
}

fn text(transcript: &Transcript, cell: &str, file: &str) -> String {
    let bytes = transcript
        .files
        .get(&(Some(cell.to_owned()), file.to_owned()));
    String::from_utf8_lossy(bytes.map_or(&[], Vec::as_slice)).into_owned()
}

fn json(transcript: &Transcript, cell: &str) -> Value {
    let text = text(transcript, cell, "stdout");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{cell}: {error}: {text}"))
}

/// The commands, in their order.
fn plan(modules: &[Module], parameters: &str) -> Plan {
    // Mappings are made one by one, each after a walk over those that are there: 50 million steps for 10,000.
    let probe = "probe placement --backend device:/dev/stopgap_known --n 1000,2000,4000,10000 --steps 400 --runs 3 \
                 --threads 0 --agua-loops 0 --freegap-rounds 0 --seed 1 -d 10m -o /tmp --json";
    let ways = WAYS.join(",");
    let held = format!(
        "probe reclaim --no-load --mode {ways} --bytes 16M --passes 1 --runs 3 -o /tmp --json"
    );
    let cells = [
        ("prepare", format!("{KNOWN} prepare")),
        ("held", format!("{STOPGAP} {held}")),
        ("placement", format!("{STOPGAP} {probe}")),
        (
            "record",
            format!("{STOPGAP} record -o {TRACE} -- {KNOWN} pressure"),
        ),
        ("explain", format!("{STOPGAP} explain --verbose {TRACE}")),
        ("explain json", format!("{STOPGAP} explain {TRACE} --json")),
    ];
    let cells = cells.map(|(name, command)| Cell {
        name: name.to_owned(),
        work: Work::Command {
            argv: command.split(' ').map(str::to_owned).collect(),
            files: Vec::new(),
            limit: CELL_LIMIT,
        },
    });
    let module = modules.last().unwrap().path();
    Plan {
        modules: modules.iter().map(Module::path).collect(),
        parameters: vec![(module, parameters.to_owned())],
        ..Plan::new(cells.into())
    }
}

/// Packages of one kernel, as apt-get download names their files.
struct Packages {
    release: String,
    base: String,
    image: PathBuf,
    /// What an out-of-tree build needs: the configured headers, the common ones, and the programs of kbuild.
    headers: [PathBuf; 3],
}

impl Packages {
    /// Those of the newest 6.12 of which all are there; or what is missing.
    fn newest(folder: &Path) -> Result<Packages, String> {
        let entries =
            fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        // Flavours (cloud, rt) have a name after another dash.
        let generic = |name: &String| {
            let (release, version) = name
                .strip_prefix("linux-image-")?
                .strip_suffix("_amd64.deb")?
                .split_once('_')?;
            let base = release.strip_suffix("-amd64")?;
            let fits = base.starts_with("6.12.") && !base.contains('-');
            fits.then(|| (base.to_owned(), version.to_owned()))
        };
        let mut all: Vec<_> = names
            .filter_map(|name| Some((generic(&name)?, name)))
            .collect();
        all.sort_by_key(|((_, version), _)| numbers(version));
        let missing = |what: &str| {
            format!(
                "{what} in {} (checks/known-answers/fetch FOLDER)",
                folder.display()
            )
        };
        let ((base, version), image) = all
            .pop()
            .ok_or_else(|| missing("no linux-image-6.12.*-amd64_*.deb"))?;
        let headers = [
            format!("linux-headers-{base}-amd64_{version}_amd64.deb"),
            format!("linux-headers-{base}-common_{version}_all.deb"),
            format!("linux-kbuild-{base}_{version}_amd64.deb"),
        ];
        for name in &headers {
            if !folder.join(name).exists() {
                return Err(missing(&format!("no {name}")));
            }
        }
        Ok(Packages {
            release: format!("{base}-amd64"),
            image: folder.join(image),
            headers: headers.map(|name| folder.join(name)),
            base,
        })
    }

    /// Our module, built in `work` with nothing installed: the packages refer to each other by relative links, and only the
    /// Makefile of the configured headers by the place where it would be installed. BTF, which needs pahole, is left
    /// out; the kernel does without.
    fn build_module(&self, work: &Path) -> Module {
        let (root, source) = (work.join("root"), work.join("module"));
        for package in &self.headers {
            run(Command::new("dpkg-deb").arg("-x").arg(package).arg(&root));
        }
        fs::create_dir(&source).unwrap();
        for name in ["Kbuild", "stopgap_known.c"] {
            let from = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("module")
                .join(name);
            fs::copy(from, source.join(name)).unwrap();
        }
        let headers = root
            .join("usr/src")
            .join(format!("linux-headers-{}", self.release));
        let common = root
            .join("usr/src")
            .join(format!("linux-headers-{}-common", self.base));
        let mut make = Command::new("make");
        make.arg("-C")
            .arg(&headers)
            .arg("-f")
            .arg(common.join("Makefile"));
        make.arg(format!("M={}", source.display()))
            .arg("CONFIG_DEBUG_INFO_BTF_MODULES=")
            .arg("modules");
        // cargo's own make variables are for its job server.
        run(make.env_remove("MAKEFLAGS").env_remove("MFLAGS"));
        Module {
            name: "stopgap_known".to_owned(),
            bytes: fs::read(source.join("stopgap_known.ko")).unwrap(),
        }
    }
}

/// The numbers in a version, by which it is newer or older.
fn numbers(version: &str) -> Vec<u64> {
    let words = version.split(|c: char| !c.is_ascii_digit());
    words.filter_map(|word| word.parse().ok()).collect()
}

/// A program for the guest, which has no libraries: built before, or built as this test is, with or without optimisation.
fn static_program(manifest: &Path, package: &str, program: &str) -> Vec<u8> {
    let built = |variable: &str| std::env::var_os(variable).map(PathBuf::from);
    let guest = || built("STOPGAP_GUEST").filter(|_| program == "stopgap-guest");
    if let Some(path) = built("STOPGAP_STATIC")
        .map(|folder| folder.join(program))
        .or_else(guest)
    {
        return fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
    let kind = if program == "self_check" {
        "--example"
    } else {
        "--bin"
    };
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args([
        "rustc",
        "--locked",
        "--message-format=json",
        "-p",
        package,
        kind,
        program,
    ]);
    cargo.arg("--manifest-path").arg(manifest);
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    let said = run(cargo.args([
        "--",
        "-C",
        "target-feature=+crt-static",
        "-C",
        "strip=debuginfo",
    ]));
    let messages = said
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let path = messages
        .filter(|message| message["target"]["name"] == program)
        .find_map(|message| message["executable"].as_str().map(PathBuf::from));
    fs::read(path.expect("cargo says where the program is")).unwrap()
}

/// Returns what the command wrote; fails unless it succeeded.
fn run(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (said, errors) = (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(
        output.status.success(),
        "{command:?}: {}\n{said}\n{errors}",
        output.status
    );
    said
}

//! What `stopgap record` tells beside the recorded threads' own doings, by BPF and by tracefs: the call of each wait, who sent a signal
//! to whom, and requests to disks from begin to end.
//!
//! Needs root, and for programs a C compiler; otherwise skipped, and said.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use stopgap_events::wait::{State, Wait};
use stopgap_trace::{Activity, Event, Input, Kind, Span};

use crate::common::{Run, begun, may, text, wait_for};
use stopgap_testing::{Skip, skip};

/// Sources that have all of it.
fn sources(run: &Run) -> Vec<&'static str> {
    if !may("record") {
        return Vec::new();
    }
    let tried = run.stopgap("record --source bpf --only -o t.parquet -- true");
    match tried.status {
        Some(0) => vec!["--source tracefs", "--source bpf --only"],
        _ => {
            skip(&Skip::machine(tried.err));
            vec!["--source tracefs"]
        }
    }
}

/// Compiles a program; skips the test and returns `None` where that fails.
fn compiled(run: &Run, name: &str, source: &str) -> Option<PathBuf> {
    let (file, program) = (run.path(format!("{name}.c")), run.path(name));
    fs::write(&file, source).unwrap();
    let built = Command::new("cc")
        .arg("-O1")
        .arg("-o")
        .args([&program, &file])
        .output();
    let why = match built {
        Ok(output) if output.status.success() => return Some(program),
        Ok(output) => text(&output.stderr),
        Err(error) => error.to_string(),
    };
    skip(&Skip::program(format!("cc: {why}")));
    None
}

/// A folder on a disk, for what has to reach one.
fn on_disk() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn events(file: &Path) -> Vec<Event> {
    let input = Input::new(File::open(file).unwrap()).unwrap().as_recorded();
    input.map(Result::unwrap).collect()
}

/// Waits in the calls of files: for a lock of either kind, for the other end of a FIFO, for a disk, for a socket's last bytes. Prints the
/// process and the descriptors.
const CALLS: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
static void nap(void) { usleep(30000); }
/* Naps when the parent sleeps: where it has no CPU it is late for what it is to wait for. */
static void nap_beside_parent(void)
{
	char name[32], state = 0;
	snprintf(name, sizeof name, "/proc/%d/stat", getppid());
	for (; state != 'S'; usleep(1000)) {
		FILE *stat = fopen(name, "r");
		if (!stat || fscanf(stat, "%*d (%*[^)]) %c", &state) != 1)
			_exit(5);
		fclose(stat);
	}
	nap();
}
/* Another process takes the lock, says so, and lets it go after a while. */
static void held(int of_fcntl)
{
	int told[2];
	char c;
	if (pipe(told))
		exit(3);
	if (!fork()) {
		struct flock all = { .l_type = F_WRLCK };
		int file = open("lock", O_RDWR);
		if (of_fcntl ? fcntl(file, F_SETLKW, &all) : flock(file, LOCK_EX))
			_exit(1);
		if (write(told[1], "x", 1) != 1)
			_exit(2);
		nap_beside_parent();
		_exit(0);
	}
	if (read(told[0], &c, 1) != 1)
		exit(4);
	close(told[0]);
	close(told[1]);
}
int main(int count, char **words)
{
	if (count < 2 || chdir(words[1]))
		return 1;
	int lock = open("lock", O_RDWR | O_CREAT, 0600);
	held(0);
	if (flock(lock, LOCK_EX) || flock(lock, LOCK_UN))
		return 5;
	held(1);
	struct flock all = { .l_type = F_WRLCK };
	if (fcntl(lock, F_SETLKW, &all))
		return 6;
	if (mkfifo("fifo", 0600))
		return 7;
	if (!fork()) {
		nap_beside_parent();
		_exit(open("fifo", O_WRONLY) < 0);
	}
	if (open("fifo", O_RDONLY) < 0)
		return 8;
	int semaphore = semget(IPC_PRIVATE, 1, 0600);
	struct sembuf down = { 0, -1, 0 };
	struct timespec soon = { 0, 30000000 };
	if (semtimedop(semaphore, &down, 1, &soon) != -1 || semctl(semaphore, 0, IPC_RMID))
		return 13;
	void *page;
	if (posix_memalign(&page, 4096, 4096))
		return 9;
	memset(page, 1, 4096);
	int direct = open("direct", O_RDWR | O_CREAT | O_DIRECT, 0600);
	for (int i = 0; direct >= 0 && i < 16; i++)
		if (pwrite(direct, page, 4096, i * 4096) != 4096 || pread(direct, page, 4096, i * 4096) != 4096)
			return 10;
	int plain = open("plain", O_RDWR | O_CREAT, 0600);
	for (int i = 0; i < 16; i++)
		if (pwrite(plain, page, 4096, i * 8192) != 4096 || fsync(plain))
			return 11;
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof at;
	int few = 4096, server = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(server, SOL_SOCKET, SO_RCVBUF, &few, sizeof few);
	if (bind(server, (void *)&at, length) || listen(server, 1) || getsockname(server, (void *)&at, &length)
	    || connect(client, (void *)&at, length))
		return 12;
	/* Nobody reads what is written: close waits for its whole second. */
	struct linger linger = { 1, 1 };
	setsockopt(client, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
	fcntl(client, F_SETFL, O_NONBLOCK);
	static char much[1 << 16];
	while (write(client, much, sizeof much) > 0)
		;
	fcntl(client, F_SETFL, 0);
	printf("%d %d %d %d %d %d\n", getpid(), lock, semaphore, direct, plain, client);
	fflush(stdout);
	close(client);
	while (wait(0) > 0)
		;
	return 0;
}
"#;

/// The sleeps of `pid` in a call of this name.
fn sleeps<'e>(events: &'e [Event], pid: u32, call: &str) -> Vec<&'e Wait> {
    let of = |event: &'e Event| match &event.kind {
        Kind::Wait(wait) if event.tid == Some(pid) && wait.state != Some(State::Runnable) => {
            let name = wait.call.as_ref()?.name.as_deref();
            (name == Some(call)).then_some(&**wait)
        }
        _ => None,
    };
    events.iter().filter_map(of).collect()
}

/// Returns the first argument of the call that a thread sleeps in, a descriptor.
fn descriptor(wait: &Wait) -> Option<i64> {
    let first = wait.call.as_ref()?.arguments[0]?;
    // A C program hands over 32 bits.
    Some(i64::from((first & 0xffff_ffff) as u32 as i32))
}

#[test]
fn each_sleep_has_its_call_and_each_request_its_thread() {
    let run = Run::new();
    let Some(program) = compiled(&run, "calls", CALLS) else {
        return;
    };
    for source in sources(&run) {
        let folder = on_disk();
        let line = format!(
            "record {source} -o t.parquet -- {} {}",
            program.display(),
            folder.path().display()
        );
        let done = run.stopgap(line).ok();
        let first = done.out.lines().next().unwrap_or_default();
        let told: Vec<i64> = first.split(' ').map(|word| word.parse().unwrap()).collect();
        let [pid, lock, semaphore, direct, plain, client] = told[..] else {
            panic!("{first}")
        };
        let pid = u32::try_from(pid).unwrap();
        let events = events(&run.path("t.parquet"));
        for (call, file) in [
            ("flock", lock),
            ("fcntl", lock),
            ("openat", -100),
            ("semtimedop", semaphore),
            ("close", client),
        ] {
            let waits = sleeps(&events, pid, call);
            let known = waits.iter().any(|wait| descriptor(wait) == Some(file));
            assert!(known, "{source} {call}: {waits:?}");
        }
        if direct < 0 {
            skip(&Skip::machine(
                "O_DIRECT on the file system of the target folder",
            ));
            continue;
        }
        for (call, file) in [("pread64", direct), ("pwrite64", direct), ("fsync", plain)] {
            let waits = sleeps(&events, pid, call);
            let named = |wait: &&Wait| descriptor(wait) == Some(file);
            assert!(
                !waits.is_empty() && waits.iter().all(named),
                "{source} {call}: {waits:?}"
            );
        }
        requests_are_whole(source, &events, pid);
    }
}

/// The requests to disks of a thread, or of all.
fn requests(events: &[Event], tid: Option<u32>) -> Vec<&Span> {
    let of = |event: &&Event| tid.is_none() || event.tid == tid;
    let mut requests = Vec::new();
    for event in events.iter().filter(of) {
        if let Kind::Span(span) = &event.kind
            && span.what == Activity::Block
        {
            requests.push(&**span);
        }
    }
    requests
}

/// The requests of `pid`: 16 reads and 16 writes of a page, and what fsync writes; each done, none twice.
fn requests_are_whole(source: &str, events: &[Event], pid: u32) {
    let own = requests(events, Some(pid));
    let of_letter = |letter: &str| {
        let is = |span: &&&Span| {
            span.operation
                .as_deref()
                .is_some_and(|all| all.starts_with(letter))
        };
        own.iter().filter(is).count()
    };
    assert!(
        of_letter("R") >= 16 && of_letter("W") >= 32,
        "{source}: {own:#?}"
    );
    for span in &own {
        assert!(!span.open && span.result == Some(0), "{source}: {span:?}");
        let issued = span.issued.expect("each goes to the disk");
        assert!(span.begin <= issued, "{source}: {span:?}");
        assert!(
            span.device.is_some() && span.length.is_some(),
            "{source}: {span:?}"
        );
    }
    let all = requests(events, None);
    let open = all.iter().filter(|span| span.open).count();
    assert!(
        open * 10 <= all.len(),
        "{source}: {open} of {} have no end",
        all.len()
    );
}

/// Ends a process with its test.
struct Program(Child);

impl Program {
    fn start(words: &[&str]) -> Program {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).stdin(Stdio::null());
        Program(command.spawn().unwrap())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Numbers of SIGSTOP, SIGCONT and SIGTSTP.
const SENT: [(&str, u32); 3] = [("STOP", 19), ("CONT", 18), ("TSTP", 20)];

/// `kill` is not recorded: its number, its name and its target are in the trace all the same.
#[test]
fn a_signal_has_its_sender_whoever_that_is() {
    let run = Run::new();
    for source in sources(&run) {
        let target = Program::start(&["sleep", "60"]);
        let other = Program::start(&["sleep", "60"]);
        let line = format!("record {source} -p {} -o t.parquet", target.0.id());
        let mut recorder = run.start(&line);
        recorder.child = begun(&run, recorder.child);
        let mut senders = Vec::new();
        for (name, _) in SENT {
            for target in [&other, &target] {
                let mut kill = Command::new("kill");
                kill.args(["-s", name, &target.0.id().to_string()]);
                let mut kill = kill.spawn().unwrap();
                senders.push((kill.id(), name, target.0.id()));
                assert!(kill.wait().unwrap().success());
            }
        }
        recorder.interrupt().ok();
        let events = events(&run.path("t.parquet"));
        for (name, number) in SENT {
            let sender = senders
                .iter()
                .find(|(_, of, to)| *of == name && *to == target.0.id());
            let (sender, ..) = *sender.unwrap();
            let sent = events.iter().find(|event| {
                matches!(&event.kind, Kind::Signal { signal, target_pid, .. }
                    if *signal == number && *target_pid == Some(target.0.id()))
            });
            let sent = sent.unwrap_or_else(|| panic!("{source}: no SIG{name}"));
            assert_eq!(
                (sent.tid, sent.pid),
                (Some(sender), Some(sender)),
                "{source}: {sent:?}"
            );
            assert_eq!(sent.comm.as_deref(), Some("kill"), "{source}: {sent:?}");
        }
    }
}

/// A process, its child and its grandchild, each with two threads more. Each of the nine threads prints its number, and sleeps again and
/// again.
const FAMILY: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
static void *sleeps(void *none)
{
	char text[16];
	int length = snprintf(text, sizeof text, "%ld\n", syscall(SYS_gettid));
	if (write(1, text, length) != length)
		return none;
	for (;;)
		usleep(10000);
}
int main(void)
{
	for (int below = 0; below < 2 && !fork(); below++)
		prctl(PR_SET_PDEATHSIG, 9);
	pthread_t thread;
	for (int i = 0; i < 2; i++)
		pthread_create(&thread, 0, sleeps, 0);
	sleeps(0);
}
"#;

#[test]
fn threads_of_a_process_and_of_all_below_it_are_recorded() {
    let run = Run::new();
    let mut sources = sources(&run);
    if sources.is_empty() {
        return;
    }
    sources.push("--source perf");
    let Some(program) = compiled(&run, "family", FAMILY) else {
        return;
    };
    let mut command = Command::new(program);
    command.stdin(Stdio::null());
    command.stdout(File::create(run.path("tids")).unwrap());
    let family = Program(command.spawn().unwrap());
    let tids: Vec<u32> = wait_for("nine threads", || {
        let tids = run.read("tids");
        let tids: Vec<u32> = tids.lines().filter_map(|tid| tid.parse().ok()).collect();
        (tids.len() == 9).then_some(tids)
    });
    for source in sources {
        let line = format!("record {source} -p {} -d 500ms -o t.parquet", family.0.id());
        run.stopgap(line).ok();
        let events = events(&run.path("t.parquet"));
        let slept: Vec<Option<u32>> = events
            .iter()
            .filter(|event| matches!(event.kind, Kind::Wait(_)))
            .map(|event| event.tid)
            .collect();
        for &tid in &tids {
            let seen = slept.contains(&Some(tid));
            assert!(seen, "{source}: {tid} of {tids:?} is not recorded");
        }
    }
}

/// Sleeps, so that its mappings are read, then loads a library, as desktops load drivers for a GPU, and waits in a function of it that is
/// called again and again at the same depth.
const LOADS: &str = r#"
#include <dlfcn.h>
#include <unistd.h>
int main(void)
{
	void (*waits)(int);
	usleep(200000);
	void *library = dlopen("./plugin.so", RTLD_NOW);
	if (!library || !(waits = (void (*)(int))dlsym(library, "waits_in_plugin")))
		return 1;
	for (int i = 0; i < 3; i++)
		waits(100000);
	return 0;
}
"#;

#[test]
fn a_library_that_is_loaded_later_has_its_functions_in_stacks() {
    let run = Run::new();
    if !sources(&run).contains(&"--source bpf --only") {
        return;
    }
    let plugin =
        "#include <unistd.h>\nvoid waits_in_plugin(int us) { usleep(us); __asm__(\"\"); }\n";
    run.write("plugin.c", plugin);
    let built = Command::new("cc")
        .args(["-O1", "-shared", "-fPIC", "-o", "plugin.so", "plugin.c"])
        .current_dir(run.directory.path())
        .status();
    if !built.is_ok_and(|status| status.success()) {
        return skip(&Skip::program("cc -shared"));
    }
    if compiled(&run, "loads", LOADS).is_none() {
        return;
    }
    let done = run.stopgap("record --source bpf --only -o t.parquet -- ./loads");
    assert_eq!(done.status, Some(0), "{done:#?}");
    let stacks: Vec<String> = events(&run.path("t.parquet"))
        .into_iter()
        .filter_map(|event| match event.kind {
            Kind::Wait(wait) => Some(wait.user_stack?.frames.to_string()),
            _ => None,
        })
        .collect();
    let within = |stack: &&String| stack.contains("waits_in_plugin");
    assert!(stacks.iter().filter(within).count() >= 3, "{stacks:#?}");
}

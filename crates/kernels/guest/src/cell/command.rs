//! A program of the initramfs: what it writes, how it ends, the files it leaves.

use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::protocol::{Line, Ran};
use rustix::process::{Pid, Signal, kill_process_group};
use stopgap_events::machine::Missing;
use stopgap_events::units::Nanos;

/// How often its end is looked for.
const PAUSE: Duration = Duration::from_millis(10);

/// Runs `argv` for `limit` at most and gives its standard output, standard error, status and `files`. Its variables are a
/// `PATH` and a home; its standard input is empty.
///
/// # Errors
/// Where it cannot be started.
pub(super) fn run(
    name: &str,
    argv: &[String],
    files: &[String],
    limit: Nanos,
) -> Result<Vec<Line>, String> {
    let (program, arguments) = argv.split_first().ok_or("no program")?;
    let scratch = |what: &str| {
        let file = rustix::fs::memfd_create(what, rustix::fs::MemfdFlags::CLOEXEC);
        file.map(File::from)
            .map_err(|error| format!("a file for its {what}: {error}"))
    };
    let mut output = scratch("standard output")?;
    let mut errors = scratch("standard error")?;
    let copy = |file: &File| file.try_clone().map_err(|error| error.to_string());
    let mut child = Command::new(program)
        .args(arguments)
        .env_clear()
        .env("PATH", "/bin:/sbin:/usr/bin:/usr/sbin")
        .env("HOME", "/tmp")
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(copy(&output)?)
        .stderr(copy(&errors)?)
        .spawn()
        .map_err(|error| format!("{program}: {error}"))?;
    let start = Instant::now();
    let ended = loop {
        match child
            .try_wait()
            .map_err(|error| format!("{program}: {error}"))?
        {
            Some(ended) => break ended,
            None if start.elapsed() >= Duration::from_nanos(limit.0) => {
                end_group(&child);
                break child
                    .wait()
                    .map_err(|error| format!("{program}: {error}"))?;
            }
            None => std::thread::sleep(PAUSE),
        }
    };
    end_group(&child); // what it left behind
    let mut lines = vec![Line::Ran(Ran {
        name: name.to_owned(),
        status: ended.code(),
        signal: ended.signal(),
    })];
    for (word, file) in [("stdout", &mut output), ("stderr", &mut errors)] {
        lines.extend(Line::file(Some(name), word, &whole(file)?));
    }
    for path in files {
        match std::fs::read(path) {
            Ok(bytes) => lines.extend(Line::file(Some(name), path, &bytes)),
            Err(error) => lines.push(Line::Missing(Missing::new(path, error.to_string()))),
        }
    }
    Ok(lines)
}

/// Kills the child and what it started, as far as that is still in its process group.
fn end_group(child: &Child) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some(group) = pid {
        let _ = kill_process_group(group, Signal::KILL); // nobody is left in it
    }
}

/// Reads a file from its beginning.
fn whole(file: &mut File) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    file.rewind()
        .and_then(|()| file.read_to_end(&mut bytes))
        .map_err(|error| format!("what it wrote: {error}"))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Hello, Transcript};

    fn shell(script: &str, files: &[&str], limit: Nanos) -> Transcript {
        let argv = ["/bin/sh", "-c", script].map(str::to_owned);
        let files: Vec<String> = files.iter().map(|&file| file.to_owned()).collect();
        let mut lines = vec![Line::Hello(Hello {
            version: crate::protocol::VERSION,
            ..Hello::default()
        })];
        lines.extend(run("a", &argv, &files, limit).unwrap());
        lines.push(Line::Done {
            lines: lines.len() as u64,
        });
        Transcript::read(lines.iter().map(Line::to_string)).unwrap()
    }

    fn file<'t>(transcript: &'t Transcript, name: &str) -> &'t [u8] {
        &transcript.files[&(Some("a".to_owned()), name.to_owned())]
    }

    #[test]
    fn what_it_writes_and_leaves_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let left = folder.path().join("left").display().to_string();
        let gone = folder.path().join("gone").display().to_string();
        let script = format!("echo out; echo err >&2; seq 10000 > {left}; exit 7");
        let transcript = shell(&script, &[&left, &gone], Nanos::secs(60));
        assert_eq!(transcript.ran[0].status, Some(7));
        assert_eq!(file(&transcript, "stdout"), b"out\n");
        assert_eq!(file(&transcript, "stderr"), b"err\n");
        assert!(file(&transcript, &left).ends_with(b"\n9999\n10000\n"));
        assert_eq!(transcript.missing[0].what, gone);
    }

    #[test]
    fn what_takes_too_long_is_ended_with_its_children_and_what_it_wrote_is_kept() {
        let script = "echo begun; sleep 1000 & sleep 1000";
        let start = Instant::now();
        let transcript = shell(script, &[], Nanos::millis(300));
        assert!(start.elapsed() < Duration::from_secs(30));
        assert_eq!(transcript.ran[0].signal, Some(9));
        assert_eq!(file(&transcript, "stdout"), b"begun\n");
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let argv = ["/no/such/program".to_owned()];
        let error = run("a", &argv, &[], Nanos::secs(1)).unwrap_err();
        assert!(error.contains("/no/such/program"), "{error}");
    }
}

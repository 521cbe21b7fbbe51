//! Redis, saving by fork while it is written to. Debian's is linked with jemalloc, which takes its memory by mmap.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::preload_soak::place::{Place, Server, ask, ended_well};
use crate::preload_soak::programs::Program;

pub(super) struct Redis;

/// Saves of a run, while clients write.
const SAVES: u32 = 2;

impl Program for Redis {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn packages(&self) -> &'static str {
        "redis-server redis-tools"
    }

    fn needs(&self) -> &'static [&'static str] {
        &["redis-server", "redis-benchmark"]
    }

    fn run(&self, place: &Place) -> Result<(), String> {
        let socket = place.run().join("s");
        let mut server = start(place, &socket)?;
        ask(&socket, "DEBUG POPULATE 200000 key 100")?;
        let mut load = place.command("redis-benchmark");
        load.args(["-s".as_ref(), socket.as_os_str()]);
        load.args([
            "-t",
            "set,get,lpush",
            "-n",
            "200000",
            "-r",
            "200000",
            "-d",
            "200",
            "-P",
            "16",
            "-q",
        ]);
        let mut load = Server::start(load, &place.run())?;
        for _ in 0..SAVES {
            save(&socket)?;
        }
        let status = load.ended()?;
        ended_well("redis-benchmark", status, "")?;
        save(&socket)?; // nobody writes now: the file must hold all there is
        let digest = ask(&socket, "DEBUG DIGEST")?;
        end(&socket, &mut server)?;
        let mut server = start(place, &socket)?;
        let read = ask(&socket, "DEBUG DIGEST")?;
        let keys = ask(&socket, "DBSIZE")?;
        end(&socket, &mut server)?;
        if read != digest || digest.chars().all(|c| c == '0') {
            return Err(format!(
                "what was saved, {read}, is not what there was, {digest}"
            ));
        }
        match keys.parse::<u64>() {
            Ok(keys) if keys > 200_000 => Ok(()),
            _ => Err(format!("{keys} keys")),
        }
    }
}

fn start(place: &Place, socket: &Path) -> Result<Server, String> {
    let mut command = place.command("redis-server");
    command.args(["--port", "0", "--save", "", "--enable-debug-command", "yes"]);
    command.args(["--unixsocket".as_ref(), socket.as_os_str()]);
    command.args(["--dir".as_ref(), place.run().as_os_str()]);
    let mut server = Server::start(command, &place.run())?;
    // It answers LOADING with an error until the file is read.
    server.wait_for(|| ask(socket, "PING").is_ok_and(|answer| answer == "PONG"))?;
    Ok(server)
}

/// Saves by fork, and waits until that is done.
fn save(socket: &Path) -> Result<(), String> {
    let begin = Instant::now();
    ask(socket, "BGSAVE")?;
    loop {
        let info = ask(socket, "INFO persistence")?;
        if info.contains("rdb_bgsave_in_progress:0") {
            return match info.contains("rdb_last_bgsave_status:ok") {
                true => Ok(()),
                false => Err(format!("the save failed: {info}")),
            };
        }
        if begin.elapsed() > Duration::from_secs(60) {
            return Err("the save takes more than a minute".to_owned());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn end(socket: &Path, server: &mut Server) -> Result<(), String> {
    // It answers by closing.
    let _ = ask(socket, "SHUTDOWN NOSAVE");
    let status = server.ended()?;
    ended_well("redis-server", status, "")
}

//! Servers: Redis, saving by fork while it is written to, and PostgreSQL, on Unix sockets in the folder of their run.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::super::place::{PATIENCE, Place, Server, ended_well, failed, finish};

/// Saves of a run, while clients write.
const SAVES: u32 = 2;
/// Clients of pgbench, and transactions of each.
const CLIENTS: u64 = 4;
const TRANSACTIONS: u64 = 500;

/// Runs Redis. Debian's is linked with jemalloc, which takes its memory by mmap.
pub(super) fn redis(place: &Place) -> Result<(), String> {
    let socket = place.run().join("s");
    let mut server = start_redis(place, &socket)?;
    ask(&socket, "DEBUG POPULATE 200000 key 100")?;
    let mut load = place.command("redis-benchmark");
    load.arg("-s").arg(&socket);
    load.args("-t set,get,lpush -n 200000 -r 200000 -d 200 -P 16 -q".split(' '));
    let mut load = Server::start(load, &place.run())?;
    for _ in 0..SAVES {
        save(&socket)?;
    }
    ended_well("redis-benchmark", load.ended()?, "")?;
    save(&socket)?; // nobody writes now: the file must hold all there is
    let digest = ask(&socket, "DEBUG DIGEST")?;
    end_redis(&socket, &mut server)?;
    let mut server = start_redis(place, &socket)?;
    let read = ask(&socket, "DEBUG DIGEST")?;
    let keys = ask(&socket, "DBSIZE")?;
    end_redis(&socket, &mut server)?;
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

fn start_redis(place: &Place, socket: &Path) -> Result<Server, String> {
    let mut command = place.command("redis-server");
    command.args(["--port", "0", "--save", "", "--enable-debug-command", "yes"]);
    command
        .arg("--unixsocket")
        .arg(socket)
        .arg("--dir")
        .arg(place.run());
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
        if begin.elapsed() > PATIENCE {
            return Err("the save takes more than a minute".to_owned());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn end_redis(socket: &Path, server: &mut Server) -> Result<(), String> {
    // It answers by closing.
    let _ = ask(socket, "SHUTDOWN NOSAVE");
    ended_well("redis-server", server.ended()?, "")
}

/// Asks a Redis server one question. Returns what follows the mark of a line, or the bytes of a string.
fn ask(socket: &Path, question: &str) -> Result<String, String> {
    let what = format!("redis, asked for {question}");
    let mut stream = UnixStream::connect(socket).map_err(failed(&what))?;
    stream
        .set_read_timeout(Some(PATIENCE))
        .map_err(failed(&what))?;
    stream
        .write_all(format!("{question}\r\n").as_bytes())
        .map_err(failed(&what))?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).map_err(failed(&what))?;
    let (mark, rest) = line.trim_end().split_at_checked(1).unwrap_or(("", ""));
    match mark {
        "$" => {
            let length: u64 = rest.parse().map_err(failed("redis"))?;
            let mut text = String::new();
            reader
                .take(length)
                .read_to_string(&mut text)
                .map_err(failed(&what))?;
            Ok(text)
        }
        "+" | ":" => Ok(rest.to_owned()),
        _ => Err(format!("{what}: '{}'", line.trim_end())),
    }
}

/// Does what PostgreSQL's regression tests start with: a cluster of its own, made, started, asked and ended.
pub(super) fn postgresql_start(place: &Place) -> Result<(), String> {
    let mut cluster = Cluster::make(place)?;
    let answer = cluster.sql(
        "create table t as select i, repeat(md5(i::text), 20) as text from generate_series(1, 50000) i; \
         create index on t (text); analyze t; \
         select count(*), sum(i), (select count(*) from t a join t b using (text)) from t",
    )?;
    cluster.end()?;
    match answer.lines().last() {
        Some("50000|1250025000|50000") => Ok(()),
        other => Err(format!("psql: {other:?}")),
    }
}

/// The same, with pgbench in between.
pub(super) fn pgbench(place: &Place) -> Result<(), String> {
    let mut cluster = Cluster::make(place)?;
    cluster.tool("pgbench", "-i -q -s 2 postgres", None)?;
    let words = format!("-n -c {CLIENTS} -j 1 -t {TRANSACTIONS} postgres");
    let said = cluster.tool("pgbench", &words, None)?;
    let all = CLIENTS * TRANSACTIONS;
    let done = format!("actually processed: {all}/{all}");
    if !said.contains(&done) || !said.contains("failed transactions: 0 ") {
        return Err(format!("pgbench: no '{done}' in '{said}'"));
    }
    // Every transaction adds the same to an account, a teller, a branch and the history.
    let sums = cluster.sql(
        "select (select sum(abalance) from pgbench_accounts) = all (array[ \
           (select sum(tbalance) from pgbench_tellers), (select sum(bbalance) from pgbench_branches), \
           (select sum(delta) from pgbench_history)]), (select count(*) from pgbench_history)",
    )?;
    let (sums, wanted) = (sums.trim(), format!("t|{all}"));
    if sums != wanted {
        return Err(format!("the balances differ: '{sums}', not '{wanted}'"));
    }
    cluster.tool(
        "pg_amcheck",
        "--install-missing --heapallindexed postgres",
        None,
    )?;
    cluster.end()
}

/// A cluster that runs. PostgreSQL refuses to run as root: the user nobody has its folder then. It listens on a Unix socket in that
/// folder alone.
struct Cluster<'p> {
    place: &'p Place,
    server: Server,
}

impl<'p> Cluster<'p> {
    fn make(place: &'p Place) -> Result<Cluster<'p>, String> {
        place.give_to_nobody()?;
        let data = place.run().join("data");
        let mut initdb = command(place, "initdb");
        initdb
            .args("--no-sync -A trust -U postgres -E UTF8 --no-locale -D".split(' '))
            .arg(&data);
        finish(initdb, &place.run())?;
        let mut postgres = command(place, "postgres");
        postgres.args("-c listen_addresses= -c fsync=off -c autovacuum=off -k".split(' '));
        postgres.arg(place.run()).arg("-D").arg(&data);
        let mut server = Server::start(postgres, &place.run())?;
        // "The database system is ready" is the eighth line of this file.
        server.wait_for(|| {
            let status = std::fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
            status
                .lines()
                .nth(7)
                .is_some_and(|line| line.trim() == "ready")
        })?;
        Ok(Cluster { place, server })
    }

    /// Runs one of PostgreSQL's programs on it, `sql` as its last word; returns what it wrote.
    fn tool(&self, name: &str, words: &str, sql: Option<&str>) -> Result<String, String> {
        let mut command = command(self.place, name);
        command
            .arg("-h")
            .arg(self.place.run())
            .args(["-U", "postgres"]);
        command.args(words.split(' ')).args(sql);
        Ok(finish(command, &self.place.run())?.out)
    }

    fn sql(&self, text: &str) -> Result<String, String> {
        self.tool(
            "psql",
            "-d postgres -X -q -A -t -v ON_ERROR_STOP=1 -c",
            Some(text),
        )
    }

    /// Ends it as `pg_ctl stop -m fast` does.
    fn end(&mut self) -> Result<(), String> {
        let data = self.place.run().join("data");
        let mut stop = command(self.place, "pg_ctl");
        stop.args(["stop", "-m", "fast", "-D"]).arg(&data);
        finish(stop, &self.place.run())?;
        let status = self.server.ended()?;
        let pid = data.join("postmaster.pid");
        if pid.exists() {
            return Err(format!("{}: it is still there", pid.display()));
        }
        ended_well("postgres", status, "")
    }
}

fn command(place: &Place, name: &str) -> Command {
    place.command_as_nobody(&format!("/usr/lib/postgresql/15/bin/{name}"))
}

//! PostgreSQL: what its regression tests start with (a cluster of its own, made, started, asked and ended), and pgbench.
//!
//! It refuses to run as root: the user nobody has its folder then. It listens on a Unix socket in that folder alone.

use std::path::PathBuf;
use std::process::Command;

use crate::preload_soak::place::{Place, Server, ended_well, failed, finish};
use crate::preload_soak::programs::Program;

/// `initdb`, start, the catalogue asked, ended.
pub(super) struct Start;

/// As [`Start`], and pgbench in between.
pub(super) struct Pgbench;

const BIN: &str = "/usr/lib/postgresql/15/bin";
const NEEDS: &[&str] = &[
    "/usr/lib/postgresql/15/bin/initdb",
    "/usr/lib/postgresql/15/bin/postgres",
    "/usr/lib/postgresql/15/bin/psql",
    "/usr/lib/postgresql/15/bin/pgbench",
    "/usr/lib/postgresql/15/bin/pg_amcheck",
    "setpriv",
];
const PACKAGES: &str = "postgresql-15 postgresql-client-15 util-linux";

/// Clients of pgbench, and transactions of each.
const CLIENTS: u64 = 4;
const TRANSACTIONS: u64 = 500;

impl Program for Start {
    fn name(&self) -> &'static str {
        "postgresql-start"
    }

    fn packages(&self) -> &'static str {
        PACKAGES
    }

    fn needs(&self) -> &'static [&'static str] {
        NEEDS
    }

    fn run(&self, place: &Place) -> Result<(), String> {
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
}

impl Program for Pgbench {
    fn name(&self) -> &'static str {
        "pgbench"
    }

    fn packages(&self) -> &'static str {
        PACKAGES
    }

    fn needs(&self) -> &'static [&'static str] {
        NEEDS
    }

    fn run(&self, place: &Place) -> Result<(), String> {
        let mut cluster = Cluster::make(place)?;
        cluster.tool("pgbench", &["-i", "-q", "-s", "2", "postgres"])?;
        let (clients, transactions) = (CLIENTS.to_string(), TRANSACTIONS.to_string());
        let words = [
            "-n",
            "-c",
            &clients,
            "-j",
            "1",
            "-t",
            &transactions,
            "postgres",
        ];
        let said = cluster.tool("pgbench", &words)?;
        let done = format!("actually processed: {0}/{0}", CLIENTS * TRANSACTIONS);
        if !said.contains(&done) || !said.contains("failed transactions: 0 ") {
            return Err(format!("pgbench: no '{done}' in '{said}'"));
        }
        // Every transaction adds the same to an account, a teller, a branch and the history.
        let sums = cluster.sql(
            "select (select sum(abalance) from pgbench_accounts) = all (array[ \
               (select sum(tbalance) from pgbench_tellers), (select sum(bbalance) from pgbench_branches), \
               (select sum(delta) from pgbench_history)]), (select count(*) from pgbench_history)",
        )?;
        let wanted = format!("t|{}", CLIENTS * TRANSACTIONS);
        if sums.trim() != wanted {
            return Err(format!(
                "the balances differ: '{}', not '{wanted}'",
                sums.trim()
            ));
        }
        cluster.tool(
            "pg_amcheck",
            &["--install-missing", "--heapallindexed", "postgres"],
        )?;
        cluster.end()
    }
}

/// A cluster that runs.
struct Cluster<'p> {
    place: &'p Place,
    server: Server,
}

impl<'p> Cluster<'p> {
    fn make(place: &'p Place) -> Result<Cluster<'p>, String> {
        place.give_to_nobody()?;
        let data = place.run().join("data");
        let mut initdb = tool(place, "initdb");
        initdb.args([
            "--no-sync",
            "-A",
            "trust",
            "-U",
            "postgres",
            "-E",
            "UTF8",
            "--no-locale",
            "-D",
        ]);
        finish(with(initdb, &data), &place.run())?;
        let mut postgres = tool(place, "postgres");
        postgres.args([
            "-c",
            "listen_addresses=",
            "-c",
            "fsync=off",
            "-c",
            "autovacuum=off",
            "-k",
        ]);
        postgres.arg(place.run()).arg("-D");
        let mut server = Server::start(with(postgres, &data), &place.run())?;
        // "The database system is ready" is the eighth line of this file.
        let ready = || {
            let status = std::fs::read_to_string(data.join("postmaster.pid"));
            status.is_ok_and(|text| {
                text.lines()
                    .nth(7)
                    .is_some_and(|line| line.trim() == "ready")
            })
        };
        server.wait_for(ready)?;
        Ok(Cluster { place, server })
    }

    /// Runs one of PostgreSQL's programs on it; what it wrote.
    fn tool(&self, name: &str, words: &[&str]) -> Result<String, String> {
        let mut command = tool(self.place, name);
        command.args(["-h".as_ref(), self.place.run().as_os_str()]);
        command.args(["-U", "postgres"]).args(words);
        Ok(finish(command, &self.place.run())?.out)
    }

    fn sql(&self, text: &str) -> Result<String, String> {
        self.tool(
            "psql",
            &[
                "-X",
                "-q",
                "-A",
                "-t",
                "-v",
                "ON_ERROR_STOP=1",
                "-c",
                text,
                "postgres",
            ],
        )
    }

    /// Ends it as `pg_ctl stop -m fast` does.
    fn end(&mut self) -> Result<(), String> {
        let mut stop = tool(self.place, "pg_ctl");
        stop.args(["stop", "-m", "fast", "-D"]);
        finish(
            with(stop, &self.place.run().join("data")),
            &self.place.run(),
        )?;
        let status = self.server.ended()?;
        let log = self.place.run().join("data/postmaster.pid");
        if log.exists() {
            return Err(failed(&log, &std::io::Error::other("it is still there")));
        }
        ended_well("postgres", status, "")
    }
}

fn tool(place: &Place, name: &str) -> Command {
    place.command_as_nobody(&format!("{BIN}/{name}"))
}

fn with(mut command: Command, path: &PathBuf) -> Command {
    command.arg(path);
    command
}

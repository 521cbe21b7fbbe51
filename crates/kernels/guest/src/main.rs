//! The guest's first process. As an ordinary program, for checking, it carries a plan out here:
//!
//! ```text
//! stopgap-guest PLAN.json [SEED]
//! ```

use std::path::Path;
use std::process::ExitCode;

use stopgap_guest::run::{CELL, Order};
use stopgap_guest::{NOTHING, init, ordinary};

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    if std::process::id() == 1 {
        // The first process must not end: the kernel would panic, and its last lines help to debug the guest.
        return done(init::run().map_err(|error| format!("stopgap-guest: {error}")));
    }
    match words.next().as_deref() {
        Some(NOTHING) => ExitCode::SUCCESS,
        Some(CELL) => done(
            match words
                .next()
                .map(|order| serde_json::from_str::<Order>(&order))
            {
                Some(Ok(order)) => order.carry_out(),
                _ => Err("no order".to_owned()),
            },
        ),
        Some(plan) if !plan.starts_with('-') => {
            done(ordinary(Path::new(plan), words.next().as_deref()))
        }
        _ => done(Err("usage: stopgap-guest PLAN.json [SEED]".to_owned())),
    }
}

fn done(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

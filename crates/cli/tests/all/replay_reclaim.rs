//! `stopgap replay reclaim` beside mail 004, whose order of stock and second pass the model does not have: the command says so.

use crate::common::{Run, has};

/// The mail's four ways, as the command prints them for `seed` and `time`: the model has stock worse than the second pass.
fn check_mail(seed: u32, time: &str) {
    let line = "replay reclaim --load gem-syslatency --policy none,mlock,held,mapping --release second-pass --json";
    let done = Run::new().stopgap(format!("{line} --seed {seed} {time}"));
    let document = done.document("stopgap.replay-1.json");
    let rows = document["rows"].as_array().unwrap().iter();
    let means: Vec<f64> = rows
        .map(|row| row["allocation"]["mean_us"].as_f64().unwrap())
        .collect();
    let mail = document["reclaim"]["mail"].as_str().unwrap();
    println!("seed {seed} {time}: {means:?}: {mail}");
    let [none, held, mlock, second] = means[..] else {
        panic!("{means:?}")
    };
    assert!(none < mlock && mlock < held && second < held, "{means:?}");
    assert!(mail.starts_with("CONTRADICTS mail 004"), "{mail}");
    let factor = format!("takes {:.2} times", second / held);
    has(mail, &[&factor, "in the mail 1.53 times"]);
}

#[test]
fn the_mails_order_is_denied_where_the_model_has_another() {
    check_mail(1, "--time 400ms");
}

/// The very command, at its default length and at twice that, three seeds each.
#[test]
#[ignore = "two minutes of CPU: cargo test --release -p stopgap-cli --test all replay_reclaim:: -- --ignored --nocapture"]
fn the_mails_order_at_the_default_length_and_twice_that() {
    for seed in 1..=3 {
        check_mail(seed, "");
        check_mail(seed, "--time 8s");
    }
}

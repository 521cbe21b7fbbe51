use super::*;

#[test]
fn numbers_have_the_mean_and_deviation_that_were_asked() {
    let values: Vec<f64> = numbers(120, 9_579.467_1, 9_552.865)
        .lines()
        .map(|line| line.parse().unwrap())
        .collect();
    let mean = values.iter().sum::<f64>() / 120.0;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    assert_eq!(values.len(), 120);
    assert!((mean - 9_579.467_1).abs() < 1e-6);
    assert!(((squares / 119.0).sqrt() - 9_552.865).abs() < 1e-6);
}

fn claim(because: &'static str, holds: bool) -> &'static Claim {
    static COMMAND: Command = claim::model("replay chunks", "--buffers {}", 50);
    let look = match holds {
        true => |records: &[Record]| record::seen(records[0].f("x")? > 1.0, "x"),
        false => |records: &[Record]| record::seen(records[0].f("x")? > 3.0, "x"),
    };
    static COMMANDS: [&Command; 1] = [&COMMAND];
    let claim = claim::claim("a title", "1", "words");
    let claim = claim.test(&COMMANDS, "x is large", look).because(because);
    Box::leak(Box::new(claim))
}

fn verdict(claim: &'static Claim, at: [f64; 2]) -> Judged {
    let mut at = at.into_iter();
    let mut record = |_: &str, _: &Command| Ok(serde_json::json!({ "x": at.next() }));
    judge(claim, "000.1".to_owned(), &[(1, 1), (1, 2)], &mut record)
}

#[test]
fn a_claim_agrees_where_its_criterion_holds_in_every_trial() {
    let agrees = verdict(claim("", true), [2.0, 2.0]);
    assert_eq!(agrees.verdict, Verdict::Agrees);
    assert!(agrees.fault().is_none());
    assert_eq!(agrees.commands, ["stopgap replay chunks --seed 1"]);
    let once = verdict(claim("a reason", true), [2.0, 0.5]);
    assert_eq!(once.verdict, Verdict::Differs);
    assert!(once.fault().is_none());
}

#[test]
fn a_claim_that_differs_needs_a_reason() {
    let differs = verdict(claim("", false), [2.0, 2.0]);
    assert!(differs.fault().unwrap().contains("because"));
}

#[test]
fn a_record_without_the_figure_is_no_verdict() {
    let mut record = |_: &str, _: &Command| Ok(serde_json::json!({}));
    let judged = judge(claim("", true), "000.1".to_owned(), &[(1, 1)], &mut record);
    let why = "the record of `stopgap replay chunks --seed 1` has no x";
    assert_eq!(judged.verdict, Verdict::NotJudged(why.to_owned()));
    assert_eq!(judged.fault().as_deref(), Some(why));
}

#[test]
fn a_probe_that_cannot_tell_gives_no_verdict() {
    static COMMANDS: [&Command; 1] = [&COMMAND];
    static COMMAND: Command = claim::command("probe placement", Kind::Live);
    let claim = claim::claim("a title", "1", "words");
    let look = |_: &[Record]| Err("inconclusive: 1 run".to_owned());
    let claim = Box::leak(Box::new(claim.test(&COMMANDS, "it is flat", look)));
    let mut record = |_: &str, _: &Command| Ok(serde_json::json!({}));
    let judged = judge(claim, "000.1".to_owned(), &[(1, 1)], &mut record);
    let why = "a quieter machine: the probe was inconclusive: 1 run";
    assert_eq!(judged.verdict, Verdict::Lacks(why.to_owned()));
}

#[test]
fn a_model_runs_twice_as_long_by_its_own_flag() {
    let model = claim::model("replay reclaim", "--time {}s", 4);
    assert_eq!(words(&model, (3, 1)), "replay reclaim --seed 3");
    assert_eq!(words(&model, (1, 2)), "replay reclaim --seed 1 --time 8s");
}

#[test]
fn the_claims_are_whole() {
    let claims = || MAILS.iter().flat_map(|mail| mail.claims);
    assert!(claims().count() >= 60);
    assert!(claims().filter(|claim| claim.conclusion).count() >= 4);
    for claim in claims() {
        assert!(
            claim.quote.len() > 10 && claim.quote.len() < 400,
            "{}",
            claim.title
        );
        assert!(claim.lines.starts_with(|c: char| c.is_ascii_digit()));
        assert!(!claim.holds_if.is_empty(), "{}", claim.title);
        assert_eq!(claim.commands.is_empty(), claim.look.is_none());
    }
}

use super::*;

/// Counts of the words of comparisons in one world.
#[derive(Debug, Default)]
struct Said {
    different: u32,
    worse: u32,
    better: u32,
    same: u32,
    held: u32,
}

fn say(world: World, change: f64, pairs: usize, simulations: u32, alpha: f64) -> Said {
    let mut said = Said::default();
    for seed in 0..simulations {
        let mut random = Random::new(u64::from(seed));
        let slots = world.slots(2 * pairs, &mut random);
        let coins: Vec<bool> = (0..pairs).map(|_| random.bits() >> 63 == 1).collect();
        let (before, after) = in_pairs(world, &slots, &coins, change.ln_1p());
        let mut sequence = Sequence::new(Options {
            alpha,
            ..Options::default()
        });
        for (a, b) in before.iter().zip(&after) {
            sequence.push(figure(world, &[*a], &[*b])).unwrap();
        }
        let look = sequence.look();
        said.different += u32::from(sequence.is_different());
        said.worse += u32::from(look.word == Word::Worse);
        said.better += u32::from(look.word == Word::Better);
        said.same += u32::from(look.word == Word::Same);
        said.held += u32::from(look.one_shift && look.holds(change.ln_1p()));
    }
    let percent = 100.0 * alpha;
    println!("{world:?}, +{change}, {pairs} pairs, {percent} %, seeds 0..{simulations}: {said:?}");
    said
}

/// Returns the most false alarms of `of` comparisons with a probability of `alpha` each: four standard errors more
/// than expected.
fn most(alpha: f64, of: u32) -> u32 {
    let n = f64::from(of);
    (alpha * n + 4.0 * (alpha * (1.0 - alpha) * n).sqrt()) as u32
}

#[test]
fn equal_sides_are_rarely_called_different_whatever_the_noise() {
    for world in EQUAL {
        let said = say(world, 0.0, 60, 400, 0.05);
        assert!(said.different <= most(0.05, 400), "{world:?}: {said:?}");
        assert!(said.held >= 400 - most(0.05, 400), "{world:?}: {said:?}");
    }
}

#[test]
fn changes_are_found() {
    for (world, change, least) in [
        (World::Normal(0.01), 0.02, 395),
        (World::Normal(0.05), 0.05, 330),
        (World::Modes, 0.05, 390),
        (World::Walk, 0.02, 395),
        (World::Tails, 0.02, 200),
        (World::MoreSlow(0.01), 0.0, 200),
        (World::MoreSlow(0.05), 0.0, 200),
    ] {
        let said = say(world, change, 60, 400, 0.01);
        assert!(
            said.different >= least && said.better <= 4,
            "{world:?}: {said:?}"
        );
    }
}

#[test]
fn equal_sides_are_proven_the_same_and_changed_ones_are_not() {
    for (world, least) in [
        (World::Normal(0.01), 400),
        (World::Walk, 390),
        (World::Tails, 200),
    ] {
        let said = say(world, 0.0, 60, 400, 0.01);
        assert!(said.same + said.different >= least, "{world:?}: {said:?}");
    }
    for (world, change) in [
        (World::Normal(0.01), 0.05),
        (World::Steps, 0.05),
        (World::MoreSlow(0.01), 0.0),
        (World::MoreSlow(0.05), 0.0),
    ] {
        let said = say(world, change, 60, 400, 0.01);
        assert!(said.same <= most(0.01, 400), "{world:?}: {said:?}");
    }
}

#[test]
fn one_simulation_counts_every_method() {
    let mut tallies = <[Tally; CHANGES.len()]>::default();
    one(World::Normal(0.01), 3, &mut tallies);
    one(World::Counts, 3, &mut tallies);
    assert_eq!(
        tallies.each_ref().map(|tally| tally.simulations),
        [2, 1, 1, 1]
    );
    let changed = &tallies[3];
    assert_eq!(changed.pairs[0].words, [1, 0]);
    assert_eq!(changed.pairs[0].pairs_different, [10]);
    assert_eq!(changed.blocks.pairs_different, [20]);
    assert_eq!(changed.peers, [1; PEERS.len()]);
    assert_eq!(tallies[0].pairs[0].same, [1, 1]);
    let mut twice = changed.clone();
    twice.add(changed.clone());
    assert_eq!(
        (twice.simulations, twice.blocks.covered),
        (2, 2 * changed.blocks.covered)
    );
}

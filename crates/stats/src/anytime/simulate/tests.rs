use super::*;
#[test]
fn quick() {
    let t = std::time::Instant::now();
    let mut tallies = <[Tally; 4]>::default();
    for seed in 0..100 {
        one(World::Normal(0.05), seed, &mut tallies);
    }
    println!("{:?}", t.elapsed());
    for t in &tallies {
        println!(
            "{:?} {:?} {} {:?}",
            t.pairs[0].different, t.pairs[0].same, t.pairs[0].covered, t.peers
        );
    }
}

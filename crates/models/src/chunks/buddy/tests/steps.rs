//! Steps that shrink: the shortest list of them that makes a difference is shown.

use proptest::prelude::*;

use crate::chunks::buddy::oracle::{Pair, Step};
use crate::chunks::buddy::{Mobility, Use};

fn mobility() -> impl Strategy<Value = Mobility> {
    prop::sample::select(Mobility::ALL)
}

fn usage() -> impl Strategy<Value = Use> {
    prop::sample::select(Use::ALL)
}

/// Frames a little beyond the memory, too.
fn step(pages: u64) -> impl Strategy<Value = Step> {
    let frame = 0..pages + 2;
    // So that a frame is aligned as often as not.
    let aligned = (frame.clone(), 0..12u32).prop_map(|(f, o)| (f >> o << o, o));
    prop_oneof![
        6 => (0..12u32, mobility(), usage()).prop_map(|(o, m, of)| Step::Take(o, m, of)),
        6 => aligned.prop_map(|(frame, order)| Step::Give(frame, order)),
        2 => frame.clone().prop_map(|frame| Step::Give(frame, 0)),
        2 => (frame.clone(), usage()).prop_map(|(frame, of)| Step::TakeAt(frame, of)),
        1 => (frame.clone(), usage()).prop_map(|(frame, of)| Step::SetUse(frame, of)),
        1 => (frame, mobility()).prop_map(|(frame, m)| Step::SetBlock(frame, m)),
    ]
}

fn scene() -> impl Strategy<Value = (u64, Option<Use>, Vec<Step>)> {
    let pages = prop_oneof![1..40u64, 500..530u64, 1_000..2_100u64];
    (pages, prop::option::of(usage())).prop_flat_map(|(pages, of)| {
        let steps = prop::collection::vec(step(pages), 1..120);
        (Just(pages), Just(of), steps)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_steps_do_as_on_the_naive_memory((pages, of, steps) in scene(), old: bool) {
        let pair = Pair::new(pages, of).unwrap();
        let mut pair = if old { pair.of_3_14() } else { pair };
        for step in steps {
            if let Err(what) = pair.step(step) {
                return Err(TestCaseError::fail(what));
            }
        }
        prop_assert_eq!(pair.compare(), Ok(()));
    }

    /// Without the oracle: allocating and freeing everything leaves the memory as it was made.
    #[test]
    fn all_given_back_is_whole(
        pages in 1..3_000u64, orders in prop::collection::vec((0..11u32, mobility()), 0..200),
    ) {
        let mut pair = Pair::new(pages, None).unwrap();
        let mut held = Vec::new();
        for (order, mobility) in orders {
            let step = Step::Take(order, mobility, Use::Movable);
            if let Some(frame) = pair.step(step).unwrap().unwrap() {
                prop_assert!(frame.is_multiple_of(1 << order) && frame + (1 << order) <= pages);
                held.push((frame, order));
            }
        }
        for (frame, order) in held {
            pair.step(Step::Give(frame, order)).unwrap().unwrap();
        }
        pair.compare().unwrap();
        for order in 0..11 {
            let blocks = pair.buddy().free_blocks(order);
            let right = if order == 10 { pages >> 10 } else { pages >> order & 1 };
            prop_assert_eq!(blocks, right, "order {}", order);
        }
    }
}

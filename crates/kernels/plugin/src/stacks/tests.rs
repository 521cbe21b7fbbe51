use proptest::prelude::*;

use super::{Chains, Stacks};

const STACK: u64 = 0xffff_c900_000f_8000;
const OTHER: u64 = 0xffff_c900_0020_0000;
const INTERRUPTS: u64 = 0xffff_c900_0000_7000; // not aligned to 16 KiB

/// The sites that the code that runs now was called by.
fn sites(stacks: &mut Stacks, chains: &mut Chains) -> Vec<u64> {
    let chain = stacks.chain(chains);
    chains.sites(chain)
}

#[test]
fn calls_and_returns() {
    let (mut stacks, mut chains) = (Stacks::default(), Chains::default());
    stacks.program();
    assert!(sites(&mut stacks, &mut chains).is_empty());
    let top = STACK + 0x3f00;
    stacks.call(top, 1, Some(&mut chains));
    stacks.call(top - 0x40, 2, Some(&mut chains));
    assert_eq!(sites(&mut stacks, &mut chains), [1, 2]);
    stacks.ret(top - 0x40);
    assert_eq!(sites(&mut stacks, &mut chains), [1]);
    // The same chain has the same number, whenever it comes.
    let before = chains.all.len();
    stacks.call(top - 0x40, 2, Some(&mut chains));
    assert_eq!(sites(&mut stacks, &mut chains), [1, 2]);
    assert_eq!(chains.all.len(), before);
}

/// ```text
///  call 1, call 2, the program goes on by iret (no return), it enters again: call 3
/// ```
#[test]
fn what_left_without_a_return_is_over() {
    let (mut stacks, mut chains) = (Stacks::default(), Chains::default());
    let top = STACK + 0x3f00;
    stacks.call(top, 1, None);
    stacks.call(top - 0x40, 2, None);
    stacks.program();
    stacks.call(top - 0x80, 3, Some(&mut chains));
    assert_eq!(sites(&mut stacks, &mut chains), [3]);
    // Nor need it come back through a program: a call from higher up says as much.
    stacks.call(top - 0xc0, 4, None);
    stacks.call(top - 0x80, 5, None);
    assert_eq!(sites(&mut stacks, &mut chains), [5]);
}

/// A retpoline: the thunk calls a place in itself, overwrites that return address, and returns into the function.
#[test]
fn a_function_behind_a_thunk_is_called_by_the_thunks_caller() {
    let (mut stacks, mut chains) = (Stacks::default(), Chains::default());
    let top = STACK + 0x3f00;
    stacks.call(top, 1, None); // the caller's call of the thunk
    stacks.call(top - 8, 2, None); // the thunk's own
    stacks.ret(top - 8); // into the function
    assert_eq!(sites(&mut stacks, &mut chains), [1]);
}

/// The switch: a function returns on another task's stack, and later back.
#[test]
fn a_task_that_is_switched_to_has_its_own_callers() {
    let (mut stacks, mut chains) = (Stacks::default(), Chains::default());
    let (one, other) = (STACK + 0x3f00, OTHER + 0x3f00);
    stacks.call(other, 10, None);
    stacks.call(other - 0x40, 11, None); // __switch_to, on the other's stack
    stacks.program();
    stacks.call(one, 1, None);
    stacks.call(one - 0x40, 2, None); // __switch_to
    stacks.ret(other - 0x40); // returns as the other
    assert_eq!(sites(&mut stacks, &mut chains), [10]);
    stacks.call(other - 0x40, 12, None);
    stacks.ret(one - 0x40); // and as the one
    assert_eq!(sites(&mut stacks, &mut chains), [1]);
}

/// ```text
///  task's stack   call 1
///  interrupts'      call 2, call 3 across a multiple of 16 KiB, and back
/// ```
#[test]
fn an_interrupts_stack_hangs_below_what_it_came_upon() {
    let (mut stacks, mut chains) = (Stacks::default(), Chains::default());
    stacks.call(STACK + 0x3f00, 1, Some(&mut chains));
    stacks.call(INTERRUPTS + 0x1008, 2, Some(&mut chains));
    stacks.call(INTERRUPTS + 0x0ff8, 3, Some(&mut chains));
    assert_eq!(sites(&mut stacks, &mut chains), [1, 2, 3]);
    stacks.ret(INTERRUPTS + 0x0ff8);
    stacks.ret(INTERRUPTS + 0x1008);
    stacks.call(STACK + 0x3ec0, 4, Some(&mut chains));
    assert_eq!(sites(&mut stacks, &mut chains), [1, 4]);
}

proptest! {
    /// On one stack: against a list of frames kept by the rule.
    #[test]
    fn frames_fall_from_bottom_to_top(calls in prop::collection::vec((0u64..64, 1u64..5, any::<bool>()), 1..60)) {
        let (mut stacks, mut chains) = (Stacks::default(), Chains::default());
        let mut frames: Vec<(u64, u64)> = Vec::new();
        for (place, site, call) in calls {
            let slot = STACK + 0x3000 + 8 * place;
            frames.retain(|(other, _)| *other > slot);
            if call {
                frames.push((slot, site));
                stacks.call(slot, site, Some(&mut chains));
            } else {
                stacks.ret(slot);
            }
            let expected: Vec<u64> = frames.iter().map(|(_, site)| *site).collect();
            prop_assert_eq!(sites(&mut stacks, &mut chains), expected);
        }
    }
}

//! A check that finds nothing has checked nothing: one fault of each kind.

use crate::chunks::buddy::cell::Cell;
use crate::chunks::buddy::{Buddy, Mobility, Use};

/// Two free blocks of order 2 and one page taken.
///
/// ```text
///  0123456789ab
///  |...Tuuu|...
/// ```
fn memory() -> Buddy {
    let mut buddy = Buddy::new(1_200, Use::Movable).unwrap();
    buddy.free(0, 2).unwrap();
    buddy.free(8, 2).unwrap();
    buddy.check().unwrap();
    buddy
}

#[test]
fn each_fault_is_found() {
    type Fault = (fn(&mut Buddy), &'static str);
    let head = Cell::head(2, Mobility::Movable);
    assert!(head == memory().cells.get(0));
    let faults: [Fault; 10] = [
        (
            |b| b.cells.set(2, Cell::used(Use::Pinned)),
            "frame 2 is not inside",
        ),
        (
            |b| b.cells.set(4, Cell::INSIDE),
            "frame 4 is inside of no free block",
        ),
        (
            |b| b.cells.set(5, Cell::used(Use::Pinned)),
            "pages are used",
        ),
        (|b| b.used[Use::Hole as usize] += 1, "pages are used"),
        (|b| b.types[0] = Mobility::Unmovable, "of the other type"),
        (|b| b.insert(5, 1, Mobility::Movable), "not aligned"),
        (|b| b.insert(1_199, 0, Mobility::Movable), "pages are used"),
        (|b| b.insert(1_192, 4, Mobility::Movable), "not aligned"),
        (
            |b| b.cells.set(0, Cell::used(Use::Movable)),
            "frame 1 is inside of no free block",
        ),
        (
            |b| {
                b.cells.fill(4, 4, Cell::INSIDE);
                b.insert(4, 2, Mobility::Movable);
            },
            "are not one",
        ),
    ];
    for (place, (fault, what)) in faults.into_iter().enumerate() {
        let mut buddy = memory();
        fault(&mut buddy);
        let found = buddy.check().unwrap_err();
        assert!(found.contains(what), "fault {place}: {found}");
    }
}

#[test]
fn a_block_that_no_list_has_is_found() {
    let mut buddy = memory();
    buddy.lists[2][Mobility::Movable as usize] = Default::default();
    let found = buddy.check().unwrap_err();
    assert!(found.contains("2 free blocks, 0 on the list"), "{found}");
    let mut buddy = memory();
    let order_2 = &mut buddy.lists[2][Mobility::Movable as usize];
    order_2.remove(8, Cell::head(2, Mobility::Movable), &mut buddy.cells);
    buddy.cells.set(8, Cell::head(2, Mobility::Movable));
    let found = buddy.check().unwrap_err();
    assert!(found.contains("2 free blocks"), "{found}");
}

#[test]
fn a_block_that_leaves_the_memory_is_found() {
    let mut buddy = Buddy::new(20, Use::Movable).unwrap();
    buddy.cells.fill(16, 4, Cell::INSIDE);
    buddy.insert(16, 3, Mobility::Movable);
    let found = buddy.check().unwrap_err();
    assert!(found.contains("leaves the memory"), "{found}");
}

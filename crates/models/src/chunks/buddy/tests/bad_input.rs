//! Impossible requests return an error and change nothing.

use crate::chunks::buddy::{Buddy, BuddyError, Mobility, Use};

#[test]
fn memory_of_no_size_that_can_be_modelled() {
    for pages in [0, Buddy::MOST_PAGES + 1, u64::MAX] {
        let error = Buddy::new(pages, Use::Movable).err().unwrap();
        assert_eq!(Buddy::all_free(pages).err(), Some(error));
        let text = format!("memory of {pages} pages: 1 to 16777216 can be modelled");
        assert_eq!(error.to_string(), text);
    }
    let one = Buddy::all_free(1).unwrap();
    assert_eq!((one.pages(), one.free_blocks(0)), (1, 1));
}

#[test]
fn steps_that_cannot_be_change_nothing() {
    // Frames 0 to 9, then a hole at 10, then used to 19; 8 and 9 are free, and 12 of the others.
    let mut buddy = Buddy::new(20, Use::Unmovable).unwrap();
    buddy.set_use(10, Use::Hole).unwrap();
    buddy.free(8, 1).unwrap();
    buddy.free(12, 0).unwrap();
    let pages = 20;
    let beyond = |frame| Err(BuddyError::Beyond { frame, pages });
    let free = |frame| Err(BuddyError::IsFree { frame });
    let seen = |buddy: &Buddy| {
        buddy.check().unwrap();
        let states: Vec<_> = (0..20).map(|frame| buddy.page(frame)).collect();
        let lists: Vec<_> = (0..11)
            .map(|order| buddy.free_list(order, Mobility::Movable))
            .collect();
        (states, lists, buddy.free_pages(), buddy.fallbacks())
    };
    let before = seen(&buddy);
    for (frame, order, right) in [
        (0, 11, Err(BuddyError::Order { order: 11 })),
        (0, u32::MAX, Err(BuddyError::Order { order: u32::MAX })),
        (2, 2, Err(BuddyError::Unaligned { frame: 2, order: 2 })),
        (16, 3, beyond(20)),
        (20, 0, beyond(20)),
        (u64::MAX, 10, beyond(u64::MAX)),
        (1 << 32, 0, beyond(1 << 32)),
        (8, 1, free(8)),
        (8, 0, free(8)),
        (9, 0, free(9)),
        (12, 2, free(12)),
        (10, 0, Err(BuddyError::IsHole { frame: 10 })),
    ] {
        assert_eq!(buddy.free(frame, order), right, "{frame} {order}");
    }
    let used = Err(BuddyError::IsUsed {
        frame: 11,
        of: Use::Unmovable,
    });
    assert_eq!(buddy.allocate_at(11, Use::Movable), used);
    assert_eq!(buddy.allocate_at(20, Use::Movable), beyond(20));
    assert_eq!(buddy.set_use(9, Use::Hole), free(9));
    assert_eq!(buddy.set_use(1 << 40, Use::Hole), beyond(1 << 40));
    assert_eq!(buddy.set_block_mobility(20, Mobility::Movable), beyond(20));
    for order in [2, 10, 11, 64, u32::MAX] {
        assert_eq!(buddy.allocate(order, Mobility::Movable, Use::Movable), None);
        assert_eq!(
            buddy.allocate(order, Mobility::Unmovable, Use::Movable),
            None
        );
    }
    assert_eq!(buddy.page(u64::MAX), None);
    assert_eq!(buddy.block_mobility(20), None);
    assert_eq!((buddy.free_blocks(11), buddy.free_blocks(u32::MAX)), (0, 0));
    assert!(buddy.free_list(u32::MAX, Mobility::Movable).is_empty());
    assert_eq!(seen(&buddy), before);
}

#[test]
fn errors_name_the_frame_and_what_is_wrong() {
    let texts = [
        BuddyError::Order { order: 11 },
        BuddyError::Unaligned { frame: 6, order: 3 },
        BuddyError::Beyond { frame: 9, pages: 8 },
        BuddyError::IsFree { frame: 7 },
        BuddyError::IsHole { frame: 7 },
        BuddyError::IsUsed {
            frame: 7,
            of: Use::Pinned,
        },
    ]
    .map(|error| error.to_string());
    let right = [
        "order 11: orders are 0 to 10",
        "frame 6: a block of order 3 begins at a multiple of 8",
        "frame 9: the memory has 8 pages",
        "frame 7 is free",
        "frame 7 is a hole",
        "frame 7 is used (pinned)",
    ];
    assert_eq!(texts, right);
}

use super::*;

#[test]
fn a_block_is_halved_down_to_the_request_and_comes_back() {
    // frame  0 1 2   4       8
    //        T|f|f  |f      |
    let mut buddy = Buddy::free(8).unwrap();
    assert_eq!(buddy.take(0, Mobility::Movable, Use::Movable), Some(0));
    for (order, frame) in [(0, 1), (1, 2), (2, 4)] {
        assert_eq!(buddy.free_list(order, Mobility::Movable), [frame]);
    }
    buddy.check().unwrap();
    buddy.give(0, 0).unwrap();
    assert_eq!(buddy.free_list(3, Mobility::Movable), [0]);
    buddy.check().unwrap();
}

//! Each policy's rule said a second time: what comes next, given everything that was tried so far and
//! nothing else.

use proptest::prelude::*;

use super::*;

/// One try: its order, its effort, whether it succeeded.
type Try = (u32, Effort, bool);

/// Succeeds as `grants` says, in turn, and the more often the smaller the order; notes everything.
struct Script {
    grants: Vec<u8>,
    tries: Vec<Try>,
    out: Vec<Chunk>,
}

impl Source for Script {
    fn allocate(&mut self, order: u32, effort: Effort) -> Option<u64> {
        let turn = self.tries.len();
        let granted = u32::from(self.grants[turn % self.grants.len()]) >= order;
        self.tries.push((order, effort, granted));
        let frame = (turn as u64) << ORDERS;
        granted.then(|| self.out.push(Chunk { frame, order }));
        granted.then_some(frame)
    }

    fn free(&mut self, chunk: Chunk) {
        assert_eq!(self.out.pop(), Some(chunk), "the newest first");
    }
}

/// The next try of a policy. `None`: the buffer is complete, or order 0 failed.
fn next(name: Name, request: &Request, tries: &[Try]) -> Option<(u32, Effort)> {
    let got: u64 = tries.iter().filter(|t| t.2).map(|t| 1 << t.0).sum();
    let left = request.pages - got;
    if left == 0
        || tries
            .iter()
            .any(|&(order, _, success)| order == 0 && !success)
    {
        return None;
    }
    let fits = |order: u32| 1 << order <= left;
    // An order below every one that failed and at most every one that succeeded.
    let sticky = |order: u32| {
        tries
            .iter()
            .all(|&(tried, _, success)| order < tried || success && order == tried)
    };
    let of = |sizes: &[u64], order: u32| order == 0 || sizes.contains(&(request.page << order));
    let allowed = |order: u32| match name {
        Name::Old | Name::IovaOffset => {
            let since = tries.iter().rev().take_while(|t| !t.2);
            since.into_iter().all(|t| order < t.0)
        }
        Name::OnePage | Name::Sorted => order == 0,
        Name::Sticky | Name::Ttm => sticky(order),
        Name::Start64k => sticky(order) && request.page << order <= K64.max(request.page),
        Name::Fold => {
            let failed = tries.iter().any(|t| !t.2);
            sticky(order)
                && request.page << order <= K64.max(request.page)
                && (!failed || order <= 1)
        }
        Name::Landed | Name::PerDevice if request.single_pages => order == 0,
        Name::PerDevice if request.sizes.iter().all(|size| size <= request.page) => order == 0,
        Name::List | Name::ListNoReclaim | Name::Landed | Name::PerDevice => {
            sticky(order) && of(&[M2, M2 / 2, K64], order)
        }
        Name::IommuDma => {
            let sizes: Vec<u64> = request.sizes.iter().collect();
            sticky(order) && of(&sizes, order) && (order == 0 || !request.single_pages)
        }
    };
    let order = (0..ORDERS as u32)
        .rev()
        .find(|&order| fits(order) && allowed(order))
        .unwrap();
    let effort = match (order, name) {
        (0, _) => Effort::Must,
        (_, Name::ListNoReclaim) => Effort::NoReclaim,
        _ => Effort::NoRetry,
    };
    Some((order, effort))
}

fn requests() -> impl Strategy<Value = Request> {
    let sizes = prop::collection::vec(12..25u32, 0..4);
    let pages = prop_oneof![1..40u64, 1..5000u64];
    (pages, 0..5u32, sizes, any::<bool>()).prop_map(|(pages, larger, bits, single_pages)| {
        let mut sizes: Vec<u64> = bits.into_iter().map(|bit| 1 << bit).collect();
        sizes.push(K4);
        Request {
            pages,
            page: K4 << larger,
            sizes: PageSizes::new(&sizes).unwrap(),
            single_pages,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_try_is_the_one_that_the_rule_says(
        request in requests(),
        grants in prop_oneof![
            prop::collection::vec(0..12u8, 1..60),                 // every order by chance
            Just(vec![10]), Just(vec![0]), Just(vec![3]),          // up to one order, always
        ],
    ) {
        for &name in Name::ALL {
            let mut script = Script { grants: grants.clone(), tries: vec![], out: vec![] };
            let built = name.build(&request, &mut script).unwrap(); // order 0 never fails here
            let mut count = Tries::default();
            for (turn, &(order, effort, success)) in script.tries.iter().enumerate().take(120) {
                let expected = next(name, &request, &script.tries[..turn]);
                prop_assert_eq!(expected, Some((order, effort)), "{} try {}", name, turn);
                prop_assert!(success || order > 0);
            }
            for &(order, _, success) in &script.tries {
                count.tries[order as usize] += 1;
                count.failed[order as usize] += u64::from(!success);
            }
            prop_assert_eq!(built.tries, count);
            prop_assert_eq!(built.pages(), request.pages);
            let mut chunks = built.chunks.clone();
            chunks.sort_unstable_by_key(|chunk| chunk.frame);
            prop_assert_eq!(chunks, script.out); // the script's frames ascend
        }
    }

    /// Memory ends somewhere: all that was taken is given back.
    #[test]
    fn what_cannot_be_completed_is_undone(request in requests(), largest in 0..11u32, pages in 0..5000u64) {
        for &name in Name::ALL {
            let mut blocks = Blocks::of(largest, pages);
            match name.build(&request, &mut blocks) {
                Ok(built) => {
                    prop_assert!(pages >= request.pages);
                    prop_assert_eq!(blocks.pages, pages - request.pages);
                    prop_assert_eq!(blocks.out.len(), built.chunks.len());
                }
                Err(BuildError::Exhausted { pages: got, .. }) => {
                    prop_assert!(pages < request.pages);
                    prop_assert_eq!((got, blocks.pages, blocks.out.len()), (pages, pages, 0));
                }
                Err(error) => prop_assert!(false, "{error}"),
            }
        }
    }

    /// `Steps` with any list, and any effort for the large orders.
    #[test]
    fn steps_go_down_and_never_back(
        pages in 1..5000u64, set in prop::collection::btree_set(1..11u32, 0..10),
        grants in prop::collection::vec(0..12u8, 1..60), reclaim: bool,
    ) {
        let mut orders: Vec<u32> = set.into_iter().rev().collect();
        orders.push(0);
        let effort = if reclaim { Effort::NoRetry } else { Effort::NoReclaim };
        let steps = Steps { orders: orders.clone(), effort };
        let mut script = Script { grants, tries: vec![], out: vec![] };
        let built = steps.build(&request(pages), &mut script).unwrap();
        prop_assert_eq!(built.pages(), pages);
        prop_assert!(script.tries.is_sorted_by_key(|t| std::cmp::Reverse(t.0)));
        let mut left = pages;
        for (turn, &(order, tried, success)) in script.tries.iter().enumerate() {
            let failed = |order| script.tries[..turn].iter().any(|t| t.0 == order && !t.2);
            let expected = orders.iter().find(|&&order| 1 << order <= left && !failed(order));
            prop_assert_eq!(expected, Some(&order));
            prop_assert_eq!(tried, if order == 0 { Effort::Must } else { effort });
            left -= if success { 1 << order } else { 0 };
        }
    }
}

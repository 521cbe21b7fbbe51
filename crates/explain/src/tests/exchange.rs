//! Pairs between flushes.

use stopgap_trace::Text;

use super::builder::{Builder, CLIENT, SERVER, options, with_waits};
use crate::{Exchange, Exchanges, Explainer};

fn exchanges(b: &Builder) -> Vec<Exchange> {
    let mut explainer = Explainer::new(&b.metadata, options());
    let events = with_waits(&b.events);
    events.iter().for_each(|event| explainer.event(event));
    let mut exchanges = Exchanges::new(&explainer.pairs());
    events.iter().for_each(|event| exchanges.event(event));
    exchanges.finish()
}

/// ```text
/// client  write  poll ..................  read  30 us
/// server  ...... poll  read  50 us  write  poll .....
/// ```
#[test]
fn a_round_trip_is_taken_apart() {
    const TRIPS: u64 = 7;
    let mut b = Builder::new();
    b.switch(0, "R", CLIENT);
    for _ in 0..TRIPS {
        b.enter(CLIENT, "write", 5).after(1_000);
        b.wake(CLIENT, SERVER);
        b.exit(CLIENT, "write", 8).enter(CLIENT, "poll", 0);
        b.switch(CLIENT, "S", SERVER).exit(SERVER, "poll", 1);
        b.enter(SERVER, "read", 6)
            .after(1_000)
            .exit(SERVER, "read", 8);
        b.after(50_000).enter(SERVER, "write", 6);
        b.wake(SERVER, CLIENT).exit(SERVER, "write", 8);
        b.enter(SERVER, "poll", 0);
        b.switch(SERVER, "S", CLIENT).exit(CLIENT, "poll", 1);
        b.enter(CLIENT, "read", 5).exit(CLIENT, "read", 8);
        b.after(30_000);
    }
    let all = exchanges(&b);
    assert_eq!(all.len(), 1);
    let exchange = &all[0];
    assert_eq!((exchange.client, exchange.server), (CLIENT, SERVER));
    let trips = TRIPS - 2; // the first tells who they are, and the last one is not over
    assert_eq!(exchange.roundtrips, trips);
    assert_eq!(
        (exchange.switches, exchange.sends, exchange.replies),
        (2 * trips, trips, trips)
    );
    assert_eq!(exchange.server_user_ns, Some(50_000 * trips));
    assert_eq!(exchange.client_user_ns, Some(30_000 * trips));
    let polls = [(Text::from("poll"), trips)].into();
    assert_eq!(
        (&exchange.client_waits, &exchange.server_waits),
        (&polls, &polls)
    );
    assert_eq!(exchange.one_cpu, Some(true));
    let findings = b.explain();
    let pair = &findings.switches.pairs[0];
    assert_eq!(pair.per_roundtrip.p50, Some(2), "as explain counts them");
}

/// The first requests woke nobody, so the reply's waking comes first. The client is still the thread that sent first.
#[test]
fn the_client_is_who_sent_first() {
    let mut b = Builder::new();
    b.switch(0, "R", CLIENT);
    for trip in 0..9 {
        b.enter(CLIENT, "write", 5).after(1_000);
        if trip > 3 {
            b.wake(CLIENT, SERVER);
        }
        b.exit(CLIENT, "write", 8).enter(CLIENT, "read", 5);
        b.switch(CLIENT, "S", SERVER).exit(SERVER, "read", 8);
        b.after(2_000).enter(SERVER, "write", 6);
        b.wake(SERVER, CLIENT).exit(SERVER, "write", 8);
        b.enter(SERVER, "read", 6);
        b.switch(SERVER, "S", CLIENT).exit(CLIENT, "read", 8);
        b.after(10);
    }
    let all = exchanges(&b);
    assert_eq!((all[0].client, all[0].server), (CLIENT, SERVER));
    assert_eq!((all[0].roundtrips, all[0].switches), (4, 8));
    assert_eq!(all[0].server_user_ns, Some(4 * 2_000));
    let findings = b.explain();
    let pair = &findings.switches.pairs[0];
    let names = (&*pair.client, &*pair.server);
    assert_eq!(names, ("client", "server"), "as the exchanges have them");
    assert_eq!((pair.roundtrips, pair.switches), (5, 10));
}

#[test]
fn threads_that_do_not_talk_are_no_pair() {
    let mut b = Builder::new();
    b.switch(0, "R", CLIENT).enter(CLIENT, "write", 5);
    b.wake(CLIENT, SERVER).exit(CLIENT, "write", 8);
    assert_eq!(exchanges(&b), []);
}

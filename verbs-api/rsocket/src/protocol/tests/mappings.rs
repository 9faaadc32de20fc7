//! The mappings of one side, and the peer's view of them.

use super::two_ends::{End, SMALL};
use crate::protocol::mappings::Mappings;
use crate::protocol::segment::{Iomap, Segment};

/// A mapping of 100 bytes.
fn iomap(offset: u64) -> Iomap {
    Iomap { offset, memory: Segment { addr: 0x7000, key: 9, length: 100 } }
}

fn offsets(mappings: &Mappings) -> Vec<u64> {
    mappings.iter().map(|iomap| iomap.offset).collect()
}

/// Sends all entries that the peer has not received.
fn tell(from: &mut End, to: &mut End) {
    while from.stream.sender.is_ready()
        && let Some(post) = from.stream.next_mapping()
    {
        from.in_flight.push_back((post, Vec::new()));
        from.deliver(to);
    }
}

#[test]
fn a_new_mapping_has_the_lowest_free_index() {
    let mut mappings = Mappings::new(2);
    assert_eq!([0, 1000].map(|offset| mappings.add(iomap(offset))), [Some(0), Some(1)]);
    assert!(!mappings.has_room());
    assert_eq!(mappings.add(iomap(2000)), None);
    mappings.remove(0);
    assert_eq!((mappings.has_room(), mappings.add(iomap(2000))), (true, Some(0)));
    mappings.withdraw(1);
    assert_eq!(offsets(&mappings), [2000]);
    assert_eq!((mappings.has_room(), mappings.add(iomap(3000))), (true, Some(1)));
    assert_eq!(offsets(&mappings), [3000, 2000]);
}

#[test]
fn the_peer_learns_of_new_and_withdrawn_mappings() {
    let [mut first, mut second] = End::pair([SMALL; 2]);
    for offset in [0, 1000] {
        first.stream.mappings.add(iomap(offset)).unwrap();
    }
    assert!(first.stream.mappings.has_unsent());
    tell(&mut first, &mut second);
    assert!(!first.stream.mappings.has_unsent());
    assert_eq!([99, 100, 1001].map(|at| second.stream.mapped_len(at)), [Some(1), None, Some(99)]);
    first.stream.mappings.withdraw(0);
    assert!(first.stream.mappings.has_unsent());
    tell(&mut first, &mut second);
    assert_eq!([99, 1001].map(|at| second.stream.mapped_len(at)), [None, Some(99)]);
    // The entry is gone at this side, too.
    assert!(!first.stream.mappings.has_unsent());
    assert_eq!(first.stream.mappings.add(iomap(5000)), Some(0));
}

/// A removed mapping of the C calls, and one that replaces a withdrawn one, need no message.
#[test]
fn only_what_the_peer_must_know_is_sent() {
    let mut mappings = Mappings::new(2);
    mappings.add(iomap(0)).unwrap();
    mappings.remove(0);
    assert!(!mappings.has_unsent());
    mappings.add(iomap(0)).unwrap();
    mappings.withdraw(0);
    mappings.add(iomap(1000)).unwrap();
    assert_eq!(mappings.next_unsent(), Some((0, iomap(1000))));
    assert_eq!(mappings.next_unsent(), None);
}

#[test]
fn messages_about_mappings_do_not_use_credits_up() {
    let [mut first, mut second] = End::pair([SMALL; 2]);
    for round in 0..3 * u64::from(SMALL.recv_queue) {
        let index = first.stream.mappings.add(iomap(round)).unwrap();
        tell(&mut first, &mut second);
        assert!(!first.stream.mappings.has_unsent(), "round {round}");
        first.stream.mappings.remove(index);
        second.grant();
        second.deliver(&mut first);
    }
}

//! The peers of a datagram socket.
//!
//! Any host can send a message over UDP in the name of any address. So a message alone neither adds
//! a peer nor changes one:
//!
//! ```text
//!             the program sends          the peer answers
//!   unknown ───────────────────> awaiting ───────────────> answered <──┐
//!                                                             │        │ the peer answers with its
//!                     a message names another queue pair      │        │ old queue pair, or a
//!                                                             ▼        │ datagram arrives at the
//!                                                         questioned ──┘ queue pair of this socket
//! ```
//!
//! | state of a peer | its datagrams go |
//! |---|---|
//! | awaiting, questioned | over UDP, where only the owner of the address gets them |
//! | answered | to the queue pair of its answer |
//!
//! A restarted peer has a new queue pair. It is believed when a datagram comes from it to the queue
//! pair of this socket, whose number only receivers of this socket's messages know.
//!
//! Both tables have a limit, and drop the peer that was used the least recently. A dropped peer is
//! unknown, so its next datagram goes over UDP again.

use std::collections::HashMap;
use std::net::SocketAddr;

/// The largest number of peers of a socket that answered. A peer has an address handle and a path,
/// together about 1.4 KiB, so all take 6 MiB.
pub const MAX_ANSWERED: usize = 4096;
/// The largest number of addresses from which a socket awaits an answer. An answer takes a round
/// trip, so these are the peers of some milliseconds. A program that replies to all claimed
/// addresses fills this table, and the peers that answered stay.
pub const MAX_AWAITING: usize = 1024;

/// The way of a datagram to a peer. `place` is the index of the socket's queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route<A> {
    /// Over UDP, because the peer's queue pair is unknown or in doubt.
    Udp { place: usize },
    /// To the queue pair of the peer, by an address handle.
    Qp { place: usize, ah: A, qpn: u32 },
}

/// A peer that answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Answered<A> {
    place: usize,
    ah: A,
    qpn: u32,
    /// Whether a message named another queue pair since.
    is_questioned: bool,
}

/// The peers of a socket. `A` is the address handle.
#[derive(Debug)]
pub struct Peers<A> {
    awaiting: Lru<usize>,
    answered: Lru<Answered<A>>,
}

/// An address handle that is not used any more, and the place of its queue pair.
pub type Dropped<A> = Option<(usize, A)>;

impl<A: Copy> Peers<A> {
    /// Makes tables of these sizes.
    pub fn new(max_awaiting: usize, max_answered: usize) -> Self {
        Self { awaiting: Lru::new(max_awaiting), answered: Lru::new(max_answered) }
    }

    /// Returns the way to an address, if it is known.
    pub fn route(&mut self, to: SocketAddr) -> Option<Route<A>> {
        if let Some(peer) = self.answered.touch(to) {
            let Answered { place, ah, qpn, is_questioned } = *peer;
            let over_udp = Route::Udp { place };
            return Some(if is_questioned { over_udp } else { Route::Qp { place, ah, qpn } });
        }
        self.awaiting.touch(to).map(|place| Route::Udp { place: *place })
    }

    /// Adds an address to which the program sends.
    pub fn await_answer(&mut self, to: SocketAddr, place: usize) {
        self.awaiting.insert(to, place);
    }

    /// Returns the place of an address whose answer is awaited.
    pub fn awaits(&self, from: SocketAddr) -> Option<usize> {
        self.awaiting.get(from).copied()
    }

    /// Adds the answer of an awaited address, with an address handle to it.
    pub fn add(&mut self, from: SocketAddr, place: usize, ah: A, qpn: u32) -> Dropped<A> {
        self.awaiting.remove(from);
        let peer = Answered { place, ah, qpn, is_questioned: false };
        self.answered.insert(from, peer).map(|old| (old.place, old.ah))
    }

    /// Takes note of a message over UDP from a peer that answered before. A message with another
    /// queue pair is no reason to believe it.
    pub fn hear(&mut self, from: SocketAddr, qpn: u32, is_answer: bool) {
        let Some(peer) = self.answered.get_mut(from) else { return };
        if peer.qpn != qpn {
            peer.is_questioned = true;
        } else if is_answer {
            peer.is_questioned = false;
        }
    }

    /// Returns whether a datagram from this queue pair of a peer would change its entry.
    pub fn has_doubt(&self, from: SocketAddr, qpn: u32) -> bool {
        self.answered.get(from).is_some_and(|peer| peer.is_questioned || peer.qpn != qpn)
    }

    /// Believes the queue pair of a datagram that arrived at the socket's queue pair from the
    /// peer's address.
    pub fn believe(&mut self, from: SocketAddr, qpn: u32) {
        if let Some(peer) = self.answered.get_mut(from) {
            (peer.qpn, peer.is_questioned) = (qpn, false);
        }
    }

    /// Removes all peers. Returns the address handles with the places of their queue pairs.
    pub fn clear(&mut self) -> impl Iterator<Item = (usize, A)> + use<A> {
        self.awaiting.entries.clear();
        std::mem::take(&mut self.answered.entries)
            .into_values()
            .map(|(_, peer)| (peer.place, peer.ah))
    }
}

/// A table that drops the entry that was used the least recently.
#[derive(Debug)]
struct Lru<V> {
    /// The entries, each with the time of its last use.
    entries: HashMap<SocketAddr, (u64, V)>,
    max: usize,
    /// The number of uses so far.
    now: u64,
}

impl<V> Lru<V> {
    fn new(max: usize) -> Self {
        Self { entries: HashMap::new(), max, now: 0 }
    }

    fn get(&self, key: SocketAddr) -> Option<&V> {
        self.entries.get(&key).map(|(_, value)| value)
    }

    fn get_mut(&mut self, key: SocketAddr) -> Option<&mut V> {
        self.entries.get_mut(&key).map(|(_, value)| value)
    }

    /// Returns an entry, which is now the last one to be dropped.
    fn touch(&mut self, key: SocketAddr) -> Option<&V> {
        let (used, value) = self.entries.get_mut(&key)?;
        self.now += 1;
        *used = self.now;
        Some(&*value)
    }

    fn remove(&mut self, key: SocketAddr) {
        self.entries.remove(&key);
    }

    /// Adds or replaces an entry. Returns the entry that it replaces, or that had to go.
    fn insert(&mut self, key: SocketAddr, value: V) -> Option<V> {
        self.now += 1;
        if let Some((_, old)) = self.entries.insert(key, (self.now, value)) {
            return Some(old);
        }
        if self.entries.len() <= self.max {
            return None;
        }
        let oldest = self.entries.iter().min_by_key(|(_, (used, _))| *used).map(|(key, _)| *key);
        self.entries.remove(&oldest?).map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(number: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], number))
    }

    /// Tables for two awaited and three answered peers. Peer `n` answers with queue pair `100 + n`
    /// and gets the address handle `n`.
    fn with_answers(numbers: impl IntoIterator<Item = u16>) -> Peers<u16> {
        let mut peers = Peers::new(2, 3);
        for number in numbers {
            peers.await_answer(peer(number), 0);
            assert_eq!(peers.awaits(peer(number)), Some(0));
            assert_eq!(peers.add(peer(number), 0, number, 100 + u32::from(number)), None);
        }
        peers
    }

    fn to_qp(number: u16, qpn: u32) -> Option<Route<u16>> {
        Some(Route::Qp { place: 0, ah: number, qpn })
    }

    /// The way to an address that is awaited or in doubt: only the owner of the address gets the
    /// datagram.
    const OVER_UDP: Option<Route<u16>> = Some(Route::Udp { place: 0 });

    #[test]
    fn an_address_is_known_when_the_program_sends_and_a_peer_when_it_answers() {
        let mut peers = Peers::new(2, 3);
        peers.hear(peer(1), 101, true);
        assert_eq!((peers.awaits(peer(1)), peers.route(peer(1))), (None, None));
        peers.await_answer(peer(1), 0);
        assert_eq!(peers.route(peer(1)), OVER_UDP);
        peers.add(peer(1), 0, 1, 101);
        assert_eq!((peers.awaits(peer(1)), peers.route(peer(1))), (None, to_qp(1, 101)));
    }

    #[test]
    fn a_forged_message_does_not_replace_a_queue_pair() {
        for is_answer in [false, true] {
            let mut peers = with_answers([1]);
            for _ in 0..2 {
                peers.hear(peer(1), 666, is_answer);
                assert_eq!(peers.route(peer(1)), OVER_UDP);
            }
            peers.hear(peer(1), 101, true);
            assert_eq!(peers.route(peer(1)), to_qp(1, 101));
        }
    }

    #[test]
    fn a_restarted_peer_is_believed_when_its_datagram_arrives_at_the_queue_pair() {
        let mut peers = with_answers([1]);
        assert!(!peers.has_doubt(peer(1), 101));
        peers.hear(peer(1), 201, false);
        assert!(peers.has_doubt(peer(1), 201) && peers.has_doubt(peer(1), 101));
        peers.believe(peer(1), 201);
        assert_eq!(peers.route(peer(1)), to_qp(1, 201));
        // An unknown peer gets no entry by a datagram.
        peers.believe(peer(2), 202);
        assert!(!peers.has_doubt(peer(2), 202));
        assert_eq!(peers.route(peer(2)), None);
    }

    #[test]
    fn the_peer_that_was_used_the_least_recently_is_dropped() {
        let mut peers = with_answers([1, 2, 3]);
        assert_eq!(peers.route(peer(1)), to_qp(1, 101));
        peers.await_answer(peer(4), 0);
        assert_eq!(peers.add(peer(4), 0, 4, 104), Some((0, 2)), "its address handle is returned");
        assert_eq!(peers.route(peer(2)), None);
        for number in [1, 3, 4] {
            assert_eq!(peers.route(peer(number)), to_qp(number, 100 + u32::from(number)));
        }
        let mut left: Vec<_> = peers.clear().collect();
        left.sort_unstable();
        assert_eq!(left, [(0, 1), (0, 3), (0, 4)]);
    }

    #[test]
    fn addresses_that_never_answer_do_not_drop_peers_that_did() {
        let mut peers = with_answers([1, 2, 3]);
        for number in 10..1000 {
            peers.await_answer(peer(number), 0);
        }
        assert_eq!((10..1000).filter(|number| peers.awaits(peer(*number)).is_some()).count(), 2);
        for number in [1, 2, 3] {
            assert_eq!(peers.route(peer(number)), to_qp(number, 100 + u32::from(number)));
        }
    }
}

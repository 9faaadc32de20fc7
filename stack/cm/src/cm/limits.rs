//! Limits on the entries that unknown peers can create.
//!
//! An entry that waits for a peer occupies memory until the peer answers or a timer ends it. A
//! forged source address never answers. So each table of such entries has a limit. When a table is
//! full, the address with the most entries loses its oldest entry. An attacker with one address
//! thus evicts its own entries. An attacker with many addresses evicts the oldest ones, which an
//! honest peer has confirmed long before.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use urxe_wire::Gid;

/// The place of an entry in its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Age(u64);

/// The number of entries of a peer, the age of its oldest entry, and its address. The last one in
/// the order has the most entries, and of several such peers the oldest entry.
type Rank = (usize, Reverse<Age>, Gid);

/// Entries of peers, by age. Each operation takes logarithmic time. `T` names an entry.
#[derive(Debug)]
pub(crate) struct PeerEntries<T = usize> {
    peers: BTreeMap<Gid, BTreeMap<Age, T>>,
    ranks: BTreeSet<Rank>,
    count: usize,
    next_age: u64,
}

impl<T> Default for PeerEntries<T> {
    fn default() -> Self {
        Self { peers: BTreeMap::new(), ranks: BTreeSet::new(), count: 0, next_age: 0 }
    }
}

impl<T: Copy> PeerEntries<T> {
    /// Returns the number of entries.
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Returns the number of entries of a peer.
    pub fn len_of(&self, peer: Gid) -> usize {
        self.peers.get(&peer).map_or(0, BTreeMap::len)
    }

    /// Returns the number of entries of the peer with the most entries.
    pub fn most(&self) -> usize {
        self.ranks.last().map_or(0, |(entries, ..)| *entries)
    }

    /// Adds an entry.
    pub fn insert(&mut self, peer: Gid, entry: T) -> Age {
        let age = Age(self.next_age);
        self.next_age += 1;
        self.count += 1;
        self.change(peer, |entries| entries.insert(age, entry));
        age
    }

    /// Removes an entry.
    pub fn remove(&mut self, peer: Gid, age: Age) {
        if self.change(peer, |entries| entries.remove(&age)).is_some() {
            self.count -= 1;
        }
    }

    /// Returns the oldest entry of the peer with the most entries.
    pub fn victim(&self) -> Option<T> {
        let (_, Reverse(oldest), peer) = self.ranks.last()?;
        self.peers.get(peer)?.get(oldest).copied()
    }

    /// Changes the entries of a peer, and its rank.
    fn change<R>(&mut self, peer: Gid, change: impl FnOnce(&mut BTreeMap<Age, T>) -> R) -> R {
        let entries = self.peers.entry(peer).or_default();
        if let Some(rank) = rank(peer, entries) {
            self.ranks.remove(&rank);
        }
        let result = change(entries);
        match rank(peer, entries) {
            Some(rank) => {
                self.ranks.insert(rank);
            }
            None => {
                self.peers.remove(&peer);
            }
        }
        result
    }
}

/// Returns the rank of a peer that has entries.
fn rank<T>(peer: Gid, entries: &BTreeMap<Age, T>) -> Option<Rank> {
    let (oldest, _) = entries.first_key_value()?;
    Some((entries.len(), Reverse(*oldest), peer))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn peer(n: u8) -> Gid {
        Gid::from_ip(Ipv4Addr::new(10, 0, 0, n).into())
    }

    #[test]
    fn the_peer_with_the_most_entries_loses_its_oldest() {
        let mut entries = PeerEntries::default();
        assert_eq!((entries.victim(), entries.most()), (None, 0));
        let first = entries.insert(peer(1), 10);
        let second = entries.insert(peer(2), 20);
        assert_eq!(entries.victim(), Some(10), "of two peers with one entry, the older");
        let third = entries.insert(peer(2), 21);
        assert_eq!(entries.victim(), Some(20));
        assert_eq!((entries.most(), entries.len_of(peer(1)), entries.len_of(peer(3))), (2, 1, 0));
        entries.remove(peer(2), second);
        assert_eq!(entries.victim(), Some(10));
        entries.remove(peer(1), first);
        entries.remove(peer(1), first);
        assert_eq!((entries.victim(), entries.len()), (Some(21), 1));
        entries.remove(peer(2), third);
        assert_eq!((entries.victim(), entries.len()), (None, 0));
        assert!(entries.peers.is_empty() && entries.ranks.is_empty());
    }
}

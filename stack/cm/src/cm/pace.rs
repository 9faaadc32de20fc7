//! How fast questions go to one address.
//!
//! The peer's queue pair 1 has so many places (the kernel's 512 receives, a socket's buffer), and a
//! message that finds none is asked again only seconds later. So of many questions that a program
//! asks at once only some are under way to one address. The others follow as answers come; if none
//! comes for a while, the peer's program takes its time, or is gone, and the next ones go without.
//!
//! A default socket buffer (208 KiB) has room for 166 messages, since the kernel charges 1280 bytes
//! for each. An answer may bring two to the peer, what acknowledges it and the next question, so a
//! peer that answered all at once gets twice what is under way.
//!
//! Questions that were under way by then no longer count: they belong to an earlier *round*.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use urxe_wire::Gid;
use urxe_wire::mad::CommId;

use urxe_types::time::Time;

/// Questions under way to one address.
const WINDOW: usize = 64;
/// Without an answer for so long, as many more go. Not sooner than threads that share one slow
/// processor have all had their turn: what goes too early overflows a peer that is about to answer.
const STALL_NS: u64 = 100_000_000;

/// A question's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It has not been sent yet.
    Waits,
    /// It is under way in a round.
    Under(u64),
    /// It was sent, and does not count.
    Free,
}

/// The questions to one address.
#[derive(Debug)]
struct Pace {
    round: u64,
    under_way: usize,
    waiting: VecDeque<CommId>,
    answered_at: Time,
}

/// The questions to all addresses.
#[derive(Debug, Default)]
pub(super) struct Paces {
    by_peer: BTreeMap<Gid, Pace>,
    /// When to look whether answers have come, of addresses that questions wait for.
    looks: BTreeSet<(Time, Gid)>,
    rounds: u64,
}

impl Paces {
    fn next_round(&mut self) -> u64 {
        self.rounds += 1;
        self.rounds
    }

    /// The turn of a new question, which waits if it may not go now.
    pub fn ask(&mut self, now: Time, peer: Gid, id: CommId) -> Turn {
        let round = self.next_round();
        let new = || Pace { round, under_way: 0, waiting: VecDeque::new(), answered_at: now };
        let pace = self.by_peer.entry(peer).or_insert_with(new);
        if pace.under_way >= WINDOW
            && pace.waiting.is_empty()
            && now >= pace.answered_at.plus_ns(STALL_NS)
        {
            (pace.round, pace.under_way) = (round, 0);
        }
        if pace.under_way < WINDOW && pace.waiting.is_empty() {
            pace.under_way += 1;
            return Turn::Under(pace.round);
        }
        if pace.waiting.is_empty() {
            self.looks.insert((pace.answered_at.plus_ns(STALL_NS), peer));
        }
        pace.waiting.push_back(id);
        Turn::Waits
    }

    /// A question that was under way is none any more.
    pub fn answered(&mut self, now: Time, peer: Gid, turn: Turn) {
        let Some(pace) = self.by_peer.get_mut(&peer) else { return };
        if turn == Turn::Under(pace.round) {
            pace.answered_at = now;
            pace.under_way -= 1;
            if pace.under_way == 0 && pace.waiting.is_empty() {
                self.by_peer.remove(&peer);
            }
        }
    }

    /// The next question that may go to an address, with its turn.
    pub fn next(&mut self, peer: Gid) -> Option<(CommId, Turn)> {
        let pace = self.by_peer.get_mut(&peer).filter(|pace| pace.under_way < WINDOW)?;
        let id = pace.waiting.pop_front()?;
        pace.under_way += 1;
        Some((id, Turn::Under(pace.round)))
    }

    /// When [`Paces::stalled`] is to be asked.
    pub fn next_look(&self) -> Option<Time> {
        self.looks.first().map(|(at, _)| *at)
    }

    /// An address that has not answered for a while, while questions wait: [`Paces::next`] has some
    /// now.
    pub fn stalled(&mut self, now: Time) -> Option<Gid> {
        while let Some((at, peer)) = self.looks.first().copied().filter(|(at, _)| *at <= now) {
            self.looks.remove(&(at, peer));
            let round = self.next_round();
            let Some(pace) = self.by_peer.get_mut(&peer).filter(|pace| !pace.waiting.is_empty())
            else {
                continue;
            };
            let is_stalled = now >= pace.answered_at.plus_ns(STALL_NS);
            if is_stalled {
                (pace.round, pace.under_way, pace.answered_at) = (round, 0, now);
            }
            self.looks.insert((pace.answered_at.plus_ns(STALL_NS), peer));
            if is_stalled {
                return Some(peer);
            }
        }
        None
    }

    /// Whether nothing waits for its turn.
    pub fn is_idle(&self) -> bool {
        self.by_peer.values().all(|pace| pace.waiting.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: Gid = Gid([7; 16]);

    fn asked(paces: &mut Paces, now: Time, count: u32) -> Vec<Turn> {
        (1..=count).map(|id| paces.ask(now, PEER, CommId(id))).collect()
    }

    fn released(paces: &mut Paces) -> usize {
        std::iter::from_fn(|| paces.next(PEER)).count()
    }

    #[test]
    fn a_window_goes_at_once_and_the_rest_as_answers_come() {
        let mut paces = Paces::default();
        let turns = asked(&mut paces, Time::ZERO, 300);
        let under_way: Vec<Turn> = turns.into_iter().filter(|turn| *turn != Turn::Waits).collect();
        assert_eq!(under_way.len(), WINDOW);
        assert_eq!(released(&mut paces), 0);
        under_way[..5].iter().for_each(|turn| paces.answered(Time::from_ns(1), PEER, *turn));
        assert_eq!(paces.next(PEER).map(|(id, _)| id), Some(CommId(WINDOW as u32 + 1)), "in order");
        assert_eq!(released(&mut paces), 4);
        let other = Gid([8; 16]);
        assert_ne!(paces.ask(Time::ZERO, other, CommId(1)), Turn::Waits, "another address is free");
    }

    #[test]
    fn a_peer_that_is_silent_gets_another_window_after_a_while() {
        let mut paces = Paces::default();
        let asked_at_once = 2 * WINDOW + 40;
        let first = asked(&mut paces, Time::ZERO, asked_at_once as u32)[0];
        // Answers put it off.
        let answered_at = Time::from_ns(STALL_NS / 2);
        paces.answered(answered_at, PEER, first);
        assert_eq!(released(&mut paces), 1);
        assert_eq!(paces.stalled(Time::from_ns(STALL_NS)), None);
        let at = paces.next_look().unwrap();
        assert_eq!((at, paces.stalled(at)), (answered_at.plus_ns(STALL_NS), Some(PEER)));
        assert_eq!(released(&mut paces), WINDOW);
        // Who was asked in the round before no longer counts.
        paces.answered(at, PEER, first);
        assert_eq!(released(&mut paces), 0);
        let at = paces.next_look().unwrap();
        assert_eq!(
            (paces.stalled(at), released(&mut paces)),
            (Some(PEER), asked_at_once - 2 * WINDOW - 1)
        );
        assert!(paces.is_idle());
        assert_eq!(paces.stalled(at.plus_ns(STALL_NS)), None);
        assert_eq!(paces.next_look(), None);
        // Long after, nobody waits for answers that may never come.
        let later = at.plus_ns(10 * STALL_NS);
        assert!(asked(&mut paces, later, WINDOW as u32).iter().all(|turn| *turn != Turn::Waits));
    }
}

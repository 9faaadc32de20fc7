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
pub(super) enum SendState {
    /// It has not been sent yet.
    Queued,
    /// It is under way in a round.
    InFlight(u64),
    /// It was sent, and does not count.
    Untracked,
}

/// The questions to one address.
#[derive(Debug)]
struct PeerWindow {
    epoch: u64,
    in_flight: usize,
    queued: VecDeque<CommId>,
    last_reply_at: Time,
}

/// The questions to all addresses.
#[derive(Debug, Default)]
pub(super) struct RequestWindows {
    by_peer: BTreeMap<Gid, PeerWindow>,
    /// When to look whether answers have come, of addresses that questions wait for.
    stall_checks: BTreeSet<(Time, Gid)>,
    epochs: u64,
}

impl RequestWindows {
    fn next_epoch(&mut self) -> u64 {
        self.epochs += 1;
        self.epochs
    }

    /// The turn of a new question, which waits if it may not go now.
    pub fn register(&mut self, now: Time, peer: Gid, id: CommId) -> SendState {
        let epoch = self.next_epoch();
        let new =
            || PeerWindow { epoch, in_flight: 0, queued: VecDeque::new(), last_reply_at: now };
        let window = self.by_peer.entry(peer).or_insert_with(new);
        if window.in_flight >= WINDOW
            && window.queued.is_empty()
            && now >= window.last_reply_at.plus_ns(STALL_NS)
        {
            (window.epoch, window.in_flight) = (epoch, 0);
        }
        if window.in_flight < WINDOW && window.queued.is_empty() {
            window.in_flight += 1;
            return SendState::InFlight(window.epoch);
        }
        if window.queued.is_empty() {
            self.stall_checks.insert((window.last_reply_at.plus_ns(STALL_NS), peer));
        }
        window.queued.push_back(id);
        SendState::Queued
    }

    /// A question that was under way is none any more.
    pub fn complete(&mut self, now: Time, peer: Gid, send_state: SendState) {
        let Some(window) = self.by_peer.get_mut(&peer) else { return };
        if send_state == SendState::InFlight(window.epoch) {
            window.last_reply_at = now;
            window.in_flight -= 1;
            if window.in_flight == 0 && window.queued.is_empty() {
                self.by_peer.remove(&peer);
            }
        }
    }

    /// The next question that may go to an address, with its turn.
    pub fn pop_ready(&mut self, peer: Gid) -> Option<(CommId, SendState)> {
        let window = self.by_peer.get_mut(&peer).filter(|window| window.in_flight < WINDOW)?;
        let id = window.queued.pop_front()?;
        window.in_flight += 1;
        Some((id, SendState::InFlight(window.epoch)))
    }

    /// When [`RequestWindows::stalled`] is to be asked.
    pub fn next_check(&self) -> Option<Time> {
        self.stall_checks.first().map(|(at, _)| *at)
    }

    /// An address that has not answered for a while, while questions wait: [`RequestWindows::next`] has some
    /// now.
    pub fn stalled_peer(&mut self, now: Time) -> Option<Gid> {
        while let Some((at, peer)) = self.stall_checks.first().copied().filter(|(at, _)| *at <= now)
        {
            self.stall_checks.remove(&(at, peer));
            let epoch = self.next_epoch();
            let Some(window) =
                self.by_peer.get_mut(&peer).filter(|window| !window.queued.is_empty())
            else {
                continue;
            };
            let is_stalled = now >= window.last_reply_at.plus_ns(STALL_NS);
            if is_stalled {
                (window.epoch, window.in_flight, window.last_reply_at) = (epoch, 0, now);
            }
            self.stall_checks.insert((window.last_reply_at.plus_ns(STALL_NS), peer));
            if is_stalled {
                return Some(peer);
            }
        }
        None
    }

    /// Whether nothing waits for its turn.
    pub fn is_idle(&self) -> bool {
        self.by_peer.values().all(|window| window.queued.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: Gid = Gid([7; 16]);

    fn register_many(
        request_windows: &mut RequestWindows,
        now: Time,
        count: u32,
    ) -> Vec<SendState> {
        (1..=count).map(|id| request_windows.register(now, PEER, CommId(id))).collect()
    }

    fn pop_all(request_windows: &mut RequestWindows) -> usize {
        std::iter::from_fn(|| request_windows.pop_ready(PEER)).count()
    }

    #[test]
    fn a_window_goes_at_once_and_the_rest_as_answers_come() {
        let mut request_windows = RequestWindows::default();
        let send_states = register_many(&mut request_windows, Time::ZERO, 300);
        let in_flight: Vec<SendState> =
            send_states.into_iter().filter(|send_state| *send_state != SendState::Queued).collect();
        assert_eq!(in_flight.len(), WINDOW);
        assert_eq!(pop_all(&mut request_windows), 0);
        in_flight[..5]
            .iter()
            .for_each(|send_state| request_windows.complete(Time::from_ns(1), PEER, *send_state));
        assert_eq!(
            request_windows.pop_ready(PEER).map(|(id, _)| id),
            Some(CommId(WINDOW as u32 + 1)),
            "in order"
        );
        assert_eq!(pop_all(&mut request_windows), 4);
        let other = Gid([8; 16]);
        assert_ne!(
            request_windows.register(Time::ZERO, other, CommId(1)),
            SendState::Queued,
            "another address is free"
        );
    }

    #[test]
    fn a_peer_that_is_silent_gets_another_window_after_a_while() {
        let mut request_windows = RequestWindows::default();
        let at_once = 2 * WINDOW + 40;
        let first = register_many(&mut request_windows, Time::ZERO, at_once as u32)[0];
        // Answers put it off.
        let last_reply_at = Time::from_ns(STALL_NS / 2);
        request_windows.complete(last_reply_at, PEER, first);
        assert_eq!(pop_all(&mut request_windows), 1);
        assert_eq!(request_windows.stalled_peer(Time::from_ns(STALL_NS)), None);
        let at = request_windows.next_check().unwrap();
        assert_eq!(
            (at, request_windows.stalled_peer(at)),
            (last_reply_at.plus_ns(STALL_NS), Some(PEER))
        );
        assert_eq!(pop_all(&mut request_windows), WINDOW);
        // Who was asked in the round before no longer counts.
        request_windows.complete(at, PEER, first);
        assert_eq!(pop_all(&mut request_windows), 0);
        let at = request_windows.next_check().unwrap();
        assert_eq!(
            (request_windows.stalled_peer(at), pop_all(&mut request_windows)),
            (Some(PEER), at_once - 2 * WINDOW - 1)
        );
        assert!(request_windows.is_idle());
        assert_eq!(request_windows.stalled_peer(at.plus_ns(STALL_NS)), None);
        assert_eq!(request_windows.next_check(), None);
        // Long after, nobody waits for answers that may never come.
        let later = at.plus_ns(10 * STALL_NS);
        assert!(
            register_many(&mut request_windows, later, WINDOW as u32)
                .iter()
                .all(|send_state| *send_state != SendState::Queued)
        );
    }
}

//! Limits the number of requests (REQ and SIDR_REQ) in flight to one address.
//!
//! The peer's queue pair 1 has limited space: the kernel has 512 receives, and other peers a socket
//! buffer. A request that does not fit is lost and retransmitted only seconds later. If a program
//! sends many requests at once, only a window of them is in flight to one address. The others are
//! queued and sent as replies arrive. If no reply arrives for a while, the peer's program is slow
//! or has ended, and another window is sent.
//!
//! A default socket buffer (208 KiB) holds 166 MADs, because the kernel charges 1280 bytes for
//! each. A reply can cause two MADs to the peer, the confirmation and the next request. A peer that
//! replies to all requests at once therefore receives up to two windows.
//!
//! Each new window starts a new *epoch*. Requests of an earlier epoch no longer count as in flight.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use urxe_wire::Gid;
use urxe_wire::mad::CommId;

use urxe_types::time::Time;

/// The number of requests in flight to one address.
const WINDOW: usize = 64;
/// The time without a reply after which another window is sent, in nanoseconds.
///
/// The time is long enough for all threads on one slow processor to run. A request that is sent too
/// early would overflow a peer that is about to reply.
const STALL_NS: u64 = 100_000_000;

/// The state of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendState {
    /// The request waits for the window.
    Queued,
    /// The request is in flight, in this epoch.
    InFlight(u64),
    /// The request was sent, and does not count towards the window.
    Untracked,
}

/// The window of one address.
#[derive(Debug)]
struct PeerWindow {
    epoch: u64,
    in_flight: usize,
    queued: VecDeque<CommId>,
    /// The time of the last reply, or of the begin of the epoch.
    last_reply_at: Time,
}

/// The windows of all addresses.
#[derive(Debug, Default)]
pub(super) struct RequestWindows {
    by_peer: BTreeMap<Gid, PeerWindow>,
    /// Times at which addresses with queued requests must be checked for replies.
    stall_checks: BTreeSet<(Time, Gid)>,
    epochs: u64,
}

impl RequestWindows {
    fn next_epoch(&mut self) -> u64 {
        self.epochs += 1;
        self.epochs
    }

    /// Registers a new request. Returns whether it may be sent or is queued.
    pub fn register(&mut self, now: Time, peer: Gid, id: CommId) -> SendState {
        let epoch = self.next_epoch();
        let new =
            || PeerWindow { epoch, in_flight: 0, queued: VecDeque::new(), last_reply_at: now };
        let window = self.by_peer.entry(peer).or_insert_with(new);
        if window.queued.is_empty() && now >= window.last_reply_at.plus_ns(STALL_NS) {
            (window.epoch, window.in_flight, window.last_reply_at) = (epoch, 0, now);
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

    /// Removes a request from its window.
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

    /// Returns the next queued request for which the window has space.
    pub fn pop_ready(&mut self, peer: Gid) -> Option<(CommId, SendState)> {
        let window = self.by_peer.get_mut(&peer).filter(|window| window.in_flight < WINDOW)?;
        let id = window.queued.pop_front()?;
        window.in_flight += 1;
        Some((id, SendState::InFlight(window.epoch)))
    }

    /// Returns the time at which [`RequestWindows::stalled_peer`] must be called.
    pub fn next_check(&self) -> Option<Time> {
        self.stall_checks.first().map(|(at, _)| *at)
    }

    /// Returns an address with queued requests that sent no reply for a while.
    /// [`RequestWindows::pop_ready`] then returns another window of requests.
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

    /// Returns the number of queued requests.
    pub fn queued(&self) -> usize {
        self.by_peer.values().map(|window| window.queued.len()).sum()
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
    fn one_window_is_sent_at_once_and_the_rest_after_replies() {
        let mut request_windows = RequestWindows::default();
        let send_states = register_many(&mut request_windows, Time::ZERO, 300);
        let in_flight: Vec<SendState> =
            send_states.into_iter().filter(|send_state| *send_state != SendState::Queued).collect();
        assert_eq!((in_flight.len(), request_windows.queued()), (WINDOW, 300 - WINDOW));
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
    fn a_peer_without_replies_receives_another_window_after_a_while() {
        let mut request_windows = RequestWindows::default();
        let at_once = 2 * WINDOW + 40;
        let first = register_many(&mut request_windows, Time::ZERO, at_once as u32)[0];
        // Replies postpone the check.
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
        // A request of the earlier epoch does not count.
        request_windows.complete(at, PEER, first);
        assert_eq!(pop_all(&mut request_windows), 0);
        let at = request_windows.next_check().unwrap();
        assert_eq!(
            (request_windows.stalled_peer(at), pop_all(&mut request_windows)),
            (Some(PEER), at_once - 2 * WINDOW - 1)
        );
        assert_eq!(request_windows.queued(), 0);
        assert_eq!(request_windows.stalled_peer(at.plus_ns(STALL_NS)), None);
        assert_eq!(request_windows.next_check(), None);
        // After a long time, requests without a reply do not limit new requests.
        let later = at.plus_ns(10 * STALL_NS);
        assert!(
            register_many(&mut request_windows, later, WINDOW as u32)
                .iter()
                .all(|send_state| *send_state != SendState::Queued)
        );
    }

    #[test]
    fn a_peer_without_replies_receives_no_more_than_a_window_at_once() {
        let sent = |states: &[SendState]| {
            states.iter().filter(|state| **state != SendState::Queued).count()
        };
        for before in [10, WINDOW] {
            let mut request_windows = RequestWindows::default();
            let first = register_many(&mut request_windows, Time::ZERO, before as u32);
            assert_eq!(sent(&first), before);
            let later = Time::from_ns(STALL_NS);
            let next = register_many(&mut request_windows, later, 3 * WINDOW as u32);
            assert_eq!(sent(&next), WINDOW, "after {before}");
            // A reply to one of the first requests makes no space.
            request_windows.complete(later, PEER, first[0]);
            assert_eq!(pop_all(&mut request_windows), 0);
            request_windows.complete(later, PEER, next[0]);
            assert_eq!(pop_all(&mut request_windows), 1);
        }
    }

    #[test]
    fn a_reply_makes_space_for_one_request() {
        let mut request_windows = RequestWindows::default();
        let full = register_many(&mut request_windows, Time::ZERO, WINDOW as u32);
        request_windows.complete(Time::ZERO, PEER, full[0]);
        let next = register_many(&mut request_windows, Time::ZERO, 2);
        assert!(next[0] != SendState::Queued && next[1] == SendState::Queued, "{next:?}");
    }
}

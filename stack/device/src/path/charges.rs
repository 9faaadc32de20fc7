//! What one thread owes a path's window while it handles many packets: the window is an atomic that
//! all threads share, so it is told once a run where it could be told once a queue pair.
//!
//! What is sent is never charged too late, since its acknowledgement may come at once and be
//! released by another thread: who sends for many queue pairs charges a run in advance, and gives
//! back what was not used. What is released may come late: then others wait for a moment.

use super::window::{RUN, Window};
use urxe_types::time::Time;

/// See the module. Give back everything by [`settle`](Self::settle) in the end.
#[derive(Debug, Default)]
pub(crate) struct Charges {
    /// Bytes of bursts that were begun and are still to be sent, by any queue pair of the path.
    reserved: u64,
    /// Of these, what a queue pair's turn has sent so far.
    sent: u64,
    /// Charged in advance and not sent yet.
    advance: u64,
    /// Acknowledged, and still charged.
    released: u64,
}

impl Charges {
    /// Whether the window has room for `bytes` beside what is reserved.
    #[inline]
    pub fn admit(&self, window: &Window, bytes: u64) -> bool {
        let in_flight = window.in_flight().saturating_sub(self.advance);
        // What is reserved is as good as in flight.
        (in_flight | self.reserved | self.sent) == 0
            || window.has_room(in_flight + self.reserved + bytes)
    }

    /// A burst of `bytes` begins, or grows by them.
    #[inline]
    pub fn reserve(&mut self, bytes: u64) {
        self.reserved += bytes;
    }

    /// A packet was sent that is charged `bytes`.
    #[inline]
    pub fn send(&mut self, bytes: u64) {
        self.sent += bytes;
    }

    /// A queue pair's turn is over: what it sent is charged, and if `more_pending` something for
    /// them as well.
    #[inline]
    pub fn end_turn(&mut self, window: &Window, more_pending: bool) {
        let sent = std::mem::take(&mut self.sent);
        if sent == 0 {
            return;
        }
        self.reserved = self.reserved.saturating_sub(sent);
        if let Some(left) = self.advance.checked_sub(sent) {
            self.advance = left;
        } else {
            let advance = if more_pending { RUN } else { 0 };
            window.charge(sent - self.advance + advance);
            self.advance = advance;
        }
    }

    /// `bytes` were acknowledged.
    #[inline]
    pub fn release(&mut self, bytes: u64) {
        self.released += bytes;
    }

    /// Tells the window all that it was not told, at the time `now`. Bursts that were begun stay
    /// reserved.
    #[inline]
    pub fn settle(&mut self, window: &Window, now: Time) {
        match std::mem::take(&mut self.advance) {
            0 => {}
            unused => window.release(unused),
        }
        match std::mem::take(&mut self.released) {
            0 => {}
            bytes => {
                window.release(bytes);
                window.on_acknowledged(bytes, now);
            }
        }
    }
}

#[cfg(debug_assertions)]
impl Drop for Charges {
    fn drop(&mut self) {
        let is_settled = (self.sent | self.advance | self.released) == 0;
        assert!(is_settled || std::thread::panicking(), "the window was not told of {self:?}");
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use super::*;

    fn window() -> Window {
        Window::new(1 << 20, Duration::from_millis(40))
    }

    #[test]
    fn what_is_sent_in_turns_is_in_flight_before_its_turn_ends_and_nothing_else_in_the_end() {
        let window = window();
        let mut charges = Charges::default();
        for turn in 1..=200 {
            assert!(charges.admit(&window, 100));
            charges.reserve(100);
            charges.send(100);
            charges.end_turn(&window, turn < 200);
            assert!(window.in_flight() >= 100 * turn && window.in_flight() <= 100 * turn + RUN);
        }
        charges.settle(&window, Time::ZERO);
        assert_eq!(window.in_flight(), 200 * 100);
        charges.release(200 * 100);
        charges.settle(&window, Time::ZERO);
        assert_eq!(window.in_flight(), 0);
    }

    #[test]
    fn what_is_charged_in_advance_takes_no_room_from_those_it_is_for() {
        let window = window();
        let mut charges = Charges::default();
        let mut sent = 0;
        while charges.admit(&window, 1000) {
            charges.reserve(1000);
            charges.send(1000);
            charges.end_turn(&window, true);
            sent += 1000;
        }
        // The window starts with two runs.
        assert_eq!(sent, 2 * RUN / 1000 * 1000);
        charges.settle(&window, Time::ZERO);
        assert_eq!(window.in_flight(), sent);
    }

    #[test]
    fn a_burst_longer_than_the_window_goes_alone() {
        let window = window();
        let mut charges = Charges::default();
        assert!(charges.admit(&window, 1 << 30), "nothing is in flight");
        charges.reserve(1 << 30);
        assert!(!charges.admit(&window, 1));
        charges.send(1 << 30);
        assert!(!charges.admit(&window, 1));
        charges.end_turn(&window, true);
        assert!(!charges.admit(&window, 1));
        charges.settle(&window, Time::ZERO);
        assert_eq!(window.in_flight(), 1 << 30);
    }
}

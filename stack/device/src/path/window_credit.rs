//! What one thread owes a path's window while it handles many packets: the window is an atomic that
//! all threads share, so it is told once a run where it could be told once a queue pair.
//!
//! What is sent is never charged too late, since its acknowledgement may come at once and be
//! released by another thread: who sends for many queue pairs credit a run in advance, and gives
//! back what was not used. What is released may come late: then others wait for a moment.

use super::window::{RUN, Window};
use urxe_types::time::Time;

/// See the module. Give back everything by [`commit`](Self::commit) in the end.
#[derive(Debug, Default)]
pub(crate) struct WindowCredit {
    /// Bytes of bursts that were begun and are still to be sent, by any queue pair of the path.
    reserved: u64,
    /// Of these, what a queue pair's turn has sent so far.
    consumed: u64,
    /// Charged in advance and not sent yet.
    prepaid: u64,
    /// Acknowledged, and still charged.
    returned: u64,
}

impl WindowCredit {
    /// Whether the window has room for `bytes` beside what is reserved.
    #[inline]
    pub fn has_room(&self, window: &Window, bytes: u64) -> bool {
        let in_flight = window.in_flight().saturating_sub(self.prepaid);
        // What is reserved is as good as in flight.
        (in_flight | self.reserved | self.consumed) == 0
            || window.has_room(in_flight + self.reserved + bytes)
    }

    /// A burst of `bytes` begins, or grows by them.
    #[inline]
    pub fn reserve(&mut self, bytes: u64) {
        self.reserved += bytes;
    }

    /// A packet was sent that is charged `bytes`.
    #[inline]
    pub fn consume(&mut self, bytes: u64) {
        self.consumed += bytes;
    }

    /// A queue pair's turn is over: what it sent is charged, and if `more_pending` something for
    /// them as well.
    #[inline]
    pub fn commit_turn(&mut self, window: &Window, more_pending: bool) {
        let sent = std::mem::take(&mut self.consumed);
        if sent == 0 {
            return;
        }
        self.reserved = self.reserved.saturating_sub(sent);
        if let Some(left) = self.prepaid.checked_sub(sent) {
            self.prepaid = left;
        } else {
            let prepaid = if more_pending { RUN } else { 0 };
            window.consume(sent - self.prepaid + prepaid);
            self.prepaid = prepaid;
        }
    }

    /// `bytes` were acknowledged.
    #[inline]
    pub fn return_credit(&mut self, bytes: u64) {
        self.returned += bytes;
    }

    /// Tells the window all that it was not told, at the time `now`. Bursts that were begun stay
    /// reserved.
    #[inline]
    pub fn commit(&mut self, window: &Window, now: Time) {
        match std::mem::take(&mut self.prepaid) {
            0 => {}
            unused => window.return_credit(unused),
        }
        match std::mem::take(&mut self.returned) {
            0 => {}
            bytes => {
                window.return_credit(bytes);
                window.on_acknowledged(bytes, now);
            }
        }
    }
}

#[cfg(debug_assertions)]
impl Drop for WindowCredit {
    fn drop(&mut self) {
        let is_committed = (self.consumed | self.prepaid | self.returned) == 0;
        assert!(is_committed || std::thread::panicking(), "the window was not told of {self:?}");
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
        let mut credit = WindowCredit::default();
        for turn in 1..=200 {
            assert!(credit.has_room(&window, 100));
            credit.reserve(100);
            credit.consume(100);
            credit.commit_turn(&window, turn < 200);
            assert!(window.in_flight() >= 100 * turn && window.in_flight() <= 100 * turn + RUN);
        }
        credit.commit(&window, Time::ZERO);
        assert_eq!(window.in_flight(), 200 * 100);
        credit.return_credit(200 * 100);
        credit.commit(&window, Time::ZERO);
        assert_eq!(window.in_flight(), 0);
    }

    #[test]
    fn what_is_charged_in_advance_takes_no_room_from_those_it_is_for() {
        let window = window();
        let mut credit = WindowCredit::default();
        let mut sent = 0;
        while credit.has_room(&window, 1000) {
            credit.reserve(1000);
            credit.consume(1000);
            credit.commit_turn(&window, true);
            sent += 1000;
        }
        // The window starts with two runs.
        assert_eq!(sent, 2 * RUN / 1000 * 1000);
        credit.commit(&window, Time::ZERO);
        assert_eq!(window.in_flight(), sent);
    }

    #[test]
    fn a_burst_longer_than_the_window_goes_alone() {
        let window = window();
        let mut credit = WindowCredit::default();
        assert!(credit.has_room(&window, 1 << 30), "nothing is in flight");
        credit.reserve(1 << 30);
        assert!(!credit.has_room(&window, 1));
        credit.consume(1 << 30);
        assert!(!credit.has_room(&window, 1));
        credit.commit_turn(&window, true);
        assert!(!credit.has_room(&window, 1));
        credit.commit(&window, Time::ZERO);
        assert_eq!(window.in_flight(), 1 << 30);
    }
}

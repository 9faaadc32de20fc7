//! A thread's part of the credit of a path's congestion window.
//!
//! The window is an atomic that all threads share. A thread that handles many packets therefore
//! collects its changes here and commits them once a run.
//!
//! Data must be charged before they are sent, because another thread may receive the
//! acknowledgement at once and return the credit. So a thread that sends for many queue pairs
//! consumes credit for a run in advance and returns the rest. Returned credit may reach the window
//! late: then other queue pairs wait for a moment.

use super::window::{RUN, Window};
use urxe_types::time::Time;

/// The changes that the window does not know yet. [`commit`](Self::commit) must be called in the
/// end.
#[derive(Debug, Default)]
pub(crate) struct WindowCredit {
    /// Bytes of bursts that were begun and are not sent yet, by any queue pair of the path.
    reserved: u64,
    /// Of the reserved bytes, those that the present turn has sent.
    consumed: u64,
    /// Bytes that the window was charged in advance and that are not sent yet.
    prepaid: u64,
    /// Bytes that were acknowledged and that the window is still charged.
    returned: u64,
}

impl WindowCredit {
    /// Returns whether the window has room for `bytes` beside the reserved ones. A window with
    /// nothing in flight always has.
    #[inline]
    pub fn has_room(&self, window: &Window, bytes: u64) -> bool {
        let in_flight = window.in_flight().saturating_sub(self.prepaid);
        // Reserved bytes count as in flight.
        (in_flight | self.reserved | self.consumed) == 0
            || window.has_room(in_flight + self.reserved + bytes)
    }

    /// Reserves `bytes` for a burst that begins or grows.
    #[inline]
    pub fn reserve(&mut self, bytes: u64) {
        self.reserved += bytes;
    }

    /// Charges a packet of `bytes` that was sent.
    #[inline]
    pub fn consume(&mut self, bytes: u64) {
        self.consumed += bytes;
    }

    /// Charges the window with the bytes that a turn sent. If `more_pending`, charges a run in
    /// advance.
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

    /// Returns the credit of `bytes` that were acknowledged.
    #[inline]
    pub fn return_credit(&mut self, bytes: u64) {
        self.returned += bytes;
    }

    /// Commits all changes to the window at the time `now`. Bursts that were begun stay reserved.
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
        assert!(is_committed || std::thread::panicking(), "not committed to the window: {self:?}");
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
    fn bytes_sent_in_turns_are_in_flight_when_the_turn_ends_and_exact_after_the_commit() {
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
    fn bytes_charged_in_advance_take_no_room_from_later_turns() {
        let window = window();
        let mut credit = WindowCredit::default();
        let mut sent = 0;
        while credit.has_room(&window, 1000) {
            credit.reserve(1000);
            credit.consume(1000);
            credit.commit_turn(&window, true);
            sent += 1000;
        }
        // The initial window is two runs.
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

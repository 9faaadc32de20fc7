//! Whether management datagrams come in crowds, as they do where connections are made by the
//! hundred.
//!
//! On a processor that several threads share, each datagram would wake the background thread, which
//! would take the processor from the thread that sends the next one: each goes its way alone, at a
//! cost of several switches. A thread that is patient finds many at once. Data must not wait for
//! that, so the thread is patient only while datagrams of connections come, and nothing else does.

use crate::sys::thread;
use crate::time::Time;

/// So many within a window make a crowd.
const CROWD: usize = 8;
const WINDOW_NS: u64 = 20_000_000;

/// Of one background thread.
#[derive(Debug)]
pub(super) struct Crowd {
    since: Time,
    count: usize,
    is_patient: bool,
    /// The system lets threads be patient.
    is_possible: bool,
}

impl Crowd {
    pub fn new() -> Self {
        Self { since: Time::ZERO, count: 0, is_patient: false, is_possible: true }
    }

    /// The calling thread has received so many management datagrams, or something else.
    pub fn came(&mut self, now: Time, datagrams: usize) {
        let is_over = now.since_ns(self.since) >= WINDOW_NS;
        if datagrams == 0 {
            (self.since, self.count) = (now, 0);
            return self.set_patient(false);
        }
        if is_over {
            if self.count < CROWD {
                self.set_patient(false);
            }
            (self.since, self.count) = (now, 0);
        }
        self.count += datagrams;
        if self.count >= CROWD {
            self.set_patient(true);
        }
    }

    fn set_patient(&mut self, is_patient: bool) {
        if self.is_patient == is_patient || !self.is_possible {
            return;
        }
        match thread::set_patient(is_patient) {
            Ok(()) => self.is_patient = is_patient,
            Err(error) => {
                tracing::debug!(%error, "crowds of management datagrams cost more switches");
                self.is_possible = false;
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_makes_patient_and_data_or_quiet_impatient() {
        let at = |ms: u64| Time::from_ns(1_000_000_000 + ms * 1_000_000);
        let mut crowd = Crowd::new();
        (0..CROWD as u64 - 1).for_each(|ms| crowd.came(at(ms), 1));
        assert!(!crowd.is_patient, "few are no crowd");
        crowd.came(at(7), 1);
        if !crowd.is_possible {
            return eprintln!("skipped: the system lets no thread be patient");
        }
        assert!(crowd.is_patient);
        crowd.came(at(8), 0);
        assert!(!crowd.is_patient, "data must not wait");
        crowd.came(at(9), 64);
        assert!(crowd.is_patient);
        crowd.came(at(60), 1);
        crowd.came(at(100), 1);
        assert!(!crowd.is_patient, "single ones are no crowd");
    }
}

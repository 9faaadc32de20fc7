//! A thread that waits receives for itself and for all that wait, so that a packet costs one
//! wake-up and not two.
//!
//! ```text
//!   waits first   -> leads: sleeps on the sockets and on its own descriptor
//!   waits as well -> follows: sleeps on its own descriptor and on the baton
//!   leader goes   -> leaves the baton: a follower takes it and leads
//! ```
//! Coming to wait and going meet like this; whichever fence comes second, its side sees what the
//! other did before its own, so that followers never sleep without a leader or a baton. A loom
//! model tries all orders.
//!
//! ```text
//!   who follows               who leads
//!   1. counts itself          1. lets go
//!   2. fence                  2. fence
//!   3. is led? then sleeps    3. any followers? then leaves the baton
//! ```

use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::eventfd::EventFd;
use super::shared::Shared;
use crate::cq::Wake;
use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use crate::sync::{try_lock, yield_now};
use crate::sys::{clock, signals};
use crate::time::Time;

/// Batches that a leader receives in a row before it looks at the time.
const MAX_BATCHES: usize = 64;

/// Who leads, and how a follower learns that nobody does.
#[derive(Debug)]
pub(super) struct Lead<D> {
    is_led: AtomicBool,
    followers: AtomicU32,
    baton: D,
}

impl<D: Wake> Lead<D> {
    pub fn new(baton: D) -> Self {
        Self { is_led: AtomicBool::new(false), followers: AtomicU32::new(0), baton }
    }

    /// Whether some thread waits for packets.
    pub fn is_led(&self) -> bool {
        self.is_led.load(Ordering::Relaxed)
    }

    /// Takes the lead, unless another thread has it.
    fn begin(&self) -> bool {
        !self.is_led.swap(true, Ordering::Acquire)
    }

    /// Lets go of it.
    fn end(&self) {
        self.is_led.store(false, Ordering::Release);
        fence(Ordering::SeqCst);
        if self.followers.load(Ordering::Relaxed) > 0 {
            self.baton.wake();
        }
    }

    /// Sleeps in `sleep` as a follower, if there is a leader.
    fn follow<T>(&self, sleep: impl FnOnce() -> T) -> Option<T> {
        self.followers.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let slept = self.is_led.load(Ordering::Relaxed).then(sleep);
        self.followers.fetch_sub(1, Ordering::Relaxed);
        slept
    }
}

/// Why a waiting thread woke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Woken {
    /// What it waits for is there.
    Done,
    TooLate,
    /// It may lead now, or a signal came whose handler lets calls go on.
    Again,
}

/// Gives the lead back on every way out.
struct Leader<'a>(&'a Shared);

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        let Self(shared) = self;
        // As if it had polled: the background thread leaves the sockets alone for a tick, since
        // this one is likely to wait again.
        shared.polled_at_ns.store(clock::now().as_ns(), Ordering::Relaxed);
        shared.lead.end();
        // It does not tick while there is a leader.
        shared.alarm.wake();
    }
}

impl Shared {
    /// Sleeps until `is_done`, or `descriptor` is readable, or `deadline` has come, and receives
    /// meanwhile unless another waiting thread does. Whether it was before the deadline. `is_done`
    /// is asked after each batch that this thread received.
    ///
    /// # Errors
    /// [`Errno::INTR`] if a signal came whose handler interrupts calls; the system's if
    /// `descriptor` is none.
    pub fn wait(
        &self,
        descriptor: BorrowedFd<'_>,
        deadline: Time,
        is_done: &mut dyn FnMut() -> bool,
    ) -> Result<bool, Errno> {
        loop {
            let woken = if self.lead.begin() {
                let _leader = Leader(self);
                self.wait_leading(descriptor, deadline, is_done)?
            } else if is_done() {
                Woken::Done
            } else {
                self.transmit_urgent(clock::now());
                let sleep = || self.wait_following(descriptor, deadline);
                self.lead.follow(sleep).transpose()?.unwrap_or(Woken::Again)
            };
            match woken {
                Woken::Done => return Ok(true),
                Woken::TooLate => return Ok(is_done()),
                Woken::Again => {}
            }
        }
    }

    fn wait_leading(
        &self,
        descriptor: BorrowedFd<'_>,
        deadline: Time,
        is_done: &mut dyn FnMut() -> bool,
    ) -> Result<Woken, Errno> {
        let ports = self.ports.iter().map(AsFd::as_fd).chain([self.ports.groups.descriptor()]);
        let mut waits: Vec<PollFd<'_>> = [descriptor].into_iter().chain(ports).map(on).collect();
        loop {
            if is_done() {
                return Ok(Woken::Done);
            }
            // What no reply took along.
            self.transmit(clock::now());
            // What a simulated bad network holds comes without a socket's help.
            let held = self.ports.next_due().unwrap_or(Time::NEVER);
            match sleep(&mut waits, deadline.min(held))? {
                Woken::TooLate if held < deadline => {}
                Woken::Again => {}
                woken => return Ok(woken),
            }
            // An error in a socket's queue makes it readable without a packet.
            if waits[1..].iter().any(|wait| wait.revents().contains(PollFlags::ERR)) {
                self.ports.drain_errors();
            }
            for _ in 0..MAX_BATCHES {
                if self.receive_leading() == 0 || is_done() {
                    break;
                }
            }
        }
    }

    /// Receives a batch; how many datagrams it was.
    fn receive_leading(&self) -> usize {
        let received = match try_lock(&self.receiver) {
            Some(mut receiver) => self.ports.receive(&mut receiver, &self.device, true),
            None => {
                // Another thread polls, and is about to take what this one woke for.
                yield_now();
                0
            }
        };
        if received > 0 {
            self.serve_management();
            self.transmit_urgent(clock::now());
            self.call_hook();
        }
        received
    }

    fn wait_following(&self, descriptor: BorrowedFd<'_>, deadline: Time) -> Result<Woken, Errno> {
        let baton: &EventFd = &self.lead.baton;
        let mut waits = [on(descriptor), on(baton.as_fd())];
        let woken = sleep(&mut waits, deadline)?;
        if woken == Woken::Again && !waits[1].revents().is_empty() {
            baton.try_take()?;
        }
        Ok(woken)
    }
}

fn on(descriptor: BorrowedFd<'_>) -> PollFd<'_> {
    PollFd::from_borrowed_fd(descriptor, PollFlags::IN)
}

/// Sleeps until one of `waits` is readable; the first is what the thread waits for.
fn sleep(waits: &mut [PollFd<'_>], deadline: Time) -> Result<Woken, Errno> {
    let left_ns = (deadline != Time::NEVER).then(|| deadline.since_ns(clock::now()));
    match poll(waits, left_ns.map(clock::timespec).as_ref()) {
        Ok(0) => Ok(Woken::TooLate),
        Ok(_) if waits[0].revents().contains(PollFlags::NVAL) => Err(Errno::BADF),
        Ok(_) if !waits[0].revents().is_empty() => Ok(Woken::Done),
        Ok(_) => Ok(Woken::Again),
        Err(Errno::INTR) if signals::restart_calls() => Ok(Woken::Again),
        Err(errno) => Err(errno),
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::driver::alarm::loom_tests::Count;
    use crate::sync::Arc;

    /// A follower that sleeps while the leader goes finds the baton.
    #[test]
    fn loom_no_follower_sleeps_without_leader_or_baton() {
        loom::model(|| {
            let lead = Arc::new(Lead::new(Count(AtomicU32::new(0))));
            assert!(lead.begin());
            let leader = {
                let lead = Arc::clone(&lead);
                loom::thread::spawn(move || lead.end())
            };
            let baton = lead.follow(|| {
                leader.join().unwrap();
                lead.baton.0.load(Ordering::Relaxed)
            });
            match baton {
                Some(batons) => assert_eq!(batons, 1, "it sleeps, and nobody wakes it"),
                None => assert!(lead.begin(), "nobody leads, so it may"),
            }
        });
    }
}

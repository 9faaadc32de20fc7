//! How application threads wait for completions. One waiting thread receives for all of them, so a
//! packet costs one wake-up instead of two.
//!
//! | in | decided by | out |
//! |---|---|---|
//! | no thread leads | `LeaderElection` | leads: sleeps on its descriptor and the sockets |
//! | another thread leads | `LeaderElection` | follows: sleeps on its descriptor and the handoff |
//! | another thread receives | `receive_as_leader` | sleeps on its descriptor for 50 µs |
//! | `poll` returned | `sleep` | `WaitOutcome` |

use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::eventfd::EventFd;
use super::ports::ReceiveScope;
use super::rings::Incoming;
use super::shared::Shared;
use crate::cq::Wake;
use crate::sync::atomic::Ordering;
use crate::sync::try_lock;
use crate::sys::clock;
use crate::sys::poll::restart_calls;
use crate::time::Time;

/// Batches that a leader receives in a row before it checks the time.
const MAX_BATCHES: usize = 64;
/// Nanoseconds that a leader sleeps on its descriptor alone while another thread receives, because
/// the sockets stay readable meanwhile. A leader that yielded the processor instead would run again
/// milliseconds later on a busy one (EEVDF), although its completion is there.
const TAKEN_NS: u64 = 50_000;

/// Why a waiting thread woke up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitOutcome {
    /// Its descriptor is readable, or its condition holds.
    Done,
    /// Its deadline has passed.
    TooLate,
    /// It may lead now, or a signal arrived whose handler restarts calls.
    Again,
}

/// Gives up the lead when dropped.
struct Leader<'a>(&'a Shared);

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        let Self(shared) = self;
        // As after a poll: the background thread leaves the sockets alone for 1 ms, because this
        // thread is likely to wait again.
        shared.polled_at_ns.store(clock::now().as_ns(), Ordering::Relaxed);
        shared.expects_poll.store(true, Ordering::Relaxed);
        shared.leader.resign();
        // The background thread slept without that deadline while there was a leader.
        shared.waker.wake();
    }
}

impl Shared {
    /// Sleeps until `is_done` returns true, `descriptor` is readable, or `deadline` has passed.
    /// Receives meanwhile, unless another waiting thread does. Returns whether it ended before the
    /// deadline. `is_done` is called after each batch that this thread received.
    ///
    /// # Errors
    /// [`Errno::INTR`] if a signal arrived whose handler interrupts calls; [`Errno::BADF`] if
    /// `descriptor` is not open.
    pub fn wait(
        &self,
        descriptor: BorrowedFd<'_>,
        deadline: Time,
        is_done: &mut dyn FnMut() -> bool,
    ) -> Result<bool, Errno> {
        loop {
            let woken = if self.leader.try_lead() {
                let _leader = Leader(self);
                self.wait_as_leader(descriptor, deadline, is_done)?
            } else {
                self.wait_as_follower(descriptor, deadline, is_done)?
            };
            match woken {
                WaitOutcome::Done => return Ok(true),
                WaitOutcome::TooLate => return Ok(is_done()),
                WaitOutcome::Again => {}
            }
        }
    }

    fn wait_as_follower(
        &self,
        descriptor: BorrowedFd<'_>,
        deadline: Time,
        is_done: &mut dyn FnMut() -> bool,
    ) -> Result<WaitOutcome, Errno> {
        if is_done() {
            return Ok(WaitOutcome::Done);
        }
        self.transmit_urgent(clock::now());
        self.call_hook();
        // The hook does not signal the descriptor of the thread that calls it.
        if is_done() {
            return Ok(WaitOutcome::Done);
        }
        let sleep = || self.sleep_as_follower(descriptor, deadline);
        Ok(self.leader.wait_as_follower(sleep).transpose()?.unwrap_or(WaitOutcome::Again))
    }

    fn wait_as_leader(
        &self,
        descriptor: BorrowedFd<'_>,
        deadline: Time,
        is_done: &mut dyn FnMut() -> bool,
    ) -> Result<WaitOutcome, Errno> {
        let rings = self.ports.rings().map(|rings| &rings.incoming);
        let ports = self.ports.iter().map(AsFd::as_fd).chain([self.ports.groups.descriptor()]);
        let ports = ports.chain(rings.map(Incoming::wakes));
        let mut waits: Vec<PollFd<'_>> = [descriptor].into_iter().chain(ports).map(on).collect();
        loop {
            if is_done() {
                return Ok(WaitOutcome::Done);
            }
            // Sends the acknowledgements that waited for a reply.
            self.transmit(clock::now());
            // A device of this process may have replied meanwhile.
            self.call_hook();
            if is_done() {
                return Ok(WaitOutcome::Done);
            }
            // Packets that a simulated impairment delays become due without an event on a socket.
            let held = self.ports.next_due().unwrap_or(Time::NEVER);
            let has_records = rings.is_some_and(Incoming::fall_asleep);
            let until = if has_records { Time::ZERO } else { deadline.min(held) };
            let woken = sleep(&mut waits, until);
            if let Some(rings) = rings {
                rings.wake_up(waits[1..].iter().any(|wait| !wait.revents().is_empty()));
            }
            match woken? {
                WaitOutcome::TooLate if has_records || held < deadline => {}
                WaitOutcome::Again => {}
                woken => return Ok(woken),
            }
            // A queued error makes a socket readable without a packet.
            if waits[1..].iter().any(|wait| wait.revents().contains(PollFlags::ERR)) {
                self.ports.drain_errors();
            }
            for _ in 0..MAX_BATCHES {
                let Some(received) = self.receive_as_leader() else {
                    let until = deadline.min(clock::now().plus_ns(TAKEN_NS));
                    if sleep(&mut waits[..1], until)? == WaitOutcome::Done {
                        return Ok(WaitOutcome::Done);
                    }
                    break;
                };
                if received == 0 || is_done() {
                    break;
                }
            }
        }
    }

    /// Receives a batch. Returns the number of datagrams, or `None` if another thread receives.
    fn receive_as_leader(&self) -> Option<usize> {
        let mut receiver = try_lock(&self.receiver)?;
        let received = self.ports.receive(&mut receiver, &self.device, ReceiveScope::All);
        drop(receiver);
        if received > 0 {
            self.serve_management();
            self.transmit_urgent(clock::now());
            self.call_hook();
        }
        Some(received)
    }

    fn sleep_as_follower(
        &self,
        descriptor: BorrowedFd<'_>,
        deadline: Time,
    ) -> Result<WaitOutcome, Errno> {
        let handoff: &EventFd = self.leader.handoff();
        let mut waits = [on(descriptor), on(handoff.as_fd())];
        let woken = sleep(&mut waits, deadline)?;
        if woken == WaitOutcome::Again && !waits[1].revents().is_empty() {
            handoff.try_take()?;
        }
        Ok(woken)
    }
}

fn on(descriptor: BorrowedFd<'_>) -> PollFd<'_> {
    PollFd::from_borrowed_fd(descriptor, PollFlags::IN)
}

/// Sleeps until one of `waits` is readable. The first is the descriptor that the thread waits for.
fn sleep(waits: &mut [PollFd<'_>], deadline: Time) -> Result<WaitOutcome, Errno> {
    let left_ns = (deadline != Time::NEVER).then(|| deadline.since_ns(clock::now()));
    match poll(waits, left_ns.map(clock::timespec).as_ref()) {
        Ok(0) => Ok(WaitOutcome::TooLate),
        Ok(_) if waits[0].revents().contains(PollFlags::NVAL) => Err(Errno::BADF),
        Ok(_) if !waits[0].revents().is_empty() => Ok(WaitOutcome::Done),
        Ok(_) => Ok(WaitOutcome::Again),
        Err(Errno::INTR) if restart_calls() => Ok(WaitOutcome::Again),
        Err(errno) => Err(errno),
    }
}

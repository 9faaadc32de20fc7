//! Elects the waiting thread that receives for all others: the protocol between leader and
//! followers.
//!
//! ```text
//!   first waiting thread   leads: sleeps on the sockets and on its own descriptor
//!   other waiting threads  follow: sleep on their own descriptor and on the handoff
//!   a leader that leaves   signals the handoff: a follower takes it and leads
//! ```
//! A thread that starts to follow and a leader that leaves synchronise as follows. The side whose
//! fence comes second sees the store that the other side made before its fence. So no follower
//! sleeps without a leader or a handoff. A loom model tries all orders.
//!
//! ```text
//!   follower                        leader
//!   1. counts itself                1. gives up the lead
//!   2. fence                        2. fence
//!   3. if there is a leader: sleeps 3. if there are followers: signals the handoff
//! ```

use crate::cq::Wake;
use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};

/// Whether a thread leads, and how many threads follow. `D` wakes followers.
#[derive(Debug)]
pub(super) struct LeaderElection<D> {
    has_leader: AtomicBool,
    followers: AtomicU32,
    handoff: D,
}

impl<D: Wake> LeaderElection<D> {
    /// Starts without a leader. Followers sleep on `handoff`.
    pub fn new(handoff: D) -> Self {
        Self { has_leader: AtomicBool::new(false), followers: AtomicU32::new(0), handoff }
    }

    /// Returns the descriptor that wakes a follower when the leader leaves.
    pub fn handoff(&self) -> &D {
        &self.handoff
    }

    /// Returns whether a thread leads.
    pub fn has_leader(&self) -> bool {
        self.has_leader.load(Ordering::Relaxed)
    }

    /// Takes the lead, unless another thread has it. Returns whether it did.
    pub fn try_lead(&self) -> bool {
        !self.has_leader.swap(true, Ordering::Acquire)
    }

    /// Gives up the lead.
    pub fn resign(&self) {
        self.has_leader.store(false, Ordering::Release);
        fence(Ordering::SeqCst);
        if self.followers.load(Ordering::Relaxed) > 0 {
            self.handoff.wake();
        }
    }

    /// Calls `sleep` as a follower if there is a leader, and returns its result.
    pub fn wait_as_follower<T>(&self, sleep: impl FnOnce() -> T) -> Option<T> {
        self.followers.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let slept = self.has_leader.load(Ordering::Relaxed).then(sleep);
        self.followers.fetch_sub(1, Ordering::Relaxed);
        slept
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::driver::thread_waker::loom_tests::Count;
    use crate::sync::Arc;

    /// A follower that sleeps while the leader leaves finds the handoff.
    #[test]
    fn loom_no_follower_sleeps_without_leader_or_handoff() {
        loom::model(|| {
            let lead = Arc::new(LeaderElection::new(Count(AtomicU32::new(0))));
            assert!(lead.try_lead());
            let leader = {
                let lead = Arc::clone(&lead);
                loom::thread::spawn(move || lead.resign())
            };
            let handoff = lead.wait_as_follower(|| {
                leader.join().unwrap();
                lead.handoff.0.load(Ordering::Relaxed)
            });
            match handoff {
                Some(handoffs) => assert_eq!(handoffs, 1, "it sleeps, and nothing wakes it"),
                None => assert!(lead.try_lead(), "without a leader it may lead"),
            }
        });
    }
}

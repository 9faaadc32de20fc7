//! The limit of the rings that all processes of a user write.
//!
//! ```text
//!   a process with 9 to 16 rings ── has bound ──> urxe/4791/rings/UID/0, urxe/4791/rings/UID/5
//! ```
//! A *share* is the right to write [`RINGS_OF_SHARE`] rings, and an abstract name of the network
//! namespace (unix(7)). A process has a share while it has a socket with that name. The kernel
//! frees the name with the process, so no process counts for others, and none cleans up after
//! others. The limit is a quarter of the machine's memory, and at most the rings of 64 processes
//! that send to each other.
//!
//! Another user can bind names, too, and so leave fewer rings. The packets then use sockets.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::system::sysinfo;

use crate::rendezvous::Identity;
use crate::sys::fork::{CloseOnFork, close_on_fork};
use crate::sys::unix::{self, Name};
use urxe_types::time::Time;

/// The rings of a share.
pub const RINGS_OF_SHARE: u32 = 8;
/// The most rings of a device.
const RINGS_OF_DEVICE: u32 = 64;
/// The most shares: 64 processes with 63 rings each have eight each.
const MAX_SHARES: u32 = 512;
/// The part of the memory that rings may take.
const MEMORY_PART: u64 = 4;
/// Nanoseconds without another search after one that found no free name.
const PAUSE_NS: u64 = 1_000_000_000;

/// The rings that a device may write.
#[derive(Debug)]
pub struct Budget {
    prefix: String,
    limit: u32,
    /// The share that is tried first. Processes begin at different ones.
    first: u32,
    rings: u32,
    shares: Vec<CloseOnFork<OwnedFd>>,
    none_until: Time,
}

impl Budget {
    /// Starts without a ring, for rings of `capacity` bytes. Devices with different slots look for
    /// different shares first.
    #[must_use]
    pub fn new(capacity: u64, slot: u8) -> Self {
        let info = sysinfo();
        let memory = info.totalram.saturating_mul(info.mem_unit.max(1).into());
        let shares = memory / MEMORY_PART / (capacity * u64::from(RINGS_OF_SHARE)).max(1);
        let limit = shares.clamp(1, u64::from(MAX_SHARES)) as u32;
        let prefix = format!("urxe/4791/rings/{}", Identity::own().uid());
        Self::with(prefix, limit, u32::from(slot) * RINGS_OF_SHARE)
    }

    fn with(prefix: String, limit: u32, first: u32) -> Self {
        let (rings, shares, none_until) = (0, Vec::new(), Time::ZERO);
        Self { prefix, limit, first, rings, shares, none_until }
    }

    /// Takes the right to write one more ring at `now`. Returns `false` if the device, or the user,
    /// has the most rings already.
    #[must_use]
    pub fn take(&mut self, now: Time) -> bool {
        if self.rings == RINGS_OF_DEVICE {
            return false;
        }
        if self.rings == self.shares.len() as u32 * RINGS_OF_SHARE {
            if now < self.none_until {
                return false;
            }
            match self.free_share() {
                Some(share) => self.shares.push(share),
                None => {
                    self.none_until = now.plus_ns(PAUSE_NS);
                    return false;
                }
            }
        }
        self.rings += 1;
        true
    }

    /// Gives the right for one ring back.
    pub fn give_back(&mut self) {
        self.rings = self.rings.saturating_sub(1);
        self.shares.truncate(self.rings.div_ceil(RINGS_OF_SHARE) as usize);
    }

    /// Binds the first name that is free.
    fn free_share(&self) -> Option<CloseOnFork<OwnedFd>> {
        let numbers = (0..self.limit).map(|number| (self.first + number) % self.limit);
        for number in numbers {
            let name = format!("{}/{number}", self.prefix);
            match close_on_fork(|| unix::hold(Name::Abstract(&name))) {
                Ok(share) => return Some(share),
                Err(Errno::ADDRINUSE) => {}
                Err(errno) => {
                    tracing::debug!(%errno, "cannot hold a share of the rings of this user");
                    return None;
                }
            }
        }
        None
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn budget(name: &str) -> Budget {
        Budget::with(format!("urxe/test/{}/{name}", std::process::id()), 2, 1)
    }

    fn take(budget: &mut Budget, count: u32, now: Time) -> u32 {
        (0..count).take_while(|_| budget.take(now)).count() as u32
    }

    #[test]
    fn all_processes_of_a_user_share_the_limit() {
        let (mut one, mut other) = (budget("shared"), budget("shared"));
        let [now, later] = [1, 1 + PAUSE_NS].map(Time::from_ns);
        assert_eq!(take(&mut one, RINGS_OF_SHARE + 1, now), RINGS_OF_SHARE + 1);
        assert_eq!(take(&mut other, 1, now), 0, "both shares are taken");
        one.give_back();
        assert_eq!(take(&mut other, 1, now), 0, "it does not look again at once");
        assert_eq!(take(&mut other, 100, later), RINGS_OF_SHARE);
        assert_eq!(take(&mut one, 1, later), 0);
        // The end of a process.
        drop(other);
        assert_eq!(take(&mut one, 100, later.plus_ns(PAUSE_NS)), RINGS_OF_SHARE);
    }

    #[test]
    fn sixty_four_processes_have_rings_to_each_other_where_the_memory_allows_it() {
        assert!(MAX_SHARES >= 64 * 63_u32.div_ceil(RINGS_OF_SHARE));
        let mut default = Budget::new(1, 0);
        assert_eq!(default.limit, MAX_SHARES);
        default.prefix = format!("urxe/test/{}/device", std::process::id());
        assert_eq!(take(&mut default, 100, Time::ZERO), RINGS_OF_DEVICE);
        assert_eq!(Budget::new(u64::MAX / RINGS_OF_SHARE as u64, 0).limit, 1);
    }
}

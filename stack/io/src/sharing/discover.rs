//! Finds the group of an address, or creates it: an election among the processes that open it.
//!
//! Each round asks the address's processes, and tries to create the group if that was in vain.
//!
//! | in | out |
//! |---|---|
//! | [`Reply::Joined`] | the group |
//! | [`Reply::OtherOwner`] | the address is in use |
//! | [`Reply::Silent`], [`Reply::NoListener`] | an [`Attempt`] to create the group |
//! | [`Attempt::Found`] | the group |
//! | [`Attempt::Blocked`] | [`Round::verdict`]: another round, or the address is in use |
//!
//! Two processes at once: the creation lock, an abstract name, lets one of them create. That one
//! makes sure by a bind without SO_REUSEPORT that no socket of an older group is left.

use std::net::IpAddr;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::geteuid;

use super::RETRY;
use super::desk::{self, Reply};
use super::group::{CreateGroupError, Group};
use super::owner;
use super::place::Place;
use crate::sys::fork::guard;
use crate::sys::{clock, unix};
use crate::udp::{OpenPortError, UdpConfig, UdpPort, free_loopback_address};
use urxe_types::owner::Owner;

/// How long a joining process waits for a reply of the processes that have the address.
const REPLY_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a port may be taken while no process of the address listens: as long as a joining
/// process takes from getting the group to opening its desk while the one that gave it dies.
const ORPHAN_TIMEOUT: Duration = Duration::from_millis(400);

/// What came of trying to create a group.
enum Attempt {
    /// It is there.
    Found(Box<Group>),
    /// It cannot be created now.
    Blocked(Obstacle),
}

/// Why a group cannot be created now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Obstacle {
    /// Another process has the creation lock.
    CreationLocked,
    /// Some process has the port.
    PortTaken,
    /// Another process was quicker, or a child that was just forked has not lost its copy of the
    /// sockets yet.
    Overtaken,
}

/// A round in vain.
#[derive(Clone, Copy, Debug)]
struct Round {
    obstacle: Obstacle,
    /// A process of the address listens, but does not reply.
    is_listening: bool,
    /// The process that stands in the way, as far as it can be told.
    holder: Option<Owner>,
    /// Since the first round.
    waited: Duration,
}

/// What follows a round in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// Another round.
    Retry,
    /// The address is in use.
    InUse,
}

impl Round {
    /// Decides for a process of user `own_uid`.
    fn verdict(&self, own_uid: u32) -> Verdict {
        let timeout = match self.obstacle {
            Obstacle::CreationLocked => REPLY_TIMEOUT,
            Obstacle::PortTaken if self.is_listening => REPLY_TIMEOUT,
            Obstacle::PortTaken | Obstacle::Overtaken => ORPHAN_TIMEOUT,
        };
        let is_other_user = self.holder.is_some_and(|owner| owner.uid != own_uid);
        if is_other_user || self.waited >= timeout { Verdict::InUse } else { Verdict::Retry }
    }
}

/// Returns the group of `place`: that of the processes that have it, or a new one.
pub(super) fn discover_or_create(
    place: Place,
    config: &UdpConfig,
) -> Result<Group, CreateGroupError> {
    let start = clock::now();
    loop {
        let listening = match desk::ask(place) {
            Reply::Joined(group) => return Ok(*group),
            Reply::OtherOwner(owner) => return Err(in_use(place, Some(owner))),
            Reply::Silent(owner) => Some(owner),
            Reply::NoListener => None,
        };
        tracing::debug!(%place, "looked for processes");
        let obstacle = match try_create(place, config)? {
            Attempt::Found(group) => return Ok(*group),
            Attempt::Blocked(obstacle) => obstacle,
        };
        let holder = listening.or_else(|| match obstacle {
            Obstacle::CreationLocked => owner::at_name(&place.creation_lock_name()),
            Obstacle::PortTaken => owner::of_port(place),
            Obstacle::Overtaken => None,
        });
        let waited = clock::now() - start;
        let round = Round { obstacle, is_listening: listening.is_some(), holder, waited };
        match round.verdict(geteuid().as_raw()) {
            Verdict::Retry => std::thread::sleep(RETRY),
            Verdict::InUse => return Err(in_use(place, holder)),
        }
    }
}

/// Creates the group under the creation lock, unless another process has it.
fn try_create(place: Place, config: &UdpConfig) -> Result<Attempt, CreateGroupError> {
    let _lock = match guard(|| unix::listen_at(&place.creation_lock_name())) {
        Ok(lock) => lock,
        Err(Errno::ADDRINUSE) => return Ok(Attempt::Blocked(Obstacle::CreationLocked)),
        Err(errno) => {
            return Err(CreateGroupError::Refused { call: "an abstract local socket", errno });
        }
    };
    tracing::debug!(%place, "may create the group");
    // It may have been created since the look for processes.
    if let Reply::Joined(group) = desk::ask(place) {
        return Ok(Attempt::Found(group));
    }
    // Without SO_REUSEPORT: succeeds only if no socket of an older group is left.
    match UdpPort::open(config.clone()) {
        Ok(port) => drop(port),
        Err(OpenPortError::AddressInUse { .. }) => {
            return Ok(Attempt::Blocked(Obstacle::PortTaken));
        }
        Err(error) => return Err(CreateGroupError::Port(error)),
    }
    let created = Group::create(place, config);
    tracing::debug!(%place, is_created = created.is_ok(), "tried to create the group");
    match created {
        Ok(group) => Ok(Attempt::Found(Box::new(group))),
        Err(CreateGroupError::Port(OpenPortError::AddressInUse { .. })) => {
            Ok(Attempt::Blocked(Obstacle::Overtaken))
        }
        Err(error) => Err(error),
    }
}

fn in_use(place: Place, owner: Option<Owner>) -> CreateGroupError {
    CreateGroupError::Port(OpenPortError::AddressInUse {
        address: place.address,
        owner,
        free: free_loopback_address().map(IpAddr::V4),
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_process_waits_for_its_own_users_processes_only_and_for_orphans_not_long() {
        const OWN: u32 = 1000;
        let own = Some(Owner::new(OWN, None, b""));
        let other = Some(Owner::new(OWN + 1, None, b""));
        for (obstacle, is_listening, holder, timeout) in [
            (Obstacle::CreationLocked, false, None, REPLY_TIMEOUT),
            (Obstacle::CreationLocked, false, own, REPLY_TIMEOUT),
            (Obstacle::CreationLocked, true, own, REPLY_TIMEOUT),
            (Obstacle::PortTaken, true, own, REPLY_TIMEOUT),
            (Obstacle::PortTaken, false, own, ORPHAN_TIMEOUT),
            (Obstacle::PortTaken, false, None, ORPHAN_TIMEOUT),
            (Obstacle::Overtaken, false, None, ORPHAN_TIMEOUT),
            (Obstacle::Overtaken, true, own, ORPHAN_TIMEOUT),
            (Obstacle::CreationLocked, false, other, Duration::ZERO),
            (Obstacle::PortTaken, false, other, Duration::ZERO),
        ] {
            let round = Round { obstacle, is_listening, holder, waited: timeout };
            assert_eq!(round.verdict(OWN), Verdict::InUse, "{round:?}");
            let Some(waited) = timeout.checked_sub(Duration::from_nanos(1)) else { continue };
            assert_eq!(Round { waited, ..round }.verdict(OWN), Verdict::Retry, "{round:?}");
        }
    }
}

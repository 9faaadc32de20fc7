//! Finds or creates the group of an address.
//!
//! The *group* of an address is the set of SO_REUSEPORT sockets that its processes share, with the
//! table of their slots and services. A *rendezvous server* is a local socket through which each
//! process of the address gives the group to joining processes of its user. A joining process gets
//! the group from the server of a process that has it, or creates the group.
//!
//! Each round asks the servers of the address for the group, and tries to create the group if none
//! replies with it.
//!
//! | in | out |
//! |---|---|
//! | [`JoinReply::Joined`] | the group |
//! | [`JoinReply::OtherOwner`]: a server of another user | the address is in use |
//! | [`JoinReply::NoReply`], [`JoinReply::NoListener`] | an [`Attempt`] to create the group |
//! | [`Attempt::Found`] | the group |
//! | [`Attempt::Blocked`] | [`FailedRound::verdict`]: another round, or the address is in use |
//! | [`CreateGroupError::Refused`]: by the system | that error; the address is for one process |
//! | another error of creating | that error |
//!
//! The caller opens the port without sharing after `Refused`, and fails after another error.
//!
//! If two processes start at once, the creation lock, an abstract name, lets one of them create the
//! group. That process binds the port on trial without SO_REUSEPORT, to make sure that no socket of
//! an older group is left. The trial also detects a process that does not reply but still holds the
//! port.
//!
//! The creation lock is released before the rendezvous server of the new group is open. A process
//! that comes in between finds the port taken and no server, and starts another round.

use std::net::IpAddr;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::geteuid;

use super::RETRY;
use super::group::{CreateGroupError, Group};
use super::rendezvous::{self, JoinReply};
use super::shared_address::{self, SharedAddress};
use crate::sys::fork::close_on_fork;
use crate::sys::{clock, unix};
use crate::udp::{OpenPortError, UdpConfig, UdpPort, free_loopback_address};
use urxe_types::owner::Owner;

/// How long a joining process tries, since its first round, while a process that does not reply has
/// the port or another process has the creation lock. A round may take longer: it calls
/// [`rendezvous::request_group`] up to twice, and each call waits up to 250 ms for each rendezvous
/// server that does not reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a joining process tries, since its first round, while the port is taken and no
/// rendezvous server listens. A process may have created the group, or have got it from one that
/// has died since, and not have opened its server yet. The limit holds for
/// [`Obstacle::Overtaken`] too: a child just forked closes its copy of the socket soon.
const ORPHAN_TIMEOUT: Duration = Duration::from_millis(400);

/// The outcome of trying to create a group.
enum Attempt {
    /// The group exists.
    Found(Box<Group>),
    /// The group cannot be created now.
    Blocked(Obstacle),
}

/// Why a group cannot be created now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Obstacle {
    /// Another process has the creation lock.
    CreationLocked,
    /// Another process has the port.
    PortTaken,
    /// The port was taken between the trial and the creation, in spite of the creation lock: by
    /// another program, or by a child just forked that still has a copy of the trial socket.
    Overtaken,
}

impl Obstacle {
    /// Returns the process to wait for, if known. This is `silent`, a process of this user whose
    /// rendezvous server does not reply, or else the holder of the lock or the port. After a
    /// successful trial only the holder of the port counts, because `silent` has no socket of a
    /// group.
    fn holder(
        self,
        silent: Option<Owner>,
        of_lock: impl FnOnce() -> Option<Owner>,
        of_port: impl FnOnce() -> Option<Owner>,
    ) -> Option<Owner> {
        match self {
            Self::CreationLocked => silent.or_else(of_lock),
            Self::PortTaken => silent.or_else(of_port),
            Self::Overtaken => of_port(),
        }
    }
}

/// A round that did not find or create the group.
#[derive(Clone, Copy, Debug)]
struct FailedRound {
    obstacle: Obstacle,
    /// Whether a rendezvous server of this user listens but does not reply.
    has_unresponsive_listener: bool,
    /// The process to wait for; see [`Obstacle::holder`].
    holder: Option<Owner>,
    /// The time since the first round.
    waited: Duration,
}

/// The step after a failed round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// Start another round.
    Retry,
    /// Fail, because the address is in use.
    InUse,
}

impl FailedRound {
    /// Decides for a process of user `own_uid`.
    fn verdict(&self, own_uid: u32) -> Verdict {
        let timeout = match self.obstacle {
            Obstacle::CreationLocked => REPLY_TIMEOUT,
            Obstacle::PortTaken if self.has_unresponsive_listener => REPLY_TIMEOUT,
            Obstacle::PortTaken => ORPHAN_TIMEOUT,
            // A server that does not reply has no socket of the group, because the trial succeeded.
            // So it does not extend the limit.
            Obstacle::Overtaken => ORPHAN_TIMEOUT,
        };
        let is_other_owner = self.holder.is_some_and(|owner| owner.uid != own_uid);
        if is_other_owner || self.waited >= timeout { Verdict::InUse } else { Verdict::Retry }
    }
}

/// Returns the existing group of `address`, or a new one.
pub(super) fn discover_or_create(
    address: SharedAddress,
    config: &UdpConfig,
) -> Result<Group, CreateGroupError> {
    let start = clock::now();
    loop {
        let silent = match rendezvous::request_group(address) {
            JoinReply::Joined(group) => return Ok(*group),
            JoinReply::OtherOwner(owner) => return Err(in_use(address, Some(owner))),
            JoinReply::NoReply(owner) => Some(owner),
            JoinReply::NoListener => None,
        };
        let has_unresponsive_listener = silent.is_some();
        tracing::debug!(%address, has_unresponsive_listener, "no process gave the group");
        let obstacle = match try_create(address, config)? {
            Attempt::Found(group) => return Ok(*group),
            Attempt::Blocked(obstacle) => obstacle,
        };
        let of_lock = || shared_address::at_name(&address.creation_lock_name());
        let of_port = || shared_address::of_port(address);
        let holder = obstacle.holder(silent, of_lock, of_port);
        let waited = clock::now() - start;
        let failed = FailedRound { obstacle, has_unresponsive_listener, holder, waited };
        match failed.verdict(geteuid().as_raw()) {
            Verdict::Retry => std::thread::sleep(RETRY),
            Verdict::InUse => return Err(in_use(address, holder)),
        }
    }
}

/// Creates the group under the creation lock, unless another process has the lock.
fn try_create(address: SharedAddress, config: &UdpConfig) -> Result<Attempt, CreateGroupError> {
    // Closed on fork, so that no child keeps the lock.
    let _lock = match close_on_fork(|| unix::listen_at(&address.creation_lock_name())) {
        Ok(lock) => lock,
        Err(Errno::ADDRINUSE) => return Ok(Attempt::Blocked(Obstacle::CreationLocked)),
        Err(errno) => {
            return Err(CreateGroupError::Refused { call: "bind of an abstract name", errno });
        }
    };
    tracing::debug!(%address, "took the creation lock");
    // Another process may have created the group since the last request. Any other reply is ignored
    // here; the bind below shows whether sockets are left.
    if let JoinReply::Joined(group) = rendezvous::request_group(address) {
        return Ok(Attempt::Found(group));
    }
    // Without SO_REUSEPORT this succeeds only if no socket of an older group is left.
    match UdpPort::open(config.clone()) {
        Ok(port) => drop(port),
        Err(OpenPortError::AddressInUse { .. }) => {
            return Ok(Attempt::Blocked(Obstacle::PortTaken));
        }
        Err(error) => return Err(CreateGroupError::Port(error)),
    }
    let created = Group::create(address, config);
    tracing::debug!(%address, is_created = created.is_ok(), "tried to create the group");
    match created {
        Ok(group) => Ok(Attempt::Found(Box::new(group))),
        Err(CreateGroupError::Port(OpenPortError::AddressInUse { .. })) => {
            Ok(Attempt::Blocked(Obstacle::Overtaken))
        }
        Err(error) => Err(error),
    }
}

/// Returns the error of an address in use by `owner`. As a hint for the user, it names a loopback
/// address that is free.
fn in_use(address: SharedAddress, owner: Option<Owner>) -> CreateGroupError {
    CreateGroupError::Port(OpenPortError::AddressInUse {
        address: address.ip,
        owner,
        free: free_loopback_address().map(IpAddr::V4),
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_silent_server_is_waited_for_unless_the_port_was_free() {
        let [silent, lock, port] = [1, 2, 3].map(|pid| Some(Owner::new(1000, Some(pid), b"")));
        for (obstacle, silent, expected) in [
            (Obstacle::CreationLocked, silent, silent),
            (Obstacle::CreationLocked, None, lock),
            (Obstacle::PortTaken, silent, silent),
            (Obstacle::PortTaken, None, port),
            (Obstacle::Overtaken, silent, port),
            (Obstacle::Overtaken, None, port),
        ] {
            assert_eq!(obstacle.holder(silent, || lock, || port), expected, "{obstacle:?}");
        }
    }

    #[test]
    fn a_process_waits_for_its_own_users_processes_only_and_for_orphans_not_long() {
        const OWN: u32 = 1000;
        let own = Some(Owner::new(OWN, None, b""));
        let other = Some(Owner::new(OWN + 1, None, b""));
        for (obstacle, has_unresponsive_listener, holder, timeout) in [
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
            (Obstacle::Overtaken, true, other, Duration::ZERO),
        ] {
            let failed =
                FailedRound { obstacle, has_unresponsive_listener, holder, waited: timeout };
            assert_eq!(failed.verdict(OWN), Verdict::InUse, "{failed:?}");
            let Some(waited) = timeout.checked_sub(Duration::from_nanos(1)) else { continue };
            let earlier = FailedRound { waited, ..failed };
            assert_eq!(earlier.verdict(OWN), Verdict::Retry, "{earlier:?}");
        }
    }
}

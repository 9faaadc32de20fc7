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
//! | a server gives the group | the group |
//! | [`NotGiven`]: none does | an [`Attempt`] to create the group |
//! | [`Attempt::Created`] | the group |
//! | [`Attempt::Blocked`] | [`FailedRound::verdict`]: another round, or the address is in use |
//! | [`CreateGroupError::Refused`]: by the system | that error; the address is for one process |
//! | another error of creating | that error |
//!
//! The caller opens the port without sharing after `Refused`, and fails after another error.
//!
//! Processes of other users are ignored: only the holder of the port counts. If two processes start
//! at once, one of them binds the port, and the other one starts another round. The creation lock,
//! an abstract name, excludes processes of earlier builds, which released the port between a trial
//! and the creation. A lock of another user is ignored.
//!
//! The rendezvous server of a new group opens after the group is created. A process that comes in
//! between finds the port taken and no server, and starts another round.

use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::process::geteuid;

use super::RETRY;
use super::group::{CreateGroupError, Group};
use super::server::{self, NotGiven};
use crate::rendezvous::{Identity, LibraryCopy, SharedAddress, listener_of, of_port, owner_of};
use crate::sys::clock;
use crate::sys::fork::{CloseOnFork, close_on_fork};
use crate::sys::unix::{self, Name};
use crate::udp::{OpenPortError, UdpConfig, free_loopback_address};
use urxe_types::owner::Owner;

/// How long a joining process tries, since its first round, while a process that does not reply has
/// the port or another process has the creation lock. So also while another process of this user
/// has the port and no server listens: on a busy machine, a process that has created the group may
/// need more than [`ORPHAN_TIMEOUT`] until it opens its server. A round may take longer: it calls
/// [`server::request_group`], which waits up to 250 ms for each rendezvous server that does not
/// reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a joining process tries, since its first round, while the port is taken by this process
/// or an unknown one, and no rendezvous server listens. A process may have created the group, or
/// have got it from one that has died since, and not have opened its server yet.
const ORPHAN_TIMEOUT: Duration = Duration::from_millis(400);

/// The outcome of trying to create a group.
enum Attempt {
    /// This process created the group.
    Created(Box<Group>),
    /// The group cannot be created now.
    Blocked(Obstacle),
}

/// Why a group cannot be created now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Obstacle {
    /// Another process of this user has the creation lock.
    CreationLocked(Owner),
    /// Another process has the port.
    PortTaken,
}

impl Obstacle {
    /// Returns the process to wait for, if known. This is a process of this user whose rendezvous
    /// server does not reply, or else the holder of the lock or the port.
    fn holder(self, refused: &NotGiven, of_port: impl FnOnce() -> Option<Owner>) -> Option<Owner> {
        let port_holder = || match (of_port(), refused.stranger) {
            // /proc shows the processes of other users to root alone, but the local socket does.
            (Some(Owner { uid, pid: None, .. }), Some(stranger)) if stranger.uid == uid => {
                Some(stranger)
            }
            (None, stranger) => stranger,
            (holder, _) => holder,
        };
        refused.silent.or_else(|| match self {
            Self::CreationLocked(owner) => Some(owner),
            Self::PortTaken => port_holder(),
        })
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
    /// Decides for the process `own_pid` of user `own_uid`.
    fn verdict(&self, own_uid: u32, own_pid: i32) -> Verdict {
        let is_other_process = self.holder.is_some_and(|owner| owner.pid != Some(own_pid));
        let timeout = match self.obstacle {
            Obstacle::CreationLocked(_) => REPLY_TIMEOUT,
            Obstacle::PortTaken if self.has_unresponsive_listener => REPLY_TIMEOUT,
            Obstacle::PortTaken if is_other_process => REPLY_TIMEOUT,
            Obstacle::PortTaken => ORPHAN_TIMEOUT,
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
        let refused = match server::request_group(address) {
            Ok(group) => return Ok(*group),
            Err(refused) => refused,
        };
        tracing::debug!(%address, ?refused, "no process gave the group");
        let obstacle = match try_create(address, config)? {
            Attempt::Created(group) => return Ok(*group),
            Attempt::Blocked(obstacle) => obstacle,
        };
        if let Some(other) = refused.other_version {
            let (own, other) = (Box::new(LibraryCopy::own()), Box::new(other));
            let error = OpenPortError::OtherVersion { address: address.ip, own, other };
            return Err(CreateGroupError::Port(error));
        }
        let has_unresponsive_listener = refused.silent.is_some();
        let holder = obstacle.holder(&refused, || of_port(address));
        let waited = clock::now() - start;
        let failed = FailedRound { obstacle, has_unresponsive_listener, holder, waited };
        match failed.verdict(geteuid().as_raw(), std::process::id().cast_signed()) {
            Verdict::Retry => std::thread::sleep(RETRY),
            Verdict::InUse => return Err(in_use(address, holder)),
        }
    }
}

/// Creates the group, unless another process has the port or the creation lock.
fn try_create(address: SharedAddress, config: &UdpConfig) -> Result<Attempt, CreateGroupError> {
    let _lock = match creation_lock(address) {
        Ok(lock) => lock,
        Err(owner) => return Ok(Attempt::Blocked(Obstacle::CreationLocked(owner))),
    };
    let created = Group::create(address, config);
    tracing::debug!(%address, is_created = created.is_ok(), "tried to create the group");
    match created {
        Ok(group) => Ok(Attempt::Created(Box::new(group))),
        Err(CreateGroupError::Port(OpenPortError::AddressInUse { .. })) => {
            Ok(Attempt::Blocked(Obstacle::PortTaken))
        }
        Err(error) => Err(error),
    }
}

/// Takes the creation lock. Returns `None` if another user has it or the system has no abstract
/// names, because binding the port excludes processes of this version too.
///
/// # Errors
/// The process of this user that has the lock.
fn creation_lock(address: SharedAddress) -> Result<Option<CloseOnFork<OwnedFd>>, Owner> {
    let name = address.creation_lock_name();
    // Closed on fork, so that no child keeps the lock.
    match close_on_fork(|| unix::listen_at(Name::Abstract(&name))) {
        Ok(lock) => Ok(Some(lock)),
        Err(_) => match listener_of(&name) {
            Some(peer) if Identity::own().has_own_id(peer) => Err(owner_of(peer)),
            _ => Ok(None),
        },
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

    const OWN: u32 = 1000;

    fn refused(silent: Option<Owner>, stranger: Option<Owner>) -> NotGiven {
        NotGiven { silent, stranger, other_version: None }
    }

    #[test]
    fn the_holder_is_a_silent_server_or_has_the_lock_or_the_port() {
        let [silent, lock, port] = [1, 2, 3].map(|pid| Owner::new(OWN, Some(pid), b""));
        for obstacle in [Obstacle::CreationLocked(lock), Obstacle::PortTaken] {
            let holder = obstacle.holder(&refused(Some(silent), None), || Some(port));
            assert_eq!(holder, Some(silent), "{obstacle:?}");
        }
        let none = refused(None, None);
        assert_eq!(Obstacle::CreationLocked(lock).holder(&none, || Some(port)), Some(lock));
        assert_eq!(Obstacle::PortTaken.holder(&none, || Some(port)), Some(port));
    }

    #[test]
    fn a_stranger_with_a_name_counts_only_as_the_holder_of_the_port() {
        let other = OWN + 1;
        let stranger = Owner::new(other, Some(7), b"stranger");
        let with = refused(None, Some(stranger));
        let holder = |of_port| Obstacle::PortTaken.holder(&with, || of_port);
        assert_eq!(holder(Some(Owner::new(other, None, b""))), Some(stranger), "with its process");
        for port in [Owner::new(OWN, None, b""), Owner::new(other, Some(8), b"")] {
            assert_eq!(holder(Some(port)), Some(port));
        }
        assert_eq!(holder(None), Some(stranger), "/proc shows nothing");
        let lock = Owner::new(OWN, Some(9), b"");
        assert_eq!(Obstacle::CreationLocked(lock).holder(&with, || None), Some(lock));
    }

    #[test]
    fn a_process_waits_for_other_processes_of_its_user_only_and_for_itself_not_long() {
        const OWN_PID: i32 = 5;
        let own = Owner::new(OWN, None, b"");
        let this = Some(Owner::new(OWN, Some(OWN_PID), b""));
        let same_user = Some(Owner::new(OWN, Some(OWN_PID + 1), b""));
        let other = Some(Owner::new(OWN + 1, None, b""));
        let locked = Obstacle::CreationLocked(own);
        for (obstacle, has_unresponsive_listener, holder, timeout) in [
            (locked, false, Some(own), REPLY_TIMEOUT),
            (locked, true, Some(own), REPLY_TIMEOUT),
            (Obstacle::PortTaken, true, Some(own), REPLY_TIMEOUT),
            (Obstacle::PortTaken, false, Some(own), REPLY_TIMEOUT),
            (Obstacle::PortTaken, false, same_user, REPLY_TIMEOUT),
            (Obstacle::PortTaken, false, this, ORPHAN_TIMEOUT),
            (Obstacle::PortTaken, false, None, ORPHAN_TIMEOUT),
            (Obstacle::PortTaken, false, other, Duration::ZERO),
            (Obstacle::PortTaken, true, other, Duration::ZERO),
        ] {
            let failed =
                FailedRound { obstacle, has_unresponsive_listener, holder, waited: timeout };
            assert_eq!(failed.verdict(OWN, OWN_PID), Verdict::InUse, "{failed:?}");
            let Some(waited) = timeout.checked_sub(Duration::from_nanos(1)) else { continue };
            let earlier = FailedRound { waited, ..failed };
            assert_eq!(earlier.verdict(OWN, OWN_PID), Verdict::Retry, "{earlier:?}");
        }
    }
}

//! The interface between a device and its port for multicast groups.

use std::net::IpAddr;
use std::sync::Arc;

use urxe_wire::ROCE_PORT;

use crate::errno::OsError;

/// The part of a port that joins multicast groups (IGMP and MLD over UDP).
pub trait JoinGroups: Send + Sync {
    /// Joins a group that is not joined yet.
    ///
    /// # Errors
    /// Fails with [`JoinError`] if the group is not joined.
    fn join(&self, group: IpAddr) -> Result<(), JoinError>;

    /// Leaves a group that [`join`](Self::join) joined.
    fn leave(&self, group: IpAddr);
}

impl<T: JoinGroups + ?Sized> JoinGroups for Arc<T> {
    fn join(&self, group: IpAddr) -> Result<(), JoinError> {
        (**self).join(group)
    }

    fn leave(&self, group: IpAddr) {
        (**self).leave(group);
    }
}

/// A port that receives the packets of all groups without joining them.
#[derive(Clone, Copy, Debug, Default)]
pub struct EveryGroup;

impl JoinGroups for EveryGroup {
    fn join(&self, _group: IpAddr) -> Result<(), JoinError> {
        Ok(())
    }

    fn leave(&self, _group: IpAddr) {}
}

crate::errors! {
    /// The reason why a group was not joined.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    pub enum JoinError {
        /// The device has no address of the group's IP version.
        #[error(
            "cannot join {group}: the device has no {} address",
            if group.is_ipv6() { "IPv6" } else { "IPv4" }
        )]
        NoAddress { group: IpAddr } = EINVAL,
        /// Another socket uses the port on the group's address, or on all addresses.
        #[error("UDP port {ROCE_PORT} of {group} is taken by a process that does not share it, or \
                 by the kernel's rdma_rxe")]
        AddressInUse { group: IpAddr } = EADDRINUSE,
        // Each group needs a descriptor and system memory. The caller learns that the device has no
        // space for another group.
        #[error("{call} failed for {group}: {errno}")]
        System { group: IpAddr, call: &'static str, errno: OsError } = match errno.raw_os_error() {
            EMFILE | ENFILE | ENOBUFS => ENOMEM,
            errno => errno,
        },
    }
}

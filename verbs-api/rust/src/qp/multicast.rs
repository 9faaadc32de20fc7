//! Multicast groups of a datagram queue pair.

use urxe_stack::device::multicast::{AttachMcastError, DetachMcastError};
use urxe_wire::Gid;

use super::QueuePair;

impl QueuePair {
    /// Attaches a datagram queue pair to a multicast group (`ibv_attach_mcast`), in any state: it
    /// gets a copy of what is sent there with its Q_Key, its own messages included. An IP address
    /// is a group's GID: `Gid::from_ip("239.1.2.3".parse()?)`. Once more is the same as once.
    ///
    /// The device joins the group on its interface (IGMP, MLD) with the first queue pair that is
    /// attached, and leaves after the last. [`detach_mcast`](Self::detach_mcast) ends it, and so
    /// does dropping the queue pair.
    ///
    /// # Errors
    /// [`AttachMcastError`]: not a group, not a datagram queue pair, more than the device's limits,
    /// or the system refuses to join.
    pub fn attach_mcast(&self, group: Gid) -> Result<(), AttachMcastError> {
        self.pd.device().core().attach_mcast(self.handle, group)
    }

    /// Detaches it from a multicast group (`ibv_detach_mcast`). What arrived before may still
    /// complete a receive.
    ///
    /// # Errors
    /// [`DetachMcastError`]: it is not attached to the group.
    pub fn detach_mcast(&self, group: Gid) -> Result<(), DetachMcastError> {
        self.pd.device().core().detach_mcast(self.handle, group)
    }
}

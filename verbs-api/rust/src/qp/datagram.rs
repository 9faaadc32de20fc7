//! Datagram queue pairs: starting one, and its multicast groups.

use urxe_stack::device::ModifyError;
use urxe_stack::device::multicast::{AttachMcastError, DetachMcastError};
use urxe_stack::qp::attr::{QpAttr, QpAttrMask, QpState};
use urxe_wire::{Gid, QKey};

use super::QueuePair;

impl QueuePair {
    /// Brings a datagram queue pair from RESET to RTS: it receives what comes with `qkey`, and
    /// sends to whom each request says.
    ///
    /// # Errors
    /// [`ModifyError`]: the queue pair is not in RESET, or of another service, or the Q_Key is
    /// privileged (its highest bit is set).
    ///
    /// ```
    /// use urxe::{Device, QKey, QpType};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let device = Device::open_address("127.49.9.1".parse::<std::net::Ipv4Addr>()?)?;
    /// let pd = device.alloc_pd()?;
    /// let cq = device.create_cq(16)?;
    /// let qp = pd.queue_pair(&cq).qp_type(QpType::Ud).create()?;
    /// qp.start_datagrams(QKey(0x1111_1111))?;
    /// let there = pd.address_handle(qp.endpoint().gid)?;
    /// # let _ = there;
    /// # Ok(())
    /// # }
    /// ```
    pub fn start_datagrams(&self, qkey: QKey) -> Result<(), ModifyError> {
        let attr = QpAttr { port_num: 1, qkey, sq_psn: self.psn, ..QpAttr::default() };
        for (qp_state, mask) in [
            (QpState::Init, QpAttrMask::PKEY_INDEX | QpAttrMask::PORT | QpAttrMask::QKEY),
            (QpState::Rtr, QpAttrMask::empty()),
            (QpState::Rts, QpAttrMask::SQ_PSN),
        ] {
            self.modify(&QpAttr { qp_state, ..attr }, QpAttrMask::STATE | mask)?;
        }
        Ok(())
    }

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

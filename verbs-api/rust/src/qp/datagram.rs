//! Datagram queue pairs and their multicast groups.

use urxe_stack::device::ModifyError;
use urxe_stack::device::multicast::{AttachMcastError, DetachMcastError};
use urxe_stack::qp::attr::{QpAttr, QpAttrMask, QpState};
use urxe_wire::{Gid, QKey};

use super::QueuePair;

impl QueuePair {
    /// Brings a datagram queue pair from RESET to RTS.
    ///
    /// The queue pair receives datagrams with the Q_Key `qkey`. Each send request names its
    /// destination.
    ///
    /// # Errors
    /// Fails with [`ModifyError`] in these cases:
    /// * The queue pair is not in RESET, or has another transport service.
    /// * The Q_Key is privileged: its highest bit is set.
    ///
    /// ```
    /// use urxe::{Access, Data, GRH_LEN, QKey, QpType, RecvRequest, SendRequest, sim::Fabric};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let device = Fabric::new(1).device([10, 0, 0, 1])?;
    /// let (pd, cq) = (device.alloc_pd()?, device.create_cq(16)?);
    /// let qkey = QKey(0x1111_1111);
    /// let qp = pd.queue_pair(&cq).qp_type(QpType::Ud).create()?;
    /// qp.start_datagrams(qkey)?;
    /// // A receive has room for the network header.
    /// let inbox = pd.allocate(GRH_LEN + 64, Access::LOCAL_WRITE)?;
    /// qp.post_recv(&RecvRequest::new(inbox.slice(..)?).wr_id(1))?;
    /// // This queue pair sends to itself.
    /// let ah = pd.address_handle(qp.endpoint().gid)?;
    /// qp.post_send(&SendRequest::send(Data::inline(b"hello")).to(&ah, qp.qpn(), qkey))?;
    /// let received = cq.wait_one(None)?;
    /// assert_eq!((received.wr_id, received.byte_len as usize), (1, GRH_LEN + 5));
    /// assert_eq!(inbox.read_vec(GRH_LEN, 5)?, b"hello");
    /// // The header identifies the sender.
    /// let sender = pd.answer_to(&received, &inbox.read_vec(0, GRH_LEN)?)?;
    /// assert_eq!(sender.query().dgid, qp.endpoint().gid);
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

    /// Attaches a datagram queue pair to a multicast group (`ibv_attach_mcast`), in any state.
    ///
    /// The queue pair receives a copy of each datagram to the group with its Q_Key, including its
    /// own. The GID of a group follows from its IP address: `Gid::from_ip("239.1.2.3".parse()?)`.
    /// Attaching twice has no further effect.
    ///
    /// The device joins the group on its interface (IGMP, MLD) with the first attached queue pair.
    /// It leaves the group after the last queue pair is [detached](Self::detach_mcast) or dropped.
    ///
    /// ```
    /// use urxe::{Access, AttachMcastError, Data, DetachMcastError, Gid, JoinError, QKey, QpType};
    /// use urxe::{RecvRequest, SendRequest, sim::Fabric};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let device = Fabric::new(1).device([10, 0, 0, 1])?;
    /// let (pd, cq) = (device.alloc_pd()?, device.create_cq(16)?);
    /// let qp = pd.queue_pair(&cq).qp_type(QpType::Ud).create()?;
    /// qp.start_datagrams(QKey(7))?;
    /// let group: Gid = Gid::from_ip("239.1.2.3".parse()?);
    /// qp.attach_mcast(group)?;
    /// let inbox = pd.allocate(1024, Access::LOCAL_WRITE)?;
    /// qp.post_recv(&RecvRequest::new(inbox.slice(..)?))?;
    /// let everyone = pd.address_handle(group)?;
    /// qp.post_send(&SendRequest::send(Data::inline(b"hello")).to_group(&everyone, QKey(7)))?;
    /// let _received = cq.wait_one(None)?;
    /// qp.detach_mcast(group)?;
    /// let error: DetachMcastError = qp.detach_mcast(group).unwrap_err();
    /// assert_eq!(error, DetachMcastError::NotAttached { qpn: qp.qpn(), given: group });
    /// // The device has no IPv6 address.
    /// let group: Gid = Gid::from_ip("ff05::7".parse()?);
    /// let error: AttachMcastError = qp.attach_mcast(group).unwrap_err();
    /// assert!(matches!(error, AttachMcastError::Join(JoinError::NoAddress { .. })), "{error}");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails with [`AttachMcastError`] in these cases:
    /// * The GID is not that of a multicast group.
    /// * The queue pair is not a datagram queue pair.
    /// * The device has reached its limits.
    /// * The system refuses to join the group.
    pub fn attach_mcast(&self, group: Gid) -> Result<(), AttachMcastError> {
        self.pd.device().core().attach_mcast(self.handle, group)
    }

    /// Detaches the queue pair from a multicast group (`ibv_detach_mcast`). Datagrams that arrived
    /// before may still complete receives.
    ///
    /// # Errors
    /// Fails with [`DetachMcastError`] if the queue pair is not attached to the group.
    pub fn detach_mcast(&self, group: Gid) -> Result<(), DetachMcastError> {
        self.pd.device().core().detach_mcast(self.handle, group)
    }
}

//! A queue pair's attributes, as `ibv_modify_qp` sets them and `ibv_query_qp` returns them.
//!
//! Names and numbers are those of libibverbs' `verbs.h` (`struct ibv_qp_attr`, `enum
//! ibv_qp_attr_mask`, `enum ibv_qp_state`, `enum ibv_qp_type`); meaning: IBTA vol. 1, 11.2.5.2 and
//! 11.2.5.3. Which attributes a transition takes stands in the table of the queue pair's
//! transitions.

use std::fmt;

use urxe_wire::{Gid, Psn, QKey, Qpn, Service};

use crate::access::Access;

#[cfg(test)]
mod tests;

/// Service of a queue pair (`enum ibv_qp_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum QpType {
    /// The one queue pair of a device for management datagrams (`IB_QPT_GSI` of the kernel, none of
    /// libibverbs').
    Gsi = 1,
    /// Reliable connection.
    Rc = 2,
    /// Unreliable connection.
    Uc = 3,
    /// Unreliable datagrams.
    Ud = 4,
    /// The sending end of an extended reliable connection.
    XrcSend = 9,
    /// The receiving end of an extended reliable connection.
    XrcRecv = 10,
}

impl QpType {
    /// Every type of libibverbs that this stack knows, in the order of its number.
    pub const ALL: [Self; 5] = [Self::Rc, Self::Uc, Self::Ud, Self::XrcSend, Self::XrcRecv];

    /// The number in `enum ibv_qp_type`.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The type of that number, if this stack has it.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|qp_type| u32::from(qp_type.number()) == number)
    }

    /// Whether its messages are datagrams, each to whom it says.
    #[must_use]
    pub const fn is_datagram(self) -> bool {
        matches!(self.service(), Service::Ud)
    }

    /// Whether it has a window that marks of routers make smaller.
    pub const fn is_ecn_capable(self) -> bool {
        matches!(self.service(), Service::Rc | Service::Xrc)
    }

    /// The service that its packets' opcodes belong to.
    #[must_use]
    pub const fn service(self) -> Service {
        match self {
            Self::Rc => Service::Rc,
            Self::Uc => Service::Uc,
            Self::Ud | Self::Gsi => Service::Ud,
            Self::XrcSend | Self::XrcRecv => Service::Xrc,
        }
    }

    /// The name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gsi => "GSI",
            Self::Rc => "RC",
            Self::Uc => "UC",
            Self::Ud => "UD",
            Self::XrcSend => "XRC_SEND",
            Self::XrcRecv => "XRC_RECV",
        }
    }
}

impl fmt::Display for QpType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

crate::named_enum! {
    /// State of a queue pair (`enum ibv_qp_state`; IBTA vol. 1, 10.3.1).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    #[repr(u8)]
    pub enum QpState: as_str, number -> u8, from_number(u32) {
        /// As created; nothing can be posted.
        #[default]
        Reset = 0 => "RESET",
        /// Receives can be posted, packets are dropped.
        Init = 1 => "INIT",
        /// Ready to receive.
        Rtr = 2 => "RTR",
        /// Ready to send.
        Rts = 3 => "RTS",
        /// The send queue finishes what it has begun, and begins nothing.
        Sqd = 4 => "SQD",
        /// A send failed on an unreliable queue pair; receiving goes on.
        Sqe = 5 => "SQE",
        /// All that is posted is flushed.
        Err = 6 => "ERR",
    }
}

/// Largest payload of a packet (`enum ibv_mtu`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum PathMtu {
    /// 256 bytes.
    #[default]
    Mtu256 = 1,
    /// 512 bytes.
    Mtu512 = 2,
    /// 1024 bytes: the most that a link of 1500 bytes carries.
    Mtu1024 = 3,
    /// 2048 bytes.
    Mtu2048 = 4,
    /// 4096 bytes.
    Mtu4096 = 5,
}

impl PathMtu {
    /// Every size, in the order of its number.
    pub const ALL: [Self; 5] =
        [Self::Mtu256, Self::Mtu512, Self::Mtu1024, Self::Mtu2048, Self::Mtu4096];

    /// The number in `enum ibv_mtu`.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The size of that number, if there is one.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|mtu| u32::from(mtu.number()) == number)
    }

    /// Payload in bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        128 << self.number()
    }

    /// The largest size that is at most `bytes`; none below 256.
    #[must_use]
    pub fn at_most(bytes: usize) -> Option<Self> {
        Self::ALL.into_iter().rev().find(|mtu| mtu.bytes() <= bytes)
    }
}

impl fmt::Display for PathMtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.bytes())
    }
}

crate::named_enum! {
    /// State of the alternate path (`enum ibv_mig_state`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    #[repr(u8)]
    pub enum PathMigState: as_str, number -> u8, from_number(u32) {
        /// The connection is where it shall be.
        #[default]
        Migrated = 0 => "MIGRATED",
        /// The alternate path is to be made ready.
        Rearm = 1 => "REARM",
        /// The alternate path is ready.
        Armed = 2 => "ARMED",
    }
}

/// The way to a peer (`struct ibv_ah_attr` with its `struct ibv_global_route`; IBTA vol. 1,
/// 11.2.2.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddressVector {
    /// The peer's address.
    pub dgid: Gid,
    /// Flow label of the IP header, 20 bits.
    pub flow_label: u32,
    /// Index of the local address in the port's GID table.
    pub sgid_index: u8,
    /// Hop limit or time to live of the IP header; 0 leaves it to the system.
    pub hop_limit: u8,
    /// Traffic class or type of service of the IP header.
    pub traffic_class: u8,
    /// Service level; has no field in a RoCEv2 packet.
    pub sl: u8,
    /// Source path bits; has no field in a RoCEv2 packet.
    pub src_path_bits: u8,
    /// Limit of the sending rate (`enum ibv_rate`), 0 for none.
    pub static_rate: u8,
    /// The peer's LID; has no field in a RoCEv2 packet.
    pub dlid: u16,
    /// The local port, counted from 1.
    pub port_num: u8,
    /// Whether the fields of the global route (`dgid`, `flow_label`, `sgid_index`, `hop_limit`,
    /// `traffic_class`) are valid.
    pub is_global: bool,
}

/// Sizes of a queue pair's queues (`struct ibv_qp_cap`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpCap {
    /// Entries of the send queue.
    pub max_send_wr: u32,
    /// Entries of the receive queue.
    pub max_recv_wr: u32,
    /// Scatter-gather entries of a send work request.
    pub max_send_sge: u32,
    /// Scatter-gather entries of a receive work request.
    pub max_recv_sge: u32,
    /// Bytes that a send work request may carry inline.
    pub max_inline_data: u32,
}

/// All attributes of a queue pair (`struct ibv_qp_attr`). Which of them a call means says a
/// [`QpAttrMask`]. First, and together in memory, stand those that each packet looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct QpAttr {
    /// The peer's queue pair.
    pub dest_qp_num: Qpn,
    /// What the peer may do to memory through this queue pair.
    pub access_flags: Access,
    /// Largest payload of a packet.
    pub path_mtu: PathMtu,
    /// Exponent of the time after which a request is sent again, 0 to 31: 4.096 µs · 2^timeout, 0
    /// for never.
    pub timeout: u8,
    /// How often a request without an answer is sent again, 0 to 7.
    pub retry_cnt: u8,
    /// How often a request that found no receive is sent again, 0 to 7; 7 means without end.
    pub rnr_retry: u8,
    /// READ and atomic requests that this side may have on the way at once.
    pub max_rd_atomic: u8,
    /// READ and atomic requests that the peer may have on the way at once.
    pub max_dest_rd_atomic: u8,
    /// The state to go to.
    pub qp_state: QpState,
    /// The state that the caller believes the queue pair to be in.
    pub cur_qp_state: QpState,
    /// Whether to send the asynchronous event "send queue drained".
    pub en_sqd_async_notify: bool,
    /// Whether the send queue is draining (query only).
    pub sq_draining: bool,
    /// Index of the partition key in the port's table.
    pub pkey_index: u16,
    /// The local port, counted from 1.
    pub port_num: u8,
    /// Key of a datagram queue pair: what arrives with another is dropped.
    pub qkey: QKey,
    /// The way to the peer.
    pub ah: AddressVector,
    /// Code of the time that a peer shall wait when it found no receive, 0 to 31.
    pub min_rnr_timer: u8,
    /// The first packet sequence number to arrive.
    pub rq_psn: Psn,
    /// The first packet sequence number to send.
    pub sq_psn: Psn,
    /// State of the alternate path.
    pub path_mig_state: PathMigState,
    /// Another way to the peer. Kept and returned; connections do not migrate.
    pub alt_ah: AddressVector,
    /// Index of the alternate path's partition key.
    pub alt_pkey_index: u16,
    /// Local port of the alternate path, counted from 1.
    pub alt_port_num: u8,
    /// Like `timeout`, on the alternate path.
    pub alt_timeout: u8,
    /// Limit of the sending rate in kbit/s, 0 for none.
    pub rate_limit: u32,
    /// Sizes of the queues.
    pub cap: QpCap,
}

bitflags::bitflags! {
    /// Which attributes a call means (`enum ibv_qp_attr_mask`). Displays as libibverbs' names.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct QpAttrMask: u32 {
        /// `qp_state`
        const STATE = 1;
        /// `cur_qp_state`
        const CUR_STATE = 1 << 1;
        /// `en_sqd_async_notify`
        const EN_SQD_ASYNC_NOTIFY = 1 << 2;
        /// `access_flags`
        const ACCESS_FLAGS = 1 << 3;
        /// `pkey_index`
        const PKEY_INDEX = 1 << 4;
        /// `port_num`
        const PORT = 1 << 5;
        /// `qkey`
        const QKEY = 1 << 6;
        /// `ah`
        const AV = 1 << 7;
        /// `path_mtu`
        const PATH_MTU = 1 << 8;
        /// `timeout`
        const TIMEOUT = 1 << 9;
        /// `retry_cnt`
        const RETRY_CNT = 1 << 10;
        /// `rnr_retry`
        const RNR_RETRY = 1 << 11;
        /// `rq_psn`
        const RQ_PSN = 1 << 12;
        /// `max_rd_atomic`
        const MAX_QP_RD_ATOMIC = 1 << 13;
        /// `alt_ah`, `alt_pkey_index`, `alt_port_num`, `alt_timeout`
        const ALT_PATH = 1 << 14;
        /// `min_rnr_timer`
        const MIN_RNR_TIMER = 1 << 15;
        /// `sq_psn`
        const SQ_PSN = 1 << 16;
        /// `max_dest_rd_atomic`
        const MAX_DEST_RD_ATOMIC = 1 << 17;
        /// `path_mig_state`
        const PATH_MIG_STATE = 1 << 18;
        /// `cap`
        const CAP = 1 << 19;
        /// `dest_qp_num`
        const DEST_QPN = 1 << 20;
        /// `rate_limit`
        const RATE_LIMIT = 1 << 25;
    }
}

impl fmt::Display for QpAttrMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (name, _) in self.iter_names() {
            write!(f, "{separator}IBV_QP_{name}")?;
            separator = " | ";
        }
        let unnamed = self.bits() & !Self::all().bits();
        if unnamed != 0 {
            write!(f, "{separator}{unnamed:#x}")?;
        } else if self.is_empty() {
            f.write_str("0")?;
        }
        Ok(())
    }
}

impl QpAttr {
    /// Takes the attributes of `mask` from `new`; the state and the sizes of the queues are not
    /// among them.
    pub fn update(&mut self, new: &Self, mask: QpAttrMask) {
        macro_rules! take {
            ($($bit:ident: $($field:ident),+;)*) => {$(
                if mask.contains(QpAttrMask::$bit) {
                    $(self.$field = new.$field;)+
                }
            )*};
        }
        take! {
            EN_SQD_ASYNC_NOTIFY: en_sqd_async_notify;
            ACCESS_FLAGS: access_flags;
            PKEY_INDEX: pkey_index;
            PORT: port_num;
            QKEY: qkey;
            AV: ah;
            PATH_MTU: path_mtu;
            TIMEOUT: timeout;
            RETRY_CNT: retry_cnt;
            RNR_RETRY: rnr_retry;
            RQ_PSN: rq_psn;
            MAX_QP_RD_ATOMIC: max_rd_atomic;
            ALT_PATH: alt_ah, alt_pkey_index, alt_port_num, alt_timeout;
            MIN_RNR_TIMER: min_rnr_timer;
            SQ_PSN: sq_psn;
            MAX_DEST_RD_ATOMIC: max_dest_rd_atomic;
            PATH_MIG_STATE: path_mig_state;
            DEST_QPN: dest_qp_num;
            RATE_LIMIT: rate_limit;
        }
    }
}

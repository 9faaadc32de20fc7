//! Attributes of a queue pair, for `ibv_modify_qp` and `ibv_query_qp`.
//!
//! Names and numbers are those of libibverbs' `verbs.h` (`struct ibv_qp_attr`, `enum
//! ibv_qp_attr_mask`, `enum ibv_qp_state`, `enum ibv_qp_type`). IBTA vol. 1, 11.2.5.2 and 11.2.5.3,
//! defines their meaning. The transition table of the queue pair states the attributes of each
//! transition.

use std::fmt;

use urxe_wire::{Gid, Psn, QKey, Qpn, Service};

use crate::access::Access;

#[cfg(test)]
mod tests;

/// Service of a queue pair (`enum ibv_qp_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum QpType {
    /// The queue pair of a device for management datagrams. The kernel has this type
    /// (`IB_QPT_GSI`), libibverbs does not.
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
    /// The types of libibverbs that this stack supports, in the order of their numbers.
    pub const ALL: [Self; 5] = [Self::Rc, Self::Uc, Self::Ud, Self::XrcSend, Self::XrcRecv];

    /// Returns the number in `enum ibv_qp_type`.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Returns the type with this number, if this stack supports the type.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|qp_type| u32::from(qp_type.number()) == number)
    }

    /// Returns whether each message names its own destination.
    #[must_use]
    pub const fn is_datagram(self) -> bool {
        matches!(self.service(), Service::Ud)
    }

    /// Returns whether packets may be marked (ECT), because the sender has a congestion window.
    pub const fn is_ecn_capable(self) -> bool {
        matches!(self.service(), Service::Rc | Service::Xrc)
    }

    /// Returns the service of the opcodes in its packets.
    #[must_use]
    pub const fn service(self) -> Service {
        match self {
            Self::Rc => Service::Rc,
            Self::Uc => Service::Uc,
            Self::Ud | Self::Gsi => Service::Ud,
            Self::XrcSend | Self::XrcRecv => Service::Xrc,
        }
    }

    /// Returns the name.
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
        /// The initial state. No work request can be posted.
        #[default]
        Reset = 0 => "RESET",
        /// Receives can be posted. Packets are dropped.
        Init = 1 => "INIT",
        /// Ready to receive.
        Rtr = 2 => "RTR",
        /// Ready to send.
        Rts = 3 => "RTS",
        /// The send queue completes messages that were started, and starts no others.
        Sqd = 4 => "SQD",
        /// A send failed on an unreliable queue pair. The receive queue continues.
        Sqe = 5 => "SQE",
        /// All posted work requests are flushed.
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
    /// 1024 bytes, the largest MTU for a link of 1500 bytes.
    Mtu1024 = 3,
    /// 2048 bytes.
    Mtu2048 = 4,
    /// 4096 bytes.
    Mtu4096 = 5,
}

impl PathMtu {
    /// All sizes, in the order of their numbers.
    pub const ALL: [Self; 5] =
        [Self::Mtu256, Self::Mtu512, Self::Mtu1024, Self::Mtu2048, Self::Mtu4096];

    /// Returns the number in `enum ibv_mtu`.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Returns the size with this number, if there is one.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|mtu| u32::from(mtu.number()) == number)
    }

    /// Returns the size in bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        128 << self.number()
    }

    /// Returns the largest size of at most `bytes`, or `None` below 256.
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
        /// The connection uses the intended path.
        #[default]
        Migrated = 0 => "MIGRATED",
        /// The alternate path must be prepared.
        Rearm = 1 => "REARM",
        /// The alternate path is prepared.
        Armed = 2 => "ARMED",
    }
}

/// The address of a peer (`struct ibv_ah_attr` with its `struct ibv_global_route`; IBTA vol. 1,
/// 11.2.2.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AddressVector {
    /// GID of the peer.
    pub dgid: Gid,
    /// Flow label of the IP header, 20 bits.
    pub flow_label: u32,
    /// Index of the local address in the port's GID table.
    pub sgid_index: u8,
    /// Hop limit or time to live of the IP header. 0 selects the system's default.
    pub hop_limit: u8,
    /// Traffic class or type of service of the IP header.
    pub traffic_class: u8,
    /// Service level, which a RoCEv2 packet does not contain.
    pub sl: u8,
    /// Source path bits, which a RoCEv2 packet does not contain.
    pub src_path_bits: u8,
    /// Limit of the sending rate (`enum ibv_rate`), or 0 for none.
    pub static_rate: u8,
    /// LID of the peer, which a RoCEv2 packet does not contain.
    pub dlid: u16,
    /// The local port, counted from 1.
    pub port_num: u8,
    /// Whether the fields of the global route (`dgid`, `flow_label`, `sgid_index`, `hop_limit`,
    /// `traffic_class`) are valid.
    pub is_global: bool,
}

/// Sizes of a queue pair's queues (`struct ibv_qp_cap`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct QpCap {
    /// Number of entries in the send queue.
    pub max_send_wr: u32,
    /// Number of entries in the receive queue.
    pub max_recv_wr: u32,
    /// Number of scatter-gather entries in a send work request.
    pub max_send_sge: u32,
    /// Number of scatter-gather entries in a receive work request.
    pub max_recv_sge: u32,
    /// Number of inline bytes in a send work request.
    pub max_inline_data: u32,
}

/// All attributes of a queue pair (`struct ibv_qp_attr`). A [`QpAttrMask`] states which attributes
/// a call uses.
///
/// The attributes that every packet needs come first, so that they share cache lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct QpAttr {
    /// The peer's queue pair.
    pub dest_qp_num: Qpn,
    /// Rights of the peer to memory through this queue pair.
    pub access_flags: Access,
    /// Largest payload of a packet.
    pub path_mtu: PathMtu,
    /// Exponent of the local ACK timeout, 0 to 31: 4.096 µs · 2^timeout, or 0 for no timeout.
    pub timeout: u8,
    /// Number of times that a request without a response is resent. Messages of the connection
    /// manager carry 0 to 7.
    pub retry_cnt: u8,
    /// Number of times that a request without a posted receive is resent, where 7 means forever.
    /// Messages of the connection manager carry 0 to 7.
    pub rnr_retry: u8,
    /// Number of READ and atomic requests that this side may have outstanding.
    pub max_rd_atomic: u8,
    /// Number of READ and atomic requests that the peer may have outstanding. A value above the
    /// device's limit becomes that limit.
    pub max_dest_rd_atomic: u8,
    /// The new state.
    pub qp_state: QpState,
    /// The state that the caller expects the queue pair to be in.
    pub cur_qp_state: QpState,
    /// Whether to send the asynchronous event "send queue drained".
    pub en_sqd_async_notify: bool,
    /// Whether the send queue is draining (query only).
    pub sq_draining: bool,
    /// Index of the partition key in the port's table. Packets have the default key whatever the
    /// index is.
    pub pkey_index: u16,
    /// The local port, counted from 1.
    pub port_num: u8,
    /// Q_Key of a datagram queue pair. Datagrams with another key are dropped.
    pub qkey: QKey,
    /// The address of the peer.
    pub ah: AddressVector,
    /// Code of the time that a peer must wait if there is no posted receive. Packets have its lower
    /// 5 bits.
    pub min_rnr_timer: u8,
    /// First packet sequence number to receive.
    pub rq_psn: Psn,
    /// First packet sequence number to send.
    pub sq_psn: Psn,
    /// State of the alternate path.
    pub path_mig_state: PathMigState,
    /// An alternate path to the peer. It is stored and returned, but connections do not migrate.
    pub alt_ah: AddressVector,
    /// Index of the alternate path's partition key.
    pub alt_pkey_index: u16,
    /// Local port of the alternate path, counted from 1.
    pub alt_port_num: u8,
    /// Like `timeout`, on the alternate path.
    pub alt_timeout: u8,
    /// Limit of the sending rate in kbit/s, or 0 for none.
    pub rate_limit: u32,
    /// Sizes of the queues.
    pub cap: QpCap,
}

bitflags::bitflags! {
    /// The attributes that a call uses (`enum ibv_qp_attr_mask`). `Display` writes libibverbs'
    /// names.
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
    /// Copies the attributes of `mask` from `new`, except the state and the sizes of the queues.
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

//! Unreliable datagrams: messages of one packet, each to whom its work request says, from anybody
//! who knows the Q_Key.
//!
//! | file | subject |
//! |---|---|
//! | `requester` | each message to its address handle |
//! | `responder` | Q_Key, receive, network header, payload |
//!
//! A datagram queue pair belongs to no path: it stands on the path of its oldest message, and goes
//! on to the next one's. The queue pair of management datagrams (QP1) is one with a well-known
//! number and Q_Key.

pub use urxe_wire::network_header;
mod requester;
mod responder;

use urxe_wire::QKey;

pub(super) use self::responder::Responder;
use super::attr::QpType;
use super::qp_core::QpCore;

/// The queue pair's own Q_Key.
fn own_qkey(qp: &QpCore) -> QKey {
    if qp.qp_type == QpType::Gsi { QKey::GSI } else { qp.attr.qkey }
}

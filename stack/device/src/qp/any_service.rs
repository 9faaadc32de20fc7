//! The service of each type of queue pair.

use enum_dispatch::enum_dispatch;
use urxe_wire::PacketView;

use super::attr::{QpCap, QpType};
use super::context::QpContext;
use super::origin::PsnMatch;
use super::qp_core::QpCore;
use super::queue::SendQueue;
use super::recv_queue::RecvQueue;
use super::service::{Absent, ReceiveHalf, SchedulingHint, SendHalf, Service, TransportService};
use super::unreliable::Requester as UnreliableRequester;
use super::work_request::{PostError, SendRequest};
use super::{rc, uc, ud};
use crate::path::acks::Ack;
use crate::path::run::RunBuffer;
use crate::path::scheduler::TransmitStatus;
use urxe_types::allocate::OutOfMemory;
use urxe_types::time::Time;

type Rc = Service<rc::Requester, rc::Responder>;
type Uc = Service<UnreliableRequester, uc::Responder>;
type Ud = Service<UnreliableRequester, ud::Responder>;
/// The sending end of an XRC connection.
type XrcSend = Service<rc::Requester, Absent>;
/// The receiving end of an XRC connection (the XRC target).
type XrcRecv = Service<Absent, rc::Responder>;

/// The service of a queue pair. Stored inside [`Qp`](super::Qp) and not behind a pointer, so
/// that a packet finds the whole queue pair in one piece of memory.
#[enum_dispatch(TransportService)]
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "most queue pairs have the largest variant, that of reliable connections"
)]
pub(super) enum AnyService {
    Rc,
    Uc,
    Ud,
    XrcSend,
    XrcRecv,
}

impl AnyService {
    /// Makes the service for a type of queue pair.
    ///
    /// # Errors
    /// [`OutOfMemory`] for the send queue.
    pub fn new(qp_type: QpType, cap: &QpCap, receives: RecvQueue) -> Result<Self, OutOfMemory> {
        let sends = || SendQueue::new(cap.max_send_wr, cap.max_send_sge, cap.max_inline_data);
        let reliable = || sends().map(rc::Requester::new);
        let unreliable = || sends().map(UnreliableRequester::new);
        Ok(match qp_type {
            QpType::Ud | QpType::Gsi => {
                Service::new(unreliable()?, ud::Responder::new(receives)).into()
            }
            QpType::Uc => Service::new(unreliable()?, uc::Responder::new(receives)).into(),
            QpType::XrcSend => Service::new(reliable()?, Absent).into(),
            QpType::XrcRecv => Service::new(Absent, rc::Responder::new(receives)).into(),
            QpType::Rc => Service::new(reliable()?, rc::Responder::new(receives)).into(),
        })
    }
}

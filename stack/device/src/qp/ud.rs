//! The responder of a datagram queue pair, which accepts messages from every sender that knows the
//! Q_Key, and drops and counts all others.
//!
//! Sources: IBTA vol. 1, 9.8.3.2 (responder), 9.6.1.5.1 (Q_Key), 11.4.1.2 (the GRH takes 40 bytes
//! of the buffer). As in `rxe_recv.c` and `rxe_resp.c`, a message that does not fit its receive is
//! dropped and the receive stays posted.

use std::net::IpAddr;

use urxe_wire::{PacketView, QKey};

use super::attr::QpType;
use crate::cq::{Completion, WcOpcode, WcStatus};
use crate::qp::context::QpContext;
use crate::qp::inbound::local_protection_error;
use crate::qp::qp_core::QpCore;
use crate::qp::recv_queue::RecvQueue;
use crate::qp::service::ReceiveHalf;
use crate::qp::sge_copy::{check, scatter};
use urxe_memory::Access;
use urxe_types::counters::Counter;
pub use urxe_wire::network_header;
use urxe_wire::network_header::NetworkHeader;

/// The responder of a datagram queue pair.
#[derive(Debug)]
pub(super) struct Responder {
    queue: RecvQueue,
}

impl Responder {
    pub fn new(queue: RecvQueue) -> Self {
        Self { queue }
    }
}

impl ReceiveHalf for Responder {
    fn reset(&mut self) {
        self.queue.clear();
    }

    fn flush(&mut self, qp: &mut QpCore, cx: &QpContext<'_>) {
        self.queue.flush(qp, cx);
    }

    fn queue(&mut self) -> Option<&mut RecvQueue> {
        Some(&mut self.queue)
    }

    fn on_request(&mut self, qp: &mut QpCore, cx: &mut QpContext<'_>, packet: &PacketView<'_>) {
        let (Some(deth), Some(arrival)) = (packet.deth(), cx.arrival) else { return };
        if deth.qkey != own_qkey(qp) {
            let (from, given) = (arrival.from, deth.qkey);
            tracing::debug!(qp = %qp.qpn, %from, %given, "dropped: wrong Q_Key");
            return cx.device.counters.add(Counter::DropWrongQkey);
        }
        let Some((wqe, sges)) = self.queue.front() else {
            return cx.device.counters.add(Counter::DropNoReceive);
        };
        let payload = packet.data();
        let total = NetworkHeader::LEN + payload.len();
        if total as u64 > wqe.length {
            return cx.device.counters.add(Counter::DropTooLong);
        }
        let header = network_header::emit(&arrival, packet.packet_len());
        let pins = &mut cx.pins;
        let placed = check(pins, qp.recv_pd, sges, Access::LOCAL_WRITE)
            .and_then(|()| scatter(pins, qp.recv_pd, sges, 0, &header))
            .and_then(|()| scatter(pins, qp.recv_pd, sges, NetworkHeader::LEN as u64, payload));
        if let Err(fault) = placed {
            local_protection_error(qp, &fault);
            return self.queue.fail_locally(qp, cx);
        }
        let Some(wqe) = self.queue.pop() else { return };
        let mut completion = Completion::new(wqe.wr_id, qp.qpn, WcOpcode::Recv, WcStatus::Success)
            .with_byte_len(total as u32)
            .with_grh();
        completion.src_qp = deth.src_qp;
        completion.pkey_index = qp.attr.pkey_index;
        completion.sl = packet_type(arrival.to);
        if let Some(imm) = packet.imm() {
            completion = completion.with_imm(imm.data);
        }
        qp.complete_recv(completion, packet.solicited(), cx);
    }
}

/// Returns the service level of the completion of a datagram to this address.
///
/// RoCE has no service level. NVIDIA's devices report the packet type there: bit 3 says that the
/// packet has a UDP header, bits 0 to 2 are 1 for IPv6 and 2 for IPv4. UCX 1.13 to 1.18 finds the
/// destination in the network header by this type (`uct_ud_iface_check_grh` in `ud_iface.h`), and
/// drops datagrams over IPv4 if the type is missing. `rdma_rxe` reports 0.
fn packet_type(to: IpAddr) -> u8 {
    let version = if to.is_ipv4() { 2 } else { 1 };
    1 << 3 | version
}

/// Returns the Q_Key of the queue pair.
pub(super) fn own_qkey(qp: &QpCore) -> QKey {
    if qp.qp_type == QpType::Gsi { QKey::GSI } else { qp.attr.qkey }
}

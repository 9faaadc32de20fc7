//! What marks of routers and notifications of peers do: see [`ecn`](crate::path::ecn).

use std::net::IpAddr;

use urxe_wire::{Kind, PacketView};

use super::Device;
use super::counters::Counter;
use crate::qp::Qp;
use crate::qp::context::Context;
use urxe_types::sync::lock;
use urxe_types::time::Time;

impl Device {
    /// Handles the mark of a router on `packet`, which was delivered to `qp`. Only packets with
    /// data count: an acknowledgement has no window that its sender could take back. Returns
    /// whether a congestion notification waits at the path.
    #[cold]
    pub(super) fn on_mark(
        &self,
        qp: Option<&mut Qp>,
        context: &Context<'_>,
        packet: &PacketView<'_>,
    ) -> bool {
        let qp = qp.filter(|qp| packet.payload_len() > 0 && qp.is_ecn_capable());
        let Some(qp) = qp else { return false };
        self.counters.add(Counter::EcnMarked);
        if packet.info().kind == Kind::ReadResponse {
            context.path.window.on_marked_responses(context.now);
        }
        qp.notify_peer(context.now)
            .is_some_and(|cnp| context.path.cnps.add(std::iter::once(cnp)).1 == 0)
    }

    /// A congestion notification came. No queue pair is held.
    #[cold]
    pub(super) fn receive_cnp(&self, now: Time, from: IpAddr, packet: &PacketView<'_>) {
        let slot = self.index_of(packet.dest_qp()).and_then(|index| self.qps.at(index));
        let sends_on = |qp: &Qp| {
            let (path, peer) = qp.path?;
            let is_its = qp.core.qpn == packet.dest_qp()
                && qp.is_ecn_capable()
                && peer == from
                && qp.core.pkey.matches(packet.pkey());
            is_its.then_some(path)
        };
        let path = slot.and_then(|slot| lock(&slot.qp).as_ref().and_then(sends_on));
        match path.and_then(|index| self.paths.at(index)) {
            Some(path) => {
                path.window.on_cnp(now);
                self.counters.add(Counter::CnpHandled);
            }
            None => self.counters.add(Counter::CnpIgnored),
        }
    }
}

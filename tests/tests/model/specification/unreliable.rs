//! Messages over an unreliable connection. A faulty message is dropped as a whole, without any
//! notification.

use urxe_stack::cq::WcStatus;
use urxe_stack::memory::Access;
use urxe_stack::qp::attr::QpState;
use urxe_stack::qp::work_request::SendOp;

use super::{Done, Event, Model};
use crate::keys::Accessor;
use crate::operation::{Piece, QPS, Queue, Send};

impl Model {
    /// Delivers a message over an unreliable connection, or drops it as a whole.
    pub(super) fn unreliable(&mut self, qp: usize, send: &Send, bytes: &[u8]) {
        let Some(peer) = QPS[qp].peer else { return };
        if self.states[peer] == QpState::Err {
            return self.count("UC: to a queue pair in error");
        }
        let Some((accessor, queue)) = self.reach(peer, send) else { return };
        let (remote, imm) = match send.op {
            SendOp::Write { remote } => (remote, None),
            SendOp::WriteImm { remote, imm } => (remote, Some(imm)),
            _ => return self.unreliable_send(peer, accessor, queue, send, bytes),
        };
        // The last packet, which may also be the first, needs the receive.
        if imm.is_some() && bytes.len() <= self.mtu && self.hold(peer, queue).is_none() {
            return self.count("UC: no receive");
        }
        let mut at = 0;
        if !bytes.is_empty() {
            let piece =
                Piece { key: remote.rkey.value(), addr: remote.addr, len: bytes.len() as u32 };
            let Ok(place) = self.resolve(accessor, piece, Access::REMOTE_WRITE) else {
                return self.count("UC: no right");
            };
            at = place;
        }
        if imm.is_some() && self.hold(peer, queue).is_none() {
            self.leave_open(accessor.device, at..at + bytes.len());
            return self.count("UC: no receive");
        }
        self.memory[accessor.device][at..at + bytes.len()].copy_from_slice(bytes);
        if let Some(imm) = imm {
            self.immediate(peer, queue, send, imm);
        }
    }

    fn unreliable_send(
        &mut self,
        peer: usize,
        accessor: Accessor,
        queue: Queue,
        send: &Send,
        bytes: &[u8],
    ) {
        let Some(front) = self.hold(peer, queue) else { return self.count("UC: no receive") };
        let own = Accessor { qp: None, ..accessor };
        let Ok(places) = self.places(own, &front.pieces, Access::LOCAL_WRITE) else {
            self.take_held(peer, queue);
            return self.receive_fails(peer, queue, front.wr_id);
        };
        if bytes.len() > front.len() {
            places.into_iter().for_each(|place| self.leave_open(own.device, place));
            return self.count("UC: too long");
        }
        self.scatter(own.device, &places, bytes);
        self.take_held(peer, queue);
        self.count(if matches!(queue, Queue::Srq(_)) {
            "UC: received from a shared queue"
        } else {
            "UC: received"
        });
        let done = Done::received(peer, front.wr_id, bytes.len(), send.send_imm());
        self.receive_done(peer, queue, done, send.solicited);
    }

    /// Fails a receive that cannot be used. On an unreliable queue pair, the sender gets no error.
    pub(super) fn receive_fails(&mut self, peer: usize, queue: Queue, wr_id: u64) {
        self.count("a receive that cannot be used");
        let done = Done::failed_recv(peer, wr_id, WcStatus::LocProtErr);
        self.receive_done(peer, queue, done, false);
        self.events.push(Event::Fatal(peer));
        self.fail(peer);
    }
}

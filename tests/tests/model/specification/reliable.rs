//! Requests over a reliable connection, XRC included: the receiver executes a request, or refuses
//! it with a NAK.

use std::ops::Range;

use urxe_stack::cq::{WcOpcode, WcStatus};
use urxe_stack::memory::Access;
use urxe_stack::qp::attr::QpState;
use urxe_stack::qp::work_request::{FlushRange, Remote, SendOp};

use super::{Done, Event, Model, Refused};
use crate::keys::{Accessor, Refusal};
use crate::operation::{Data, Piece, QPS, Queue, Recv, Send, To};

/// Returns the right that a request needs at the peer, and the memory there; `None` for a SEND.
fn remote_access(send: &Send) -> Option<(Access, Remote, usize)> {
    Some(match send.op {
        SendOp::Write { remote } | SendOp::WriteImm { remote, .. } => {
            (Access::REMOTE_WRITE, remote, send.len())
        }
        SendOp::AtomicWrite { remote } => (Access::REMOTE_WRITE, remote, 8),
        SendOp::Read { remote } => (Access::REMOTE_READ, remote, send.len()),
        SendOp::CompareSwap { remote, .. } | SendOp::FetchAdd { remote, .. } => {
            (Access::REMOTE_ATOMIC, remote, 8)
        }
        SendOp::Flush { remote, range: FlushRange::Bytes(len), .. } => {
            (Access::FLUSH_GLOBAL, remote, len as usize)
        }
        SendOp::Flush { .. } => unreachable!("{:?}", send.op),
        _ => return None,
    })
}

impl Model {
    /// Executes a request over a reliable connection.
    pub(super) fn reliable(
        &mut self,
        qp: usize,
        send: &Send,
        bytes: &[u8],
        destination: Result<Vec<Range<usize>>, Refusal>,
    ) -> Result<(), Refused> {
        let Some(peer) = QPS[qp].peer else { unreachable!("a connection has a peer") };
        if self.states[peer] == QpState::Err {
            return Err(Refused(WcStatus::RetryExcErr));
        }
        let Some((accessor, queue)) = self.reach(peer, send) else {
            let is_there = matches!(send.to, To::OtherDomain(_));
            self.count(if is_there {
                "XRC: a queue of another domain"
            } else {
                "no such shared receive queue"
            });
            return self.refuse(peer, Event::RequestError(peer), WcStatus::RemInvReqErr);
        };
        let rights = QPS[peer].access;
        let Some((need, remote, len)) = remote_access(send) else {
            return self.message(peer, accessor, queue, send, bytes);
        };
        if !rights.contains(need) {
            self.count("the queue pair grants no such thing");
            return self.refuse(peer, Event::RequestError(peer), WcStatus::RemInvReqErr);
        }
        let single = len <= self.mtu;
        let needs_receive =
            matches!(send.op, SendOp::WriteImm { .. }) && self.front(queue).is_none();
        if needs_receive && single {
            return Err(Refused(WcStatus::RnrRetryExcErr));
        }
        // C9-88: a request without bytes needs no key.
        let at = if len == 0 {
            0
        } else {
            let piece = Piece { key: remote.rkey.value(), addr: remote.addr, len: len as u32 };
            let Ok(at) = self.resolve(accessor, piece, need) else {
                let is_write_imm = matches!(send.op, SendOp::WriteImm { .. });
                if is_write_imm && single && matches!(queue, Queue::Srq(_)) {
                    self.flush_taken(peer, queue);
                }
                return self.refuse(peer, Event::AccessError(peer), WcStatus::RemAccessErr);
            };
            at
        };
        let there = accessor.device;
        if needs_receive {
            // All packets but the last may have been written.
            self.leave_open(there, at..at + len);
            return Err(Refused(WcStatus::RnrRetryExcErr));
        }
        let brought = self.access(send, there, at..at + len, bytes);
        if let SendOp::WriteImm { imm, .. } = send.op {
            self.immediate(peer, queue, send, imm);
        }
        if send.op.returns_data() {
            let Ok(places) = destination else {
                // Valid pieces may have been written.
                let Data::Pieces(pieces) = &send.data else {
                    unreachable!("inline data with a READ")
                };
                self.open_own(qp, pieces);
                return Err(Refused(WcStatus::LocProtErr));
            };
            self.scatter(QPS[qp].device, &places, &brought);
        }
        Ok(())
    }

    /// Changes the memory of the device `there`. Returns the data that the request returns.
    fn access(&mut self, send: &Send, there: usize, at: Range<usize>, bytes: &[u8]) -> Vec<u8> {
        let old = match send.op {
            SendOp::Read { .. } | SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } => {
                self.memory[there][at.clone()].to_vec()
            }
            _ => Vec::new(),
        };
        let word = || u64::from_ne_bytes(old[..].try_into().unwrap_or_default());
        let new = match send.op {
            SendOp::Write { .. } | SendOp::WriteImm { .. } | SendOp::AtomicWrite { .. } => bytes,
            SendOp::CompareSwap { compare, swap, .. } if word() == compare => {
                self.count("compared and swapped");
                &swap.to_ne_bytes()
            }
            SendOp::FetchAdd { add, .. } => &word().wrapping_add(add).to_ne_bytes(),
            _ => return old,
        };
        self.memory[there][at].copy_from_slice(new);
        old
    }

    /// Flushes a receive that was taken from a shared queue before its message was refused, because
    /// it belongs to the queue pair.
    fn flush_taken(&mut self, peer: usize, queue: Queue) {
        let Some(Recv { wr_id, .. }) = self.take(queue) else { return };
        self.count("a taken receive flushed");
        let done = Done::failed_recv(peer, wr_id, WcStatus::WrFlushErr);
        self.receive_done(peer, queue, done, false);
    }

    fn open_own(&mut self, qp: usize, pieces: &[Piece]) {
        let own = Accessor { device: QPS[qp].device, pd: QPS[qp].pd, qp: None };
        for Piece { key, addr, len } in pieces.iter().copied() {
            // The longest valid part of the piece.
            let fits = (1..=len as usize).rev();
            let found =
                fits.map(|len| (self.keys.resolve(own, key, Access::LOCAL_WRITE, addr, len), len));
            if let Some((Ok(at), len)) = found.into_iter().find(|(place, _)| place.is_ok()) {
                self.leave_open(own.device, at..at + len);
            }
        }
    }

    /// Completes the receive of a WRITE with immediate data, without access to the receive's memory
    /// or keys.
    pub(super) fn immediate(&mut self, peer: usize, queue: Queue, send: &Send, imm: u32) {
        let Some(recv) = self.take_held(peer, queue) else { return };
        self.count("a WRITE with immediate received");
        let done = Done::received(peer, recv.wr_id, send.len(), Some(imm));
        let done = Done { opcode: WcOpcode::RecvRdmaWithImm, ..done };
        self.receive_done(peer, queue, done, send.solicited);
    }

    /// Delivers a SEND over a reliable connection.
    fn message(
        &mut self,
        peer: usize,
        accessor: Accessor,
        queue: Queue,
        send: &Send,
        bytes: &[u8],
    ) -> Result<(), Refused> {
        let Some(front) = self.front(queue).cloned() else {
            self.count(if matches!(queue, Queue::Srq(_)) {
                "a shared queue was empty"
            } else {
                "no receive"
            });
            return Err(Refused(WcStatus::RnrRetryExcErr));
        };
        let in_error = |status| Done::failed_recv(peer, front.wr_id, status);
        let own = Accessor { qp: None, ..accessor };
        let Ok(places) = self.places(own, &front.pieces, Access::LOCAL_WRITE) else {
            self.take(queue);
            self.count("a receive that cannot be used");
            self.receive_done(peer, queue, in_error(WcStatus::LocProtErr), false);
            return self.refuse(peer, Event::Fatal(peer), WcStatus::RemOpErr);
        };
        if bytes.len() > front.len() {
            places.into_iter().for_each(|place| self.leave_open(own.device, place));
            self.take(queue);
            self.count("a receive that is too short");
            self.receive_done(peer, queue, in_error(WcStatus::LocLenErr), false);
            return self.refuse(peer, Event::RequestError(peer), WcStatus::RemInvReqErr);
        }
        self.scatter(own.device, &places, bytes);
        let mut invalidated = None;
        if let SendOp::SendInvalidate { rkey } = send.op {
            if !self.invalidate(peer, accessor.pd, rkey.value(), true) {
                self.count("remote invalidation refused");
                self.take(queue);
                self.receive_done(peer, queue, in_error(WcStatus::RemInvReqErr), false);
                return self.refuse(peer, Event::RequestError(peer), WcStatus::RemInvReqErr);
            }
            self.count("invalidated by the peer");
            invalidated = Some(rkey.value());
        }
        self.take(queue);
        self.count("received");
        let done = Done::received(peer, front.wr_id, bytes.len(), send.send_imm());
        let done = Done { invalidated, ..done };
        self.receive_done(peer, queue, done, send.solicited);
        Ok(())
    }
}

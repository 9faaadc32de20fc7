//! Random operations, most of them valid. The generator also chooses faults, one at a time.
//!
//! A list of requests follows the rules of a careful program, because its outcome would be open
//! otherwise. Requests after a READ, an atomic or the like are fenced. Local requests are alone in
//! their list. A message with unreadable data is unreadable from its first byte.

mod keys;
mod local;
mod membership;
mod queues;

use urxe_stack::memory::Access;
use urxe_stack::qp::attr::{QpState, QpType};
use urxe_stack::qp::work_request::{FlushRange, Remote, SendOp};
use urxe_stack::rng::{Probability, Rng};
use urxe_wire::{PlacementType, Rkey};

use crate::keys::{Accessor, Key, Kind};
use crate::operation::{Data, INLINE, Operation, Piece, QPS, SRQS, Send, To};
use crate::specification::Model;

/// A generator of operations.
pub struct Generator {
    rng: Rng,
    next_wr_id: u64,
}

impl Generator {
    pub fn new(seed: u64) -> Self {
        Self { rng: Rng::stream(seed, 0x0de1), next_wr_id: 1 }
    }

    fn percent(&mut self, percent: u32) -> bool {
        self.rng.chance(Probability::from_percent(percent))
    }

    /// Returns the next operation, for the current state of the model.
    pub fn next(&mut self, model: &Model) -> Operation {
        let operation = self.any(model);
        match Self::waits_for(model, &operation) {
            Some(qp) => Operation::Resume { qp },
            None => operation,
        }
    }

    fn any(&mut self, model: &Model) -> Operation {
        let qp = self.rng.index(QPS.len());
        if model.states[qp] == QpState::Sqd && self.percent(30) {
            return Operation::Resume { qp };
        }
        if !matches!(model.states[qp], QpState::Rts | QpState::Sqd) && self.percent(75) {
            return Operation::Restart { qp };
        }
        if let Some(cq) = self.overfull(model) {
            return Operation::Poll { cq, polled: true };
        }
        for device in 0..2 {
            let usable = model
                .keys
                .0
                .iter()
                .filter(|key| key.device == device && key.is_valid && key.pd == 0);
            if usable.count() < 3 {
                return self.registration(device, 0);
            }
        }
        match self.rng.index(100) {
            0..46 => self.sends(model, qp),
            46..74 => self.receives(model, qp),
            74 if self.may_drain(model, qp) => Operation::Drain { qp },
            74..76 => self.modify_srq(model),
            76 => Operation::Fail { qp },
            77..81 => self.completions(model, qp),
            81..84 => Operation::Xrc(self.xrc(model)),
            84..86 => self.membership(model),
            _ => self.keys(model),
        }
    }

    fn wr_id(&mut self) -> u64 {
        self.next_wr_id += 1;
        self.next_wr_id
    }

    fn length(&mut self, mtu: usize) -> usize {
        match self.rng.index(10) {
            0 => 0,
            1 => self.rng.pick(&[mtu - 1, mtu, mtu + 1, 2 * mtu]),
            2..6 => 1 + self.rng.index(60),
            _ => 1 + self.rng.index(900),
        }
    }

    /// Returns whether a queue pair can send, and is in the state before draining.
    fn may_drain(&self, model: &Model, qp: usize) -> bool {
        model.states[qp] == QpState::Rts && QPS[qp].qp_type != QpType::XrcRecv
    }

    /// Returns pieces of local memory for `len` bytes in all; `faults` per cent of them are wrong.
    fn local(
        &mut self,
        model: &Model,
        accessor: Accessor,
        need: Access,
        len: usize,
        faults: u32,
    ) -> Vec<Piece> {
        let usable: Vec<&Key> = model
            .keys
            .0
            .iter()
            .filter(|key| {
                key.exists
                    && key.is_valid
                    && key.device == accessor.device
                    && key.pd == accessor.pd
                    && key.access.contains(need)
                    && !matches!(key.kind, Kind::Window { .. })
            })
            .collect();
        if usable.is_empty() || self.percent(faults) {
            return vec![self.wrong_piece(model, accessor, need, len.max(1))];
        }
        let count = 1 + self.rng.index(3);
        let mut pieces = Vec::new();
        let mut left = len;
        for nr in 0..count {
            let key = self.rng.pick(&usable);
            let wanted = if nr + 1 == count { left } else { self.rng.index(left + 1) };
            let len = wanted.min(key.len);
            let offset = self.rng.index(key.len - len + 1) as u64;
            pieces.push(Piece { key: key.value, addr: key.start + offset, len: len as u32 });
            left -= len;
        }
        pieces
    }

    /// Returns a piece that is invalid from its first byte.
    fn wrong_piece(
        &mut self,
        model: &Model,
        accessor: Accessor,
        need: Access,
        len: usize,
    ) -> Piece {
        let mut piece = Piece { key: self.rng.next_u32() | 1 << 31, addr: 0x1000, len: len as u32 };
        let former_regions = Self::former_regions(model, accessor, need, len);
        if !former_regions.is_empty() && self.percent(40) {
            let Key { value, start, .. } = *self.rng.pick(&former_regions);
            return Piece { key: value, addr: start, ..piece };
        }
        for _ in 0..12 {
            let Some(key) = model.keys.0.get(self.rng.index(model.keys.0.len().max(1))) else {
                break;
            };
            if key.device != accessor.device {
                continue;
            }
            let beyond = key.start + key.len as u64 + self.rng.below(64);
            let addr = if self.percent(30) { beyond } else { key.start };
            let value = if self.percent(20) { key.value ^ 0x55 } else { key.value };
            let candidate = Piece { key: value, addr, len: len as u32 };
            if model.keys.resolve(accessor, value, need, addr, 1).is_err() {
                piece = candidate;
                break;
            }
        }
        piece
    }

    /// Returns a place in the peer's memory for `len` bytes, mostly a permitted one.
    fn remote(&mut self, model: &Model, accessor: Accessor, need: Access, len: usize) -> Remote {
        let of_device: Vec<&Key> =
            model.keys.0.iter().filter(|key| key.device == accessor.device).collect();
        let good: Vec<&Key> = of_device
            .iter()
            .copied()
            .filter(|key| {
                len <= key.len
                    && model.keys.resolve(accessor, key.value, need, key.start, len.max(1)).is_ok()
            })
            .collect();
        let fault = self.percent(5);
        if good.is_empty() || fault {
            if of_device.is_empty() {
                return Remote { addr: 0x1000, rkey: Rkey(0x1234_5678) };
            }
            // The most informative faults: another queue pair's window, another domain, a missing
            // right, or a removed key.
            let refused = |key: &&Key| {
                key.is_valid
                    && model.keys.resolve(accessor, key.value, need, key.start, len.max(1)).is_err()
            };
            let live: Vec<&Key> = of_device.iter().copied().filter(refused).collect();
            let windows: Vec<&Key> = live
                .iter()
                .copied()
                .filter(|key| matches!(key.kind, Kind::Window { .. }))
                .collect();
            let former_regions = Self::former_regions(model, accessor, need, len.max(1));
            if !former_regions.is_empty() && self.percent(30) {
                let Key { value, start, .. } = *self.rng.pick(&former_regions);
                return Remote { addr: start, rkey: Rkey(value) };
            }
            let key = match self.rng.index(3) {
                0 if !windows.is_empty() => self.rng.pick(&windows),
                1 if !live.is_empty() => self.rng.pick(&live),
                _ => self.rng.pick(&of_device),
            };
            let value = if self.percent(15) { key.value ^ 0x33 } else { key.value };
            let by = if self.percent(15) { key.len as u64 / 8 * 8 } else { 0 };
            return Remote { addr: key.start + by, rkey: Rkey(value) };
        }
        // Windows are rarer than regions, and reveal more faults.
        let windows: Vec<&Key> =
            good.iter().copied().filter(|key| !matches!(key.kind, Kind::Region)).collect();
        let key = if windows.is_empty() || self.percent(50) {
            self.rng.pick(&good)
        } else {
            self.rng.pick(&windows)
        };
        let offset = self.rng.index(key.len - len + 1);
        let offset = if len == 8 { offset / 8 * 8 } else { offset };
        Remote { addr: key.start + offset as u64, rkey: Rkey(key.value) }
    }

    fn sends(&mut self, model: &Model, qp: usize) -> Operation {
        // The receiving end of XRC sends nothing.
        let qp = if QPS[qp].qp_type == QpType::XrcRecv { 11 } else { qp };
        if !model.waiting[qp].is_empty() {
            // Only one list waits at a time, because a second one would need a fence.
            return Operation::Resume { qp };
        }
        if QPS[qp].qp_type == QpType::Rc && self.percent(8) {
            return self.local_request(model, qp);
        }
        let mut list: Vec<Send> = Vec::new();
        let count = 1 + self.rng.index(3);
        for _ in 0..count {
            let fence = list.iter().any(|send| send.op.has_response());
            let send = self.one_send(model, qp, fence, count == 1);
            list.push(send);
        }
        Operation::Send { qp, list }
    }

    fn one_send(&mut self, model: &Model, qp: usize, fence: bool, alone: bool) -> Send {
        let plan = &QPS[qp];
        let to = match plan.qp_type {
            QpType::XrcSend => self.xrc_queue(model),
            QpType::Ud => self.datagram_to(model, qp, alone),
            _ => To::Peer,
        };
        let peer_pd = match (to, plan.peer) {
            (To::Srq(Some(srq)), _) => SRQS[srq].pd,
            (_, Some(peer)) => QPS[peer].pd,
            _ => 0,
        };
        let there = Accessor { device: 1 - plan.device, pd: peer_pd, qp: plan.peer };
        let here = Accessor { device: plan.device, pd: plan.pd, qp: None };
        let mut len = self.length(model.mtu);
        if plan.qp_type == QpType::Ud && self.percent(97) {
            len = len.min(model.mtu);
        }
        let imm = self.rng.next_u32();
        let kind = match plan.qp_type {
            QpType::Ud => self.rng.pick(&[0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 3]),
            QpType::Uc => self.rng.pick(&[0, 1, 3, 4, 0, 1, 3, 4, 0, 1, 3, 4, 5]),
            _ => self.rng.index(11),
        };
        if kind >= 6 {
            len = 8;
        }
        let rights = [
            Access::REMOTE_WRITE,
            Access::REMOTE_READ,
            Access::REMOTE_ATOMIC,
            Access::FLUSH_GLOBAL,
        ];
        let need = match kind {
            3 | 4 | 9 => rights[0],
            5 => rights[1],
            6..=8 => rights[2],
            _ => rights[3],
        };
        let mut remote = self.remote(model, there, need, len);
        if (6..=9).contains(&kind) && self.percent(3) {
            remote.addr += 1;
        }
        let cell = model.keys.resolve(there, remote.rkey.value(), need, remote.addr, 8);
        let value = cell.map_or(0, |at| {
            u64::from_ne_bytes(
                model.memory[there.device][at..at + 8].try_into().unwrap_or_default(),
            )
        });
        let compare = if self.percent(60) { value } else { value ^ 1 };
        let op = match kind {
            0 => SendOp::Send,
            1 => SendOp::SendImm { imm },
            2 => SendOp::SendInvalidate { rkey: self.lent_key(model, there) },
            3 => SendOp::Write { remote },
            4 => SendOp::WriteImm { remote, imm },
            5 => SendOp::Read { remote },
            6 => SendOp::CompareSwap { remote, compare, swap: u64::from(imm) },
            7 | 8 => SendOp::FetchAdd { remote, add: u64::from(imm) },
            9 => SendOp::AtomicWrite { remote },
            _ => SendOp::Flush {
                remote,
                placement: PlacementType::GLOBAL_VISIBILITY,
                range: FlushRange::Bytes(len as u32),
            },
        };
        let need = op.local_access();
        let data = if matches!(op, SendOp::Flush { .. }) {
            Data::Pieces(Vec::new())
        } else if !op.returns_data() && len <= INLINE && self.percent(30) {
            let mut bytes = vec![0; len];
            self.rng.fill(&mut bytes);
            Data::Inline(bytes)
        } else {
            // One fault at a time: a response needs a working peer.
            let sound =
                plan.peer.is_none_or(|peer| model.states[peer] == QpState::Rts) && cell.is_ok();
            let faults = if op.returns_data() && !sound { 0 } else { 2 };
            Data::Pieces(self.local(model, here, need, len, faults))
        };
        let (signaled, solicited) = (self.percent(70), self.percent(40));
        Send { wr_id: self.wr_id(), op, to, signaled, fence, solicited, data }
    }

    /// Returns a key of the peer that a SEND may invalidate, mostly.
    fn lent_key(&mut self, model: &Model, there: Accessor) -> Rkey {
        let mine = |key: &&Key| {
            let bound = !matches!(key.kind, Kind::Window { bound_by, .. } if bound_by != there.qp);
            key.device == there.device
                && key.is_valid
                && key.pd == there.pd
                && bound
                && !matches!(key.kind, Kind::Region)
        };
        let lent: Vec<&Key> = model.keys.0.iter().filter(mine).collect();
        if lent.is_empty() || self.percent(15) {
            let any = model.keys.0.get(self.rng.index(model.keys.0.len().max(1)));
            return Rkey(any.map_or(0x7777_7777, |key| key.value));
        }
        Rkey(self.rng.pick(&lent).value)
    }
}

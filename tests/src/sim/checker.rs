//! Compares what happened with the model, completion by completion and byte by byte, and tells each
//! difference.

#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::Range;

use urxe_stack::cq::{Completion, WcOpcode, WcStatus};

use super::generate::region_of;
use super::model::{Message, Model, read_u64};
use super::plan::{EndId, Op, Plan, Queue, Role};

/// After so many differences nobody reads further ones.
const MAX_DIFFERENCES: usize = 20;

/// The judge of one run.
#[derive(Debug)]
pub struct Checker<'a> {
    plan: &'a Plan,
    model: &'a Model,
    /// Remote keys of all regions, by device and region.
    rkeys: Vec<Vec<u32>>,
    /// By end: what has completed.
    progress: Vec<Progress>,
    /// Ends that are judged elsewhere, because their connection must break.
    exempt: Vec<EndId>,
    /// Memory whose contents depends on when it broke, by device.
    exempt_memory: Vec<(usize, Range<usize>)>,
    differences: Vec<Difference>,
}

#[derive(Clone, Debug, Default)]
struct Progress {
    /// Index of the next signalled send.
    send: usize,
    /// Index of the next receive.
    recv: usize,
}

/// Something that is not as it must be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Difference {
    /// A completion came that is not the next one of its queue: repeated, skipped, out of order or
    /// never posted.
    #[error("{end} {queue}: wr_id {got:#x} completed, {}", next(*.expected))]
    Order {
        /// Where.
        end: EndId,
        /// In which queue.
        queue: Queue,
        /// The `wr_id` that is next, if any is.
        expected: Option<u64>,
        /// The one that came.
        got: u64,
    },
    /// A work request failed.
    #[error("{end} {queue} {index}: {status}")]
    Status {
        /// Where.
        end: EndId,
        /// In which queue.
        queue: Queue,
        /// Its place in the plan.
        index: usize,
        /// How.
        status: WcStatus,
    },
    /// A field of a completion is wrong.
    #[error("{end} {queue} {index}: {field} is {got}, not {expected}")]
    Field {
        /// Where.
        end: EndId,
        /// In which queue.
        queue: Queue,
        /// Its place in the plan.
        index: usize,
        /// Which field.
        field: &'static str,
        /// What it must be.
        expected: String,
        /// What it is.
        got: String,
    },
    /// A byte is wrong when its work request completes, or at the end.
    #[error(
        "device {device}, byte {address:#x} {when}: {got:#04x}, not {expected:#04x}, and {others} more"
    )]
    Byte {
        /// Which device's memory.
        device: usize,
        /// Where in it.
        address: usize,
        /// What it must be.
        expected: u8,
        /// What it is.
        got: u8,
        /// How many bytes of the same check are wrong besides.
        others: usize,
        /// When it was seen.
        when: &'static str,
    },
    /// Work requests without a completion.
    #[error("{end} {queue} {index} has not completed")]
    Missing {
        /// Where.
        end: EndId,
        /// In which queue.
        queue: Queue,
        /// The first of them in the plan.
        index: usize,
    },
    /// The old values of a shared cell do not form one chain: an addition was lost or made twice.
    #[error(
        "device {device}, shared cell {address:#x}: only {fit} of {of} additions follow each other"
    )]
    Chain {
        /// Which device's memory.
        device: usize,
        /// Where in it.
        address: usize,
        /// How many of the additions fit.
        fit: usize,
        /// How many there are.
        of: usize,
    },
}

fn next(expected: Option<u64>) -> String {
    expected.map_or_else(|| "but all had".to_owned(), |next| format!("{next:#x} was next"))
}

impl fmt::Display for EndId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "connection {} end {}", self.connection, self.side)
    }
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Send => "send",
            Self::Recv => "recv",
        })
    }
}

impl<'a> Checker<'a> {
    /// A judge of `plan`, whose regions have these remote keys (by device and region).
    #[must_use]
    pub fn new(plan: &'a Plan, model: &'a Model, rkeys: Vec<Vec<u32>>) -> Self {
        let mut checker = Self {
            plan,
            model,
            rkeys,
            progress: vec![Progress::default(); plan.connections.len() * 2],
            exempt: Vec::new(),
            exempt_memory: Vec::new(),
            differences: Vec::new(),
        };
        for (end, _) in plan.ends() {
            checker.progress_mut(end).send = checker.next_signaled(end, 0);
        }
        checker
    }

    /// Leaves out an end, and the memory that it and its peer change.
    pub fn exempt(&mut self, end: EndId) {
        self.exempt.push(end);
        let device = self.plan.end(end).device;
        for role in [Role::Landing, Role::Target, Role::Cells] {
            let region = region_of(self.plan, end.connection, end.side, role);
            self.exempt_region(device, region);
        }
        for (_, region) in self.plan.invalidated(end.peer()) {
            self.exempt_region(device, region);
        }
        // Others add to the same shared cells, but those of the broken connection may or may not.
        for (device, plan) in self.plan.devices.iter().enumerate() {
            let shared = plan.regions.iter().filter(|region| region.role == Role::SharedCells);
            self.exempt_memory.extend(shared.map(|region| (device, region.range.clone())));
        }
    }

    fn exempt_region(&mut self, device: usize, region: usize) {
        let range = self.plan.devices[device].regions[region].range.clone();
        self.exempt_memory.push((device, range));
    }

    /// Everything found up to now.
    #[must_use]
    pub fn differences(&self) -> &[Difference] {
        &self.differences
    }

    /// Whether every work request that must complete has.
    #[must_use]
    pub fn all_complete(&self) -> bool {
        self.plan.ends().filter(|(id, _)| !self.exempt.contains(id)).all(|(id, end)| {
            let progress = &self.progress[id.connection * 2 + id.side];
            progress.send == end.sends.len() && progress.recv == end.recvs.len()
        })
    }

    /// How many of the sends of `end`, unsignalled ones included, are known to be complete.
    #[must_use]
    pub fn sends_complete(&self, end: EndId) -> usize {
        let sends = &self.plan.end(end).sends;
        let next = self.progress[end.connection * 2 + end.side].send;
        // Behind the last one that completed there may be unsignalled ones of which nobody knows.
        (0..next)
            .rev()
            .find(|&index| self.is_signaled(end, index))
            .map_or(0, |index| index + 1)
            .min(sends.len())
    }

    /// How many of the receives of `end` have completed.
    #[must_use]
    pub fn recvs_complete(&self, end: EndId) -> usize {
        self.progress[end.connection * 2 + end.side].recv
    }

    /// The region that the peer says it is done with, by the message of this place in the receives
    /// of `end`.
    #[must_use]
    pub fn released(&self, end: EndId, index: usize) -> Option<usize> {
        self.model.direction(end.peer()).messages.get(index)?.releases
    }

    /// A completion of the queue pair of `end`. `memory` reads a device's memory as it is now.
    pub fn completion(
        &mut self,
        end: EndId,
        completion: &Completion,
        memory: &mut dyn FnMut(usize, Range<usize>) -> Vec<u8>,
    ) {
        let got = completion.wr_id;
        let progress = self.progress[end.connection * 2 + end.side].clone();
        let plan = self.plan.end(end);
        let next_send = (progress.send < plan.sends.len())
            .then(|| self.plan.wr_id(end, Queue::Send, progress.send));
        let next_recv = (progress.recv < plan.recvs.len())
            .then(|| self.plan.wr_id(end, Queue::Recv, progress.recv));
        let queue =
            if (got ^ self.plan.seed << 48) >> 31 & 1 == 1 { Queue::Recv } else { Queue::Send };
        let (expected, index) = match queue {
            Queue::Send => (next_send, progress.send),
            Queue::Recv => (next_recv, progress.recv),
        };
        if expected != Some(got) {
            return self.report(Difference::Order { end, queue, expected, got });
        }
        match queue {
            Queue::Send => {
                self.progress_mut(end).send = self.next_signaled(end, progress.send + 1);
            }
            Queue::Recv => self.progress_mut(end).recv += 1,
        }
        let status = completion.status;
        match queue {
            _ if status != WcStatus::Success => {
                self.report(Difference::Status { end, queue, index, status });
            }
            Queue::Send => self.send_completion(end, index, completion, memory),
            Queue::Recv => self.recv_completion(end, index, completion, memory),
        }
    }

    /// The end of the run: what has not completed, and every byte of every device's memory.
    pub fn finish(&mut self, images: &[Vec<u8>]) {
        let exempt = self.exempt.clone();
        for (id, end) in self.plan.ends().filter(|(id, _)| !exempt.contains(id)) {
            let progress = self.progress[id.connection * 2 + id.side].clone();
            for (queue, index, count) in [
                (Queue::Send, progress.send, end.sends.len()),
                (Queue::Recv, progress.recv, end.recvs.len()),
            ] {
                if index < count {
                    self.report(Difference::Missing { end: id, queue, index });
                }
            }
        }
        for (device, image) in images.iter().enumerate() {
            self.bytes(device, 0, image, "at the end");
        }
        if self.exempt.is_empty() {
            self.chains(images);
        }
    }

    fn progress_mut(&mut self, end: EndId) -> &mut Progress {
        &mut self.progress[end.connection * 2 + end.side]
    }

    fn is_signaled(&self, end: EndId, index: usize) -> bool {
        let plan = self.plan.end(end);
        plan.all_signaled || plan.sends[index].signaled
    }

    fn next_signaled(&self, end: EndId, from: usize) -> usize {
        let count = self.plan.end(end).sends.len();
        (from..count).find(|&index| self.is_signaled(end, index)).unwrap_or(count)
    }

    fn report(&mut self, difference: Difference) {
        if self.differences.len() < MAX_DIFFERENCES {
            self.differences.push(difference);
        }
    }

    fn field<T: PartialEq + fmt::Debug>(
        &mut self,
        (end, queue, index): (EndId, Queue, usize),
        field: &'static str,
        expected: T,
        got: T,
    ) {
        if expected != got {
            let (expected, got) = (format!("{expected:?}"), format!("{got:?}"));
            self.report(Difference::Field { end, queue, index, field, expected, got });
        }
    }

    fn send_completion(
        &mut self,
        end: EndId,
        index: usize,
        completion: &Completion,
        memory: &mut dyn FnMut(usize, Range<usize>) -> Vec<u8>,
    ) {
        let at = (end, Queue::Send, index);
        let device = self.plan.end(end).device;
        let send = &self.plan.end(end).sends[index];
        self.field(at, "opcode", send.op.wc_opcode(), completion.opcode);
        if send.op.returns_data() {
            self.field(at, "byte_len", send.local.len(), completion.byte_len as usize);
            let shared = self.is_shared(end, &send.op);
            for &piece in send.local.pieces().iter().filter(|_| !shared) {
                let range = self.plan.range(device, piece);
                let bytes = memory(device, range.clone());
                self.bytes(device, range.start, &bytes, "when its READ or atomic completed");
            }
        }
    }

    fn recv_completion(
        &mut self,
        end: EndId,
        index: usize,
        completion: &Completion,
        memory: &mut dyn FnMut(usize, Range<usize>) -> Vec<u8>,
    ) {
        let at = (end, Queue::Recv, index);
        let device = self.plan.end(end).device;
        let Message { byte_len, is_write, imm, invalidates, releases: _ } =
            self.model.direction(end.peer()).messages[index].clone();
        let opcode = if is_write { WcOpcode::RecvRdmaWithImm } else { WcOpcode::Recv };
        self.field(at, "opcode", opcode, completion.opcode);
        self.field(at, "byte_len", byte_len, completion.byte_len as usize);
        self.field(at, "imm_data", imm, completion.imm_data());
        let invalidated = invalidates.map(|region| self.rkeys[device][region]);
        self.field(
            at,
            "invalidated_rkey",
            invalidated,
            completion.invalidated_rkey().map(|key| key.value()),
        );
        if !is_write {
            for &piece in &self.plan.end(end).recvs[index].pieces {
                let range = self.plan.range(device, piece);
                let bytes = memory(device, range.clone());
                self.bytes(device, range.start, &bytes, "when its receive completed");
            }
        }
    }

    /// Whether an operation adds to a shared cell: its old value is judged at the end.
    fn is_shared(&self, end: EndId, op: &Op) -> bool {
        let Op::FetchAdd { at, .. } = *op else { return false };
        let device = self.plan.end(end.peer()).device;
        let address = self.plan.devices[device].regions[at.region].range.start + at.offset;
        self.model.shared.iter().any(|cell| (cell.device, cell.address) == (device, address))
    }

    fn bytes(&mut self, device: usize, start: usize, bytes: &[u8], when: &'static str) {
        let expected = &self.model.images[device][start..start + bytes.len()];
        if expected == bytes {
            return;
        }
        let wrong = |&(offset, got): &(usize, &u8)| {
            let address = start + offset;
            !self.model.permits(device, address, *got)
                && !self.is_old_value(device, address)
                && !self
                    .exempt_memory
                    .iter()
                    .any(|(at, range)| *at == device && range.contains(&address))
        };
        let mut all = bytes.iter().enumerate().filter(wrong);
        let first = all.next().map(|(offset, got)| (offset, *got));
        let others = all.count();
        if let Some((offset, got)) = first {
            let (address, expected) = (start + offset, expected[offset]);
            self.report(Difference::Byte { device, address, expected, got, others, when });
        }
    }

    /// Whether the old value of a shared cell arrives here.
    fn is_old_value(&self, device: usize, address: usize) -> bool {
        let mut adds = self.model.shared.iter().flat_map(|cell| &cell.adds);
        adds.any(|&(at, landing, _)| at == device && (landing..landing + 8).contains(&address))
    }

    /// The old values of a shared cell must be all the sums on the way, each once.
    fn chains(&mut self, images: &[Vec<u8>]) {
        let model = self.model;
        for cell in &model.shared {
            let mut adds: Vec<(u64, u64)> = cell
                .adds
                .iter()
                .map(|&(device, landing, add)| (read_u64(&images[device], landing), add))
                .collect();
            let of = adds.len();
            let mut sum = cell.initial;
            while let Some(next) = adds.iter().position(|&(old, _)| old == sum) {
                sum = sum.wrapping_add(adds.swap_remove(next).1);
            }
            if !adds.is_empty() {
                let (device, address, fit) = (cell.device, cell.address, of - adds.len());
                self.report(Difference::Chain { device, address, fit, of });
            }
        }
    }
}

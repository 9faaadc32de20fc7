//! Compares completions and memory with the model, byte by byte, and reports each difference.

#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::Range;

use urxe_stack::cq::{Completion, WcOpcode, WcStatus};

use super::generate::region_of;
use super::model::{Message, Model, read_u64};
use super::plan::{EndId, Op, Plan, Queue, Role};

/// The most differences that are kept.
const MAX_DIFFERENCES: usize = 20;

/// The checker of one run.
#[derive(Debug)]
pub struct Checker<'a> {
    plan: &'a Plan,
    model: &'a Model,
    /// The remote keys of all regions, by device and region.
    rkeys: Vec<Vec<u32>>,
    /// The progress of each end.
    progress: Vec<Progress>,
    /// Ends that [`peer_loss`](super::peer_loss) checks, because their connections must break.
    exempt: Vec<EndId>,
    /// Memory whose contents depend on the time of the break, by device.
    exempt_memory: Vec<(usize, Range<usize>)>,
    differences: Vec<Difference>,
}

#[derive(Clone, Debug, Default)]
struct Progress {
    /// The index of the next signalled send.
    send: usize,
    /// The index of the next receive.
    recv: usize,
}

/// A difference from the expected outcome.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Difference {
    /// A completion is not the next one of its queue: repeated, skipped, out of order or never
    /// posted.
    #[error("{end} {queue}: wr_id {got:#x} completed, {}", next(*.expected))]
    Order {
        /// The end.
        end: EndId,
        /// The queue.
        queue: Queue,
        /// The expected `wr_id`, if another completion is due.
        expected: Option<u64>,
        /// The actual `wr_id`.
        got: u64,
    },
    /// A work request failed.
    #[error("{end} {queue} {index}: {status}")]
    Status {
        /// The end.
        end: EndId,
        /// The queue.
        queue: Queue,
        /// The index of the request in the plan.
        index: usize,
        /// The status.
        status: WcStatus,
    },
    /// A field of a completion has a wrong value.
    #[error("{end} {queue} {index}: {field} is {got}, not {expected}")]
    Field {
        /// The end.
        end: EndId,
        /// The queue.
        queue: Queue,
        /// The index of the request in the plan.
        index: usize,
        /// The name of the field.
        field: &'static str,
        /// The expected value.
        expected: String,
        /// The actual value.
        got: String,
    },
    /// A byte is wrong at a completion or at the end.
    #[error(
        "device {device}, byte {address:#x} {when}: {got:#04x}, not {expected:#04x}, \
         and {others} more"
    )]
    Byte {
        /// The device.
        device: usize,
        /// The address in the device's memory.
        address: usize,
        /// The expected value.
        expected: u8,
        /// The actual value.
        got: u8,
        /// The number of other wrong bytes in the same check.
        others: usize,
        /// The time of the check.
        when: &'static str,
    },
    /// A work request has no completion.
    #[error("{end} {queue} {index} has not completed")]
    Missing {
        /// The end.
        end: EndId,
        /// The queue.
        queue: Queue,
        /// The index of the first such request in the plan.
        index: usize,
    },
    /// The old values of a shared cell form no chain: an addition was lost or executed twice.
    #[error(
        "device {device}, shared cell {address:#x}: only {fit} of {of} additions follow each other"
    )]
    Chain {
        /// The device.
        device: usize,
        /// The address in the device's memory.
        address: usize,
        /// The number of additions that fit the chain.
        fit: usize,
        /// The number of all additions.
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
    /// Creates a checker of `plan`, whose regions have these remote keys (by device and region).
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

    /// Excludes an end, and the memory that the end and its peer change.
    pub fn exempt(&mut self, end: EndId) {
        self.exempt.push(end);
        let device = self.plan.end(end).device;
        for role in [Role::Destination, Role::Target, Role::Cells] {
            let region = region_of(self.plan, end.connection, end.side, role);
            self.exempt_region(device, region);
        }
        for (_, region) in self.plan.invalidated(end.peer()) {
            self.exempt_region(device, region);
        }
        // Other ends add to the same shared cells; whether the broken connection's additions
        // happened is open.
        for (device, plan) in self.plan.devices.iter().enumerate() {
            let shared = plan.regions.iter().filter(|region| region.role == Role::SharedCells);
            self.exempt_memory.extend(shared.map(|region| (device, region.range.clone())));
        }
    }

    fn exempt_region(&mut self, device: usize, region: usize) {
        let range = self.plan.devices[device].regions[region].range.clone();
        self.exempt_memory.push((device, range));
    }

    /// Returns all differences found so far.
    #[must_use]
    pub fn differences(&self) -> &[Difference] {
        &self.differences
    }

    /// Returns whether every work request that must complete has completed.
    #[must_use]
    pub fn all_complete(&self) -> bool {
        self.plan.ends().filter(|(id, _)| !self.exempt.contains(id)).all(|(id, end)| {
            let progress = &self.progress[id.connection * 2 + id.side];
            progress.send == end.sends.len() && progress.recv == end.recvs.len()
        })
    }

    /// Returns the number of sends of `end` that are known to be complete, unsignalled ones
    /// included.
    #[must_use]
    pub fn sends_complete(&self, end: EndId) -> usize {
        let sends = &self.plan.end(end).sends;
        let next = self.progress[end.connection * 2 + end.side].send;
        // Unsignalled requests after the last completion may be complete as well, without a sign.
        (0..next)
            .rev()
            .find(|&index| self.is_signaled(end, index))
            .map_or(0, |index| index + 1)
            .min(sends.len())
    }

    /// Returns the number of completed receives of `end`.
    #[must_use]
    pub fn recvs_complete(&self, end: EndId) -> usize {
        self.progress[end.connection * 2 + end.side].recv
    }

    /// Returns the region that the peer releases by the message in this receive of `end`.
    #[must_use]
    pub fn released(&self, end: EndId, index: usize) -> Option<usize> {
        self.model.direction(end.peer()).messages.get(index)?.releases
    }

    /// Checks a completion of the queue pair of `end`. `memory` reads a device's current memory.
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

    /// Checks the end of the run: missing completions, and every byte of every device's memory.
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

    /// Returns whether an operation adds to a shared cell, whose old values are checked at the end.
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

    /// Returns whether the old value of a shared cell is stored at this address.
    fn is_old_value(&self, device: usize, address: usize) -> bool {
        let mut adds = self.model.shared.iter().flat_map(|cell| &cell.adds);
        adds.any(|&(at, destination, _)| {
            at == device && (destination..destination + 8).contains(&address)
        })
    }

    /// Checks that the old values of each shared cell are all intermediate sums, each once.
    fn chains(&mut self, images: &[Vec<u8>]) {
        let model = self.model;
        for cell in &model.shared {
            let mut adds: Vec<(u64, u64)> = cell
                .adds
                .iter()
                .map(|&(device, destination, add)| (read_u64(&images[device], destination), add))
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

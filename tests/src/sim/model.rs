//! Computes the outcome of a plan by replaying every direction in the order of posting, without a
//! network.
//!
//! Directions are independent: each has memory of its own at both ends, except for shared cells.
//! The sum in a shared cell does not depend on the order of the additions. The old values must form
//! one chain ([`Model::shared`]).

use std::collections::BTreeMap;
use std::ops::Range;

use super::plan::{EndId, EndPlan, Local, Op, Piece, Place, Plan, Role};

/// The expected outcome.
#[derive(Clone, Debug)]
pub struct Model {
    /// Every device's memory at the end. Bytes in [`open`](Self::open) and old values of shared
    /// cells may differ.
    pub images: Vec<Vec<u8>>,
    /// The outcome of each direction, by its sending end, in the order of [`Plan::ends`].
    pub directions: Vec<Direction>,
    /// Bytes that may have several values, by device and address.
    pub open: BTreeMap<(usize, usize), Vec<u8>>,
    /// Shared cells and all additions to them.
    pub shared: Vec<SharedCell>,
}

/// The outcome of one direction.
#[derive(Clone, Debug, Default)]
pub struct Direction {
    /// The messages that complete a receive at the peer, in order.
    pub messages: Vec<Message>,
    /// The index in `messages` of each send that is a message.
    pub message_of_send: Vec<Option<usize>>,
}

/// The expected contents of a receive completion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The length; for a WRITE with immediate data, the length of the WRITE.
    pub byte_len: usize,
    /// Whether it is a WRITE with immediate data.
    pub is_write: bool,
    /// Immediate data.
    pub imm: Option<u32>,
    /// The region on the receiver's device that the message invalidates.
    pub invalidates: Option<usize>,
    /// The region that the sender releases.
    pub releases: Option<usize>,
}

/// A cell to which several directions add.
#[derive(Clone, Debug)]
pub struct SharedCell {
    /// The device.
    pub device: usize,
    /// The address in the device's memory.
    pub address: usize,
    /// The value before the run.
    pub initial: u64,
    /// For each addition: the device and address where the old value is stored, and the addend.
    pub adds: Vec<(usize, usize, u64)>,
}

impl Model {
    /// Replays a plan.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        let mut model = Self {
            images: (0..plan.devices.len()).map(|device| plan.initial_image(device)).collect(),
            directions: Vec::new(),
            open: BTreeMap::new(),
            shared: shared_cells(plan),
        };
        for (id, end) in plan.ends() {
            let direction = model.replay(plan, end, plan.end(id.peer()));
            model.directions.push(direction);
        }
        for cell in &model.shared {
            let sum =
                cell.adds.iter().fold(cell.initial, |sum, (_, _, add)| sum.wrapping_add(*add));
            let range = cell.address..cell.address + 8;
            model.images[cell.device][range].copy_from_slice(&sum.to_ne_bytes());
        }
        model
    }

    /// Returns the direction whose sender is `end`.
    #[must_use]
    pub fn direction(&self, end: EndId) -> &Direction {
        &self.directions[end.connection * 2 + end.side]
    }

    /// Returns whether `value` is permitted at this address at the end, or after its work request
    /// has completed.
    #[must_use]
    pub fn permits(&self, device: usize, address: usize, value: u8) -> bool {
        self.images[device][address] == value
            || self.open.get(&(device, address)).is_some_and(|others| others.contains(&value))
    }

    fn replay(&mut self, plan: &Plan, end: &EndPlan, peer: &EndPlan) -> Direction {
        let mut direction = Direction::default();
        // READs whose source later requests may still change.
        let mut unfenced = Vec::new();
        for send in &end.sends {
            if send.fence {
                unfenced.clear();
            }
            let len = send.local.len();
            let message = message(&send.op, len);
            direction.message_of_send.push(message.as_ref().map(|_| direction.messages.len()));
            match send.op {
                Op::Send | Op::SendImm(_) | Op::SendInvalidate(_) | Op::SendRelease(_) => {
                    let data = self.gather(plan, end.device, &send.local);
                    let pieces = &peer.recvs[direction.messages.len()].pieces;
                    self.scatter(plan, peer.device, pieces, &data);
                }
                Op::Write(place) | Op::WriteImm(place, _) | Op::AtomicWrite(place) => {
                    let data = self.gather(plan, end.device, &send.local);
                    let target = range_of(plan, peer.device, place, len);
                    self.permit_later_writes(&unfenced, &target, &data);
                    self.images[peer.device][target].copy_from_slice(&data);
                }
                Op::Read(place) => {
                    let source = range_of(plan, peer.device, place, len);
                    let data = self.images[peer.device][source.clone()].to_vec();
                    self.scatter(plan, end.device, send.local.pieces(), &data);
                    unfenced.push(Read::new(plan, end.device, source, send.local.pieces()));
                }
                Op::Flush { .. } => {}
                Op::CompareSwap { at, compare, swap } => {
                    self.atomic(plan, end, peer, &send.local, at, |old| {
                        if old == compare { swap } else { old }
                    })
                }
                Op::FetchAdd { at, add } => {
                    let address = range_of(plan, peer.device, at, 8).start;
                    let destination = plan.range(end.device, send.local.pieces()[0]).start;
                    let shared = self
                        .shared
                        .iter_mut()
                        .find(|cell| (cell.device, cell.address) == (peer.device, address));
                    match shared {
                        Some(cell) => cell.adds.push((end.device, destination, add)),
                        None => {
                            self.atomic(plan, end, peer, &send.local, at, |old| {
                                old.wrapping_add(add)
                            });
                        }
                    }
                }
            }
            direction.messages.extend(message);
        }
        direction
    }

    fn gather(&self, plan: &Plan, device: usize, local: &Local) -> Vec<u8> {
        match local {
            Local::Inline(parts) => parts.concat(),
            Local::Pieces(pieces) => pieces
                .iter()
                .flat_map(|&piece| &self.images[device][plan.range(device, piece)])
                .copied()
                .collect(),
        }
    }

    fn scatter(&mut self, plan: &Plan, device: usize, pieces: &[Piece], data: &[u8]) {
        let mut rest = data;
        for &piece in pieces {
            let (now, later) = rest.split_at(piece.len.min(rest.len()));
            let start = plan.range(device, piece).start;
            self.images[device][start..start + now.len()].copy_from_slice(now);
            rest = later;
        }
        assert!(rest.is_empty(), "the plan's buffers are too short");
    }

    fn atomic(
        &mut self,
        plan: &Plan,
        end: &EndPlan,
        peer: &EndPlan,
        local: &Local,
        at: Place,
        change: impl Fn(u64) -> u64,
    ) {
        let cell = range_of(plan, peer.device, at, 8);
        let old = read_u64(&self.images[peer.device], cell.start);
        self.images[peer.device][cell].copy_from_slice(&change(old).to_ne_bytes());
        self.scatter(plan, end.device, local.pieces(), &old.to_ne_bytes());
    }

    /// Adds the data of later WRITEs to the permitted values of READs without a fence.
    fn permit_later_writes(&mut self, unfenced: &[Read], target: &Range<usize>, data: &[u8]) {
        for read in unfenced {
            let both = read.source.start.max(target.start)..read.source.end.min(target.end);
            for address in both {
                let destination = read.destination(address - read.source.start);
                self.open
                    .entry((read.device, destination))
                    .or_default()
                    .push(data[address - target.start]);
            }
        }
    }
}

/// A READ: its source and its destination.
struct Read {
    device: usize,
    source: Range<usize>,
    destination: Vec<Range<usize>>,
}

impl Read {
    fn new(plan: &Plan, device: usize, source: Range<usize>, pieces: &[Piece]) -> Self {
        Self {
            device,
            source,
            destination: pieces.iter().map(|&piece| plan.range(device, piece)).collect(),
        }
    }

    /// Returns the destination address of byte `index`.
    fn destination(&self, index: usize) -> usize {
        let mut index = index;
        for range in &self.destination {
            if index < range.len() {
                return range.start + index;
            }
            index -= range.len();
        }
        unreachable!("the plan's buffers are as long as the READ")
    }
}

fn message(op: &Op, len: usize) -> Option<Message> {
    let (imm, invalidates) = match *op {
        Op::SendImm(imm) | Op::WriteImm(_, imm) => (Some(imm), None),
        Op::SendInvalidate(region) => (None, Some(region)),
        _ => (None, None),
    };
    let releases = if let Op::SendRelease(region) = *op { Some(region) } else { None };
    op.consumes_recv().then_some(Message {
        byte_len: len,
        is_write: !op.is_send(),
        imm,
        invalidates,
        releases,
    })
}

fn range_of(plan: &Plan, device: usize, place: Place, len: usize) -> Range<usize> {
    plan.range(device, Piece { region: place.region, offset: place.offset, len })
}

fn shared_cells(plan: &Plan) -> Vec<SharedCell> {
    let mut cells = Vec::new();
    for (device, device_plan) in plan.devices.iter().enumerate() {
        let image = plan.initial_image(device);
        for region in device_plan.regions.iter().filter(|region| region.role == Role::SharedCells) {
            for address in region.range.clone().step_by(8) {
                let initial = read_u64(&image, address);
                cells.push(SharedCell { device, address, initial, adds: Vec::new() });
            }
        }
    }
    cells
}

/// Returns eight bytes in the host's byte order.
///
/// # Panics
/// If the bytes are outside `image`.
#[must_use]
pub fn read_u64(image: &[u8], address: usize) -> u64 {
    u64::from_ne_bytes(std::array::from_fn(|i| image[address + i]))
}

//! What a plan must lead to, by replaying every direction in the order of posting, without a
//! network.
//!
//! Directions do not disturb each other: each has its own memory at both ends, but for shared
//! cells, which several add to. The sum there does not depend on the order; the old values that
//! come back must form one chain ([`Model::shared`]).

use std::collections::BTreeMap;
use std::ops::Range;

use super::plan::{EndId, EndPlan, Local, Op, Piece, Place, Plan, Role};

/// What must come out.
#[derive(Clone, Debug)]
pub struct Model {
    /// Every device's memory at the end. Bytes in [`open`](Self::open) and old values of shared
    /// cells may differ.
    pub images: Vec<Vec<u8>>,
    /// What each direction leads to, by its sending end: side by side as [`Plan::ends`] lists them.
    pub directions: Vec<Direction>,
    /// Bytes that may have several values, by device and address.
    pub open: BTreeMap<(usize, usize), Vec<u8>>,
    /// Shared cells and everything that is added to them.
    pub shared: Vec<SharedCell>,
}

/// What one direction leads to.
#[derive(Clone, Debug, Default)]
pub struct Direction {
    /// Messages that complete a receive at the peer, in order.
    pub messages: Vec<Message>,
    /// Index in `messages` for each send, if it is one.
    pub message_of_send: Vec<Option<usize>>,
}

/// What a receive must show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its length; that of the WRITE for one with immediate data.
    pub byte_len: usize,
    /// Whether it is a WRITE with immediate data.
    pub is_write: bool,
    /// Immediate data.
    pub imm: Option<u32>,
    /// The region that it invalidated, on the receiver's device.
    pub invalidates: Option<usize>,
    /// The region that the sender is done with.
    pub releases: Option<usize>,
}

/// A cell that several directions add to.
#[derive(Clone, Debug)]
pub struct SharedCell {
    /// The device.
    pub device: usize,
    /// Address in its memory.
    pub address: usize,
    /// Its value before the run.
    pub initial: u64,
    /// Where each old value arrives (device, address), and what was added.
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

    /// The direction whose sender is `end`.
    #[must_use]
    pub fn direction(&self, end: EndId) -> &Direction {
        &self.directions[end.connection * 2 + end.side]
    }

    /// Whether `value` is permitted at this address at the end, or as soon as its work request has
    /// completed.
    #[must_use]
    pub fn permits(&self, device: usize, address: usize, value: u8) -> bool {
        self.images[device][address] == value
            || self.open.get(&(device, address)).is_some_and(|others| others.contains(&value))
    }

    fn replay(&mut self, plan: &Plan, end: &EndPlan, peer: &EndPlan) -> Direction {
        let mut direction = Direction::default();
        // READs that later requests may still disturb.
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
                    self.disturb(&unfenced, &target, &data);
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
                    let landing = plan.range(end.device, send.local.pieces()[0]).start;
                    let shared = self
                        .shared
                        .iter_mut()
                        .find(|cell| (cell.device, cell.address) == (peer.device, address));
                    match shared {
                        Some(cell) => cell.adds.push((end.device, landing, add)),
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

    /// READs without a fence behind them may also see what later requests write.
    fn disturb(&mut self, unfenced: &[Read], target: &Range<usize>, data: &[u8]) {
        for read in unfenced {
            let both = read.source.start.max(target.start)..read.source.end.min(target.end);
            for address in both {
                let landing = read.landing(address - read.source.start);
                self.open
                    .entry((read.device, landing))
                    .or_default()
                    .push(data[address - target.start]);
            }
        }
    }
}

/// A READ: where its bytes come from and where they land.
struct Read {
    device: usize,
    source: Range<usize>,
    landing: Vec<Range<usize>>,
}

impl Read {
    fn new(plan: &Plan, device: usize, source: Range<usize>, pieces: &[Piece]) -> Self {
        Self {
            device,
            source,
            landing: pieces.iter().map(|&piece| plan.range(device, piece)).collect(),
        }
    }

    /// Where byte `index` of the message lands.
    fn landing(&self, index: usize) -> usize {
        let mut index = index;
        for range in &self.landing {
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

/// Eight bytes in the host's order.
///
/// # Panics
/// If they do not lie in `image`.
#[must_use]
pub fn read_u64(image: &[u8], address: usize) -> u64 {
    u64::from_ne_bytes(std::array::from_fn(|i| image[address + i]))
}

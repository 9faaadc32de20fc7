//! The checker must accept a perfect run and find every single fault in another one.

use std::collections::BTreeMap;

use urxe_wire::{Qpn, Rkey};

use super::*;
use crate::sim::generate::{Profile, generate};

/// A correct run as a program sees the run, derived from the model.
struct Run {
    plan: Plan,
    model: Model,
    completions: Vec<(EndId, Completion)>,
    images: Vec<Vec<u8>>,
}

impl Run {
    fn perfect(seed: u64) -> Self {
        let plan = generate(seed, &Profile::default());
        let model = Model::new(&plan);
        let mut completions = Vec::new();
        for (id, end) in plan.ends() {
            for (index, message) in model.direction(id.peer()).messages.iter().enumerate() {
                completions.push((id, received(&plan, id, index, message)));
            }
            for (index, send) in end.sends.iter().enumerate() {
                if end.all_signaled || send.signaled {
                    let (wr_id, opcode) = (plan.wr_id(id, Queue::Send, index), send.op.wc_opcode());
                    let completion =
                        Completion::new(wr_id, Qpn::default(), opcode, WcStatus::Success);
                    completions.push((id, completion.with_byte_len(send.local.len() as u32)));
                }
            }
        }
        let mut images = model.images.clone();
        for cell in &model.shared {
            let mut sum = cell.initial;
            for &(device, destination, add) in &cell.adds {
                images[device][destination..destination + 8].copy_from_slice(&sum.to_ne_bytes());
                sum = sum.wrapping_add(add);
            }
        }
        Self { plan, model, completions, images }
    }

    fn differences(&self) -> Vec<Difference> {
        let mut checker = Checker::new(&self.plan, &self.model, rkeys(&self.plan));
        for (end, completion) in &self.completions {
            checker.completion(*end, completion, &mut |device, range| {
                self.images[device][range].to_vec()
            });
        }
        let complete = checker.all_complete();
        checker.finish(&self.images);
        let missing =
            checker.differences().iter().any(|found| matches!(found, Difference::Missing { .. }));
        // A full list has no room for missing completions.
        assert!(complete != missing || checker.differences.len() == MAX_DIFFERENCES);
        checker.differences.clone()
    }

    /// Returns the first runs that have the situation that `pick` looks for.
    fn with<T>(pick: impl Fn(&Self) -> Option<T>) -> impl Iterator<Item = (Self, T)> {
        let runs =
            (0..200).map(Self::perfect).filter_map(move |run| pick(&run).map(|found| (run, found)));
        runs.take(3)
    }
}

fn rkeys(plan: &Plan) -> Vec<Vec<u32>> {
    let keys = |device: usize| move |region: usize| (device << 16 | region) as u32;
    let regions = plan.devices.iter().enumerate();
    regions.map(|(device, plan)| (0..plan.regions.len()).map(keys(device)).collect()).collect()
}

fn received(plan: &Plan, id: EndId, index: usize, message: &Message) -> Completion {
    let opcode = if message.is_write { WcOpcode::RecvRdmaWithImm } else { WcOpcode::Recv };
    let wr_id = plan.wr_id(id, Queue::Recv, index);
    let mut completion = Completion::new(wr_id, Qpn::default(), opcode, WcStatus::Success)
        .with_byte_len(message.byte_len as u32);
    if let Some(imm) = message.imm {
        completion = completion.with_imm(imm);
    }
    if let Some(region) = message.invalidates {
        completion = completion.with_invalidated(Rkey(rkeys(plan)[plan.end(id).device][region]));
    }
    completion
}

#[test]
fn perfect_runs_are_accepted() {
    for seed in 0..20 {
        assert_eq!(Run::perfect(seed).differences(), [], "seed {seed}");
    }
}

#[test]
fn a_missing_completion_is_found() {
    let mut found = 0;
    for (mut run, ()) in Run::with(|run| (run.completions.len() > 20).then_some(())) {
        let last = run.completions.len() - 1;
        for index in [0, 7, last] {
            let taken = run.completions.remove(index);
            assert!(!run.differences().is_empty());
            run.completions.insert(index, taken);
            found += 1;
        }
    }
    assert_eq!(found, 9);
}

#[test]
fn a_repeated_completion_is_found() {
    for (mut run, ()) in Run::with(|run| (run.completions.len() > 20).then_some(())) {
        for index in [0, 7, run.completions.len() - 1] {
            let again = run.completions[index];
            run.completions.push(again);
            let is_order = |found: &Difference| matches!(found, Difference::Order { .. });
            assert!(run.differences().iter().any(is_order));
            run.completions.pop();
        }
    }
}

#[test]
fn completions_out_of_order_are_found() {
    let neighbours = |run: &Run| {
        let same_queue = |pair: &[(EndId, Completion)]| {
            pair[0].0 == pair[1].0 && (pair[0].1.wr_id ^ pair[1].1.wr_id) >> 31 & 1 == 0
        };
        run.completions.windows(2).position(same_queue)
    };
    for (mut run, index) in Run::with(neighbours) {
        run.completions.swap(index, index + 1);
        assert!(run.differences().iter().any(|found| matches!(found, Difference::Order { .. })));
    }
}

#[test]
fn wrong_fields_are_found() {
    let a_recv = |run: &Run| {
        let with_imm = |(_, completion): &(EndId, Completion)| completion.imm_data().is_some();
        run.completions.iter().position(with_imm)
    };
    for (mut run, index) in Run::with(a_recv) {
        let right = run.completions[index].1;
        let imm = right.imm_data().unwrap();
        let mut wrong_opcode = right;
        wrong_opcode.opcode = WcOpcode::RdmaRead;
        let wrong = [
            ("byte_len", right.with_byte_len(right.byte_len + 1)),
            ("imm_data", right.with_imm(imm ^ 1)),
            ("opcode", wrong_opcode),
            ("invalidated_rkey", right.with_invalidated(Rkey(imm))),
        ];
        for (name, completion) in wrong {
            run.completions[index].1 = completion;
            let named = |found: &Difference| match found {
                Difference::Field { field, .. } => *field == name,
                _ => false,
            };
            assert!(run.differences().iter().any(named), "{name}");
        }
        run.completions[index].1.status = WcStatus::WrFlushErr;
        assert!(run.differences().iter().any(|found| matches!(found, Difference::Status { .. })));
    }
}

#[test]
fn every_wrong_byte_is_found_in_regions_and_between() {
    for seed in 0..4 {
        let mut run = Run::perfect(seed);
        let mut old_values: BTreeMap<usize, Vec<Range<usize>>> = BTreeMap::new();
        for &(device, destination, _) in run.model.shared.iter().flat_map(|cell| &cell.adds) {
            old_values.entry(device).or_default().push(destination..destination + 8);
        }
        for device in 0..run.images.len() {
            for address in (0..run.images[device].len()).step_by(16_381) {
                let value = run.images[device][address];
                let wrong = (1..=255)
                    .map(|flip| value ^ flip)
                    .find(|&wrong| !run.model.permits(device, address, wrong));
                run.images[device][address] = wrong.unwrap();
                let found = run.differences();
                run.images[device][address] = value;
                assert!(!found.is_empty(), "seed {seed}, device {device}, byte {address:#x}");
            }
        }
    }
}

#[test]
fn bytes_are_judged_when_a_read_completes_not_only_at_the_end() {
    let a_read = |run: &Run| {
        run.plan.ends().find_map(|(id, end)| {
            let is_read = |(index, send): &(usize, &crate::sim::plan::SendPlan)| {
                matches!(send.op, Op::Read(_))
                    && send.local.len() > 10
                    && (end.all_signaled || end.sends[*index].signaled)
            };
            let (index, send) = end.sends.iter().enumerate().find(is_read)?;
            let piece = send.local.pieces().iter().find(|piece| piece.len > 0)?;
            Some((
                run.plan.wr_id(id, Queue::Send, index),
                end.device,
                run.plan.range(end.device, *piece).start,
            ))
        })
    };
    for (run, (wr_id, read_device, address)) in Run::with(a_read) {
        let mut checker = Checker::new(&run.plan, &run.model, rkeys(&run.plan));
        for (end, completion) in &run.completions {
            checker.completion(*end, completion, &mut |device, range| {
                let mut bytes = run.images[device][range.clone()].to_vec();
                if completion.wr_id == wr_id && device == read_device && range.contains(&address) {
                    bytes[address - range.start] = !bytes[address - range.start];
                }
                bytes
            });
        }
        checker.finish(&run.images);
        let late = |found: &Difference| match found {
            Difference::Byte { when, .. } => *when != "at the end",
            _ => false,
        };
        assert!(checker.differences().iter().any(late));
    }
}

#[test]
fn an_addition_made_twice_or_lost_is_found() {
    let busy_cell = |run: &Run| run.model.shared.iter().position(|cell| cell.adds.len() >= 3);
    for (mut run, index) in Run::with(busy_cell) {
        let cell = run.model.shared[index].clone();
        // The second addition found the same value as the first: one addition is lost.
        let (device, destination, _) = cell.adds[1];
        let right = run.images[device][destination..destination + 8].to_vec();
        run.images[device][destination..destination + 8]
            .copy_from_slice(&cell.initial.to_ne_bytes());
        assert!(run.differences().iter().any(|found| matches!(found, Difference::Chain { .. })));
        run.images[device][destination..destination + 8].copy_from_slice(&right);
        // The last addition was executed twice.
        let sum = read_u64(&run.images[cell.device], cell.address).wrapping_add(cell.adds[0].2);
        run.images[cell.device][cell.address..cell.address + 8].copy_from_slice(&sum.to_ne_bytes());
        assert!(run.differences().iter().any(|found| matches!(found, Difference::Byte { .. })));
    }
}

#[test]
fn an_unfenced_read_may_see_either_value_and_nothing_else() {
    let an_open_byte =
        |run: &Run| run.model.open.iter().next().map(|(at, others)| (*at, others.clone()));
    for (mut run, ((device, address), others)) in Run::with(an_open_byte) {
        for other in &others {
            run.images[device][address] = *other;
            assert_eq!(run.differences(), []);
        }
        let base = run.model.images[device][address];
        let wrong = (0..=255).find(|value| *value != base && !others.contains(value)).unwrap();
        run.images[device][address] = wrong;
        assert!(!run.differences().is_empty());
    }
}

#[test]
fn differences_have_readable_texts() {
    let end = EndId { connection: 1, side: 0 };
    let order = Difference::Order { end, queue: Queue::Recv, expected: Some(16), got: 17 };
    assert_eq!(order.to_string(), "connection 1 end 0 recv: wr_id 0x11 completed, 0x10 was next");
}

//! Every plan must follow the rules that make the outcome unique, and all plans together must
//! contain the wanted situations.

use std::collections::BTreeSet;
use std::ops::Range;

use super::*;
use crate::sim::model::Model;
use crate::sim::plan::Queue;

fn plans() -> impl Iterator<Item = Plan> {
    (0..80).map(|seed| generate(seed, &Profile::default()))
}

#[test]
fn a_seed_gives_one_plan() {
    for seed in [0, 1, u64::MAX] {
        let [first, second] =
            [(); 2].map(|()| format!("{:?}", generate(seed, &Profile::default())));
        assert_eq!(first, second);
    }
    assert_ne!(
        format!("{:?}", generate(1, &Profile::default()).connections),
        format!("{:?}", generate(2, &Profile::default()).connections)
    );
}

#[test]
fn regions_keep_their_distance_and_roles_their_owners() {
    for plan in plans() {
        for device in &plan.devices {
            let mut end = 0;
            for region in &device.regions {
                assert!(
                    region.range.start >= end + 64 && region.range.end <= device.memory_bytes - 100
                );
                assert!(region.range.start % 8 == 0 && !region.range.is_empty());
                end = region.range.end;
            }
        }
        for (id, _) in plan.ends() {
            let roles = [Role::Source, Role::Destination, Role::Target, Role::Cells];
            for role in roles {
                let region = region_of(&plan, id.connection, id.side, role);
                assert_eq!(plan.devices[plan.end(id).device].regions[region].role, role);
            }
        }
    }
}

/// Destinations of responses and messages must never overlap.
#[test]
fn everything_that_lands_has_memory_of_its_own() {
    for plan in plans() {
        let mut destinations: Vec<(usize, Range<usize>)> = Vec::new();
        for (_, end) in plan.ends() {
            let answers = end
                .sends
                .iter()
                .filter(|send| send.op.returns_data())
                .map(|send| send.local.pieces());
            let messages = end.recvs.iter().map(|recv| &recv.pieces[..]);
            for &piece in answers.chain(messages).flatten().filter(|piece| piece.len > 0) {
                assert_eq!(plan.devices[end.device].regions[piece.region].role, Role::Destination);
                destinations.push((end.device, plan.range(end.device, piece)));
            }
        }
        destinations.sort_by_key(|(device, range)| (*device, range.start));
        for pair in destinations.windows(2) {
            assert!(
                pair[0].0 < pair[1].0 || pair[0].1.end <= pair[1].1.start,
                "seed {}",
                plan.seed
            );
        }
    }
}

#[test]
fn requests_stay_inside_their_regions_and_queue_pairs() {
    for plan in plans() {
        for (id, end) in plan.ends() {
            let peer = plan.end(id.peer());
            let recv_pieces = end.recvs.iter().map(|recv| &recv.pieces);
            let sends = end.sends.iter().map(|send| &send.local);
            for pieces in
                recv_pieces.map(|pieces| &pieces[..]).chain(sends.clone().map(Local::pieces))
            {
                assert!(pieces.len() <= end.max_sge as usize);
                for piece in pieces {
                    let region = &plan.devices[end.device].regions[piece.region];
                    assert!(piece.offset + piece.len <= region.range.len());
                }
            }
            for send in &end.sends {
                let len = send.local.len();
                if matches!(send.local, Local::Inline(_)) {
                    assert!(len <= end.max_inline as usize && !send.op.returns_data());
                }
                let (at, len) = match send.op {
                    Op::Write(at) | Op::WriteImm(at, _) | Op::Read(at) => (at, len),
                    Op::AtomicWrite(at) => {
                        assert!(len == 8 && at.offset % 8 == 0);
                        (at, len)
                    }
                    Op::Flush { at, len: flushed } => {
                        assert_eq!(len, 0);
                        (at, flushed.unwrap_or_default() as usize)
                    }
                    _ => continue,
                };
                let region = &plan.devices[peer.device].regions[at.region];
                let writes_only =
                    matches!(region.role, Role::Disposable | Role::Windowed | Role::Rebound);
                assert!(region.role == Role::Target || (writes_only && !send.op.returns_data()));
                assert!(at.offset + len <= region.range.len());
            }
            let messages = end.sends.iter().filter(|send| send.op.consumes_recv());
            assert_eq!(messages.clone().count(), peer.recvs.len());
            for (send, recv) in messages.zip(&peer.recvs) {
                let room: usize = recv.pieces.iter().map(|piece| piece.len).sum();
                assert!(!send.op.is_send() || room >= send.local.len());
            }
            assert!(peer.max_dest_rd_atomic >= end.max_rd_atomic && end.max_rd_atomic >= 1);
        }
    }
}

#[test]
fn no_queue_fills_up_unsignalled() {
    for plan in plans() {
        for (_, end) in plan.ends() {
            for window in end.sends.windows(end.send_depth as usize) {
                assert!(window.iter().any(|send| send.signaled), "seed {}", plan.seed);
            }
            assert!(end.sends.last().is_none_or(|send| send.signaled));
        }
    }
}

#[test]
fn faults_never_outlast_a_retry_counter() {
    for plan in plans() {
        let shortest = plan.ends().map(|(_, end)| timeout_ns(end.timeout)).min().unwrap();
        let longest = plan.ends().map(|(_, end)| timeout_ns(end.timeout)).max().unwrap();
        let mut on = 0;
        for pair in plan.faults.toggles_ns.chunks(2) {
            let [off, on_again] = pair else { panic!("faults stay off at the end") };
            assert!(off - on <= 4 * shortest && on_again - off >= 2 * longest);
            for pause in
                plan.faults.pauses.iter().filter(|pause| (on..*off).contains(&pause.from_ns))
            {
                assert!(pause.from_ns < pause.until_ns && pause.until_ns <= *off);
            }
            on = *on_again;
        }
    }
}

#[test]
fn a_plan_without_faults_has_none() {
    let plan = generate(3, &Profile { faults: false, ..Profile::default() });
    assert!(
        plan.faults.links.is_empty()
            && plan.faults.toggles_ns.is_empty()
            && plan.faults.pauses.is_empty()
    );
}

#[test]
fn wr_ids_are_unique() {
    for plan in plans().take(20) {
        let mut seen = BTreeSet::new();
        let mut count = 0;
        for (id, end) in plan.ends() {
            for (queue, len) in [(Queue::Send, end.sends.len()), (Queue::Recv, end.recvs.len())] {
                seen.extend((0..len).map(|index| plan.wr_id(id, queue, index)));
                count += len;
            }
        }
        assert_eq!(seen.len(), count);
    }
}

/// Operations, sizes and situations that must occur in some of 80 plans.
const WANTED: &[&str] = &[
    "Send",
    "SendImm",
    "SendInvalidate",
    "SendRelease",
    "Write",
    "WriteImm",
    "Read",
    "CompareSwap",
    "FetchAdd",
    "inline",
    "fence true",
    "fence false",
    "signaled true",
    "signaled false",
    "0 pieces",
    "1 pieces",
    "4 pieces",
    "0 MTU and 1",
    "0 MTU and 255",
    "1 MTU and 0",
    "1 MTU and 1",
    "2 MTU and 0",
    "7 MTU and 4095",
    "late receives",
    "PSN wraps",
    "talks to itself",
    "unfenced READ before WRITE",
    "mtu 256",
    "mtu 4096",
    "depth 1",
    "depth 64",
];

/// Checks that every wanted situation occurs.
#[test]
fn plans_contain_all_wanted_situations() {
    let mut seen: BTreeSet<String> = BTreeSet::new();
    let mut hits = 0;
    for plan in plans() {
        let model = Model::new(&plan);
        assert!(
            model
                .images
                .iter()
                .zip(&plan.devices)
                .all(|(image, plan)| image.len() == plan.memory_bytes)
        );
        if !model.open.is_empty() {
            seen.insert("unfenced READ before WRITE".into());
        }
        for (id, end) in plan.ends() {
            let packets: u64 =
                end.sends.iter().map(|send| 1 + send.local.len() as u64 / 4096).sum();
            let connection = &plan.connections[id.connection];
            seen.insert(format!("mtu {}", connection.mtu));
            seen.insert(format!("depth {}", end.send_depth));
            if u64::from(end.first_psn) + packets > PSN_MASK {
                seen.insert("PSN wraps".into());
            }
            if plan.end(id.peer()).device == end.device {
                seen.insert("talks to itself".into());
            }
            if end.recvs_at_start == 0 && !end.recvs.is_empty() {
                seen.insert("late receives".into());
            }
            for send in &end.sends {
                let name = format!("{:?}", send.op);
                seen.insert(name.split(['(', ' ']).next().unwrap().into());
                let len = send.local.len();
                if len > 0 && len % connection.mtu <= 1
                    || len % connection.mtu == connection.mtu - 1
                {
                    seen.insert(format!(
                        "{} MTU and {}",
                        len / connection.mtu,
                        len % connection.mtu
                    ));
                }
                if let Op::CompareSwap { at, compare, .. } = send.op {
                    let device = plan.end(id.peer()).device;
                    let cell =
                        plan.range(device, Piece { region: at.region, offset: at.offset, len: 8 });
                    hits += u32::from(read_u64(&plan.initial_image(device), cell.start) == compare);
                }
                seen.insert(format!("{} pieces", send.local.pieces().len()));
                seen.insert(format!("signaled {}", send.signaled || end.all_signaled));
                seen.insert(format!("fence {}", send.fence));
                if matches!(send.local, Local::Inline(_)) {
                    seen.insert("inline".into());
                }
            }
        }
    }
    for wanted in WANTED {
        assert!(seen.contains(*wanted), "no plan has: {wanted}");
    }
    assert!(hits > 20, "{hits} compare-and-swaps find what they expect");
}

//! A wire on which packets overtake each other by a bounded number of places. Up to the bound, no
//! side requests or sends a packet twice.

use super::*;
use urxe_types::rng::Rng;

/// The packets that a receiver stores while it waits for one that they overtook.
pub(super) const HELD: u64 = 8;
/// The most work requests of a round, the most bytes of one, and the bytes of both buffers for
/// each.
const MOST: u64 = 12;
const LONGEST: u64 = 20_000;
const PLACE: u64 = 32 << 10;
/// The offset of the word that atomics change.
const CELL: u64 = (1 << 20) - 8;

/// Moves packets until both sides are silent and wait for nothing. Of packets in flight together,
/// at most `places` overtake another.
pub(super) fn run_overtaking(a: &Host, b: &Host, wire: &Wire, rng: &mut Rng, places: u64) {
    let ends = [a, b];
    loop {
        for end in ends {
            end.clock.advance(10_000);
            end.transmit(wire);
        }
        let runs = wire.take();
        if runs.is_empty() {
            if ends.iter().all(|end| end.device.bytes_in_flight() == (0, 0)) {
                return;
            }
            let deadlines = ends.into_iter().filter_map(|end| end.device.next_deadline());
            let now = deadlines.min().expect("a side that waits has a deadline").max(a.clock.now());
            for end in ends {
                end.clock.set(now);
                end.device.handle_timeouts(now);
            }
        }
        for end in ends {
            let packets = runs.iter().filter(|run| run.to == end.address).flat_map(|run| {
                run.segments().map(|bytes| PacketRun {
                    bytes: bytes.to_vec(),
                    segment_size: bytes.len(),
                    ..run.clone()
                })
            });
            // A packet that stands `places` + 1 places later arrives later in any case.
            let mut packets: Vec<_> = packets
                .enumerate()
                .map(|(place, packet)| (place as u64 + rng.between(0, places + 1), packet))
                .collect();
            packets.sort_by_key(|(place, _)| *place);
            for (_, packet) in &packets {
                wire.deliver(&end.device, end.clock.now(), packet);
            }
        }
    }
}

/// Asserts that no packet was requested, sent twice or dropped, except acknowledgements that a
/// later one overtook.
pub(super) fn assert_undisturbed(end: &Host, what: &str) {
    for counter in [
        Counter::SendSeqErr,
        Counter::RcvdSeqErr,
        Counter::CompleterRetryErr,
        Counter::TailProbes,
        Counter::DuplicateRequest,
        Counter::DropOutOfSequence,
        Counter::DropImpliedNak,
        Counter::DropGhostAck,
    ] {
        assert_eq!(end.counter(counter), 0, "{}, {what}", counter.name());
    }
    let [held, executed] =
        [Counter::ReorderBuffered, Counter::ReorderDelivered].map(|c| end.counter(c));
    assert_eq!(held, executed, "{what}");
}

/// Returns the offset of a work request's data, which the sender or a READ takes.
fn source(nr: u64) -> u64 {
    nr * PLACE
}

/// Returns the offset of its data at the peer.
fn target(nr: u64) -> u64 {
    (MOST + nr) * PLACE
}

/// Returns the offset of its response.
fn landing(nr: u64) -> u64 {
    2 * MOST * PLACE + nr * LONGEST
}

/// Posts some work requests of random kinds and lengths, and the receives for them at the peer.
fn post(rng: &mut Rng, end: &Host, peer: &Host) -> Vec<(SendOp, u32)> {
    let mut posted = Vec::new();
    for nr in 0..rng.between(1, MOST) {
        let op = match rng.index(5) {
            0 => SendOp::Send,
            1 => SendOp::SendImm { imm: nr as u32 },
            2 => SendOp::Write { remote: peer.remote(target(nr)) },
            3 => SendOp::Read { remote: peer.remote(source(nr)) },
            _ => SendOp::FetchAdd { remote: peer.remote(CELL), add: 1 },
        };
        let length = if op.is_atomic() {
            8
        } else {
            rng.pick(&[0, 1, 900, 1024, 1025, 5000, LONGEST as u32])
        };
        if matches!(op, SendOp::Send | SendOp::SendImm { .. }) {
            let sges = [peer.sge(target(nr), PLACE as u32)];
            peer.post_recv(nr, &sges);
        }
        let local = if op.returns_data() { landing(nr) } else { source(nr) };
        end.post(op, &[end.sge(local, length)]);
        posted.push((op, length));
    }
    posted
}

/// Asserts that all requests are complete and every byte is in place. Returns the number of
/// additions to the peer's word.
fn check(end: &Host, peer: &Host, posted: &[(SendOp, u32)], what: &str) -> u64 {
    let completions = end.completions();
    assert!(completions.iter().all(|wc| wc.status == WcStatus::Success), "{what}: {completions:?}");
    assert_eq!(
        completions.iter().filter(|wc| !matches!(wc.opcode, WcOpcode::Recv)).count(),
        posted.len(),
        "{what}"
    );
    let mut adds = 0;
    for (nr, (op, length)) in posted.iter().enumerate() {
        let (nr, length) = (nr as u64, *length as usize);
        let same = match op {
            SendOp::FetchAdd { .. } => {
                adds += 1;
                true
            }
            SendOp::Read { .. } => {
                end.bytes(landing(nr) as usize, length) == peer.bytes(source(nr) as usize, length)
            }
            _ => peer.bytes(target(nr) as usize, length) == end.bytes(source(nr) as usize, length),
        };
        assert!(same, "{op:?}, {length} bytes, {what}");
    }
    adds
}

#[test]
fn packets_that_overtake_few_others_cost_nothing_and_many_a_nak() {
    for seed in 0..40 {
        for places in [1, HELD, 5 * HELD] {
            let what = format!("seed {seed}, {places} places");
            let mut rng = Rng::stream(seed, places);
            let (a, b, mut wire) = pair();
            wire.set_shared(seed % 2 == 1);
            let mut cells = [0; 2];
            for _ in 0..6 {
                for end in [&a, &b] {
                    let mut bytes = vec![0; (MOST * PLACE) as usize];
                    rng.fill(&mut bytes);
                    end.write(0, &bytes);
                }
                let posted = [post(&mut rng, &a, &b), post(&mut rng, &b, &a)];
                run_overtaking(&a, &b, &wire, &mut rng, places);
                cells[1] += check(&a, &b, &posted[0], &what);
                cells[0] += check(&b, &a, &posted[1], &what);
            }
            for (end, added) in [(&a, cells[0]), (&b, cells[1])] {
                assert_eq!(
                    end.bytes(CELL as usize, 8),
                    added.to_ne_bytes(),
                    "each atomic once, {what}"
                );
                assert_eq!(end.device.bytes_in_flight(), (0, 0), "{what}");
            }
            let count = |counter| [&a, &b].map(|end| end.counter(counter)).iter().sum::<u64>();
            assert!(count(Counter::ReorderDelivered) > 0, "{what}");
            if places <= HELD {
                assert_undisturbed(&a, &what);
                assert_undisturbed(&b, &what);
            } else {
                assert!(
                    count(Counter::SendSeqErr) + count(Counter::CompleterRetryErr) > 0,
                    "{what}"
                );
            }
        }
    }
}

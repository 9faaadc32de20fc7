use std::convert::Infallible;
use std::sync::atomic::Ordering;

use urxe_wire::{Bth, Ext, IcrcSolver, IcrcVerdict, Opcode, PacketView, Psn, Qpn};

use super::*;

fn seed() -> IcrcSeed {
    IcrcSeed::new([127, 0, 0, 1].into(), 4791, [127, 0, 0, 2].into(), 4791).unwrap()
}

fn buffer(max_segments: usize) -> RunBuffer<'static> {
    RunBuffer::new(
        Box::leak(run_memory().unwrap()),
        max_segments,
        Some(Box::leak(Box::new(seed()))),
    )
}

fn private<'r>(run: &'r RunBuffer<'_>) -> &'r [u8] {
    match run.bytes() {
        RunBytes::Private(bytes) => bytes,
        RunBytes::Room(_) => panic!("the run is in room"),
    }
}

fn packet(opcode: Opcode) -> PacketRepr {
    PacketRepr::new(Bth::new(opcode, Qpn::new(17).unwrap(), Psn::new(3)), Ext::None)
}

fn send(run: &mut RunBuffer<'_>, len: usize) {
    let fill = |to: WriteOnly<'_>| {
        to.fill(7);
        Ok::<(), Infallible>(())
    };
    run.append(packet(Opcode::RcSendMiddle), len, fill).unwrap();
}

#[test]
fn packets_parse_and_their_icrc_is_made_for_their_index() {
    let mut run = buffer(64);
    for len in [1024, 1024, 1021, 1024, 5] {
        send(&mut run, len);
    }
    assert_eq!(run.count(), 5);
    for (index, bytes) in private(&run).chunks(run.segment_size()).enumerate() {
        let packet = PacketView::parse(bytes).unwrap();
        assert!(packet.payload().iter().all(|byte| *byte == 7));
        let verdict = seed().verify(&mut IcrcSolver::new(), packet.bytes(), index as u16);
        assert_eq!(verdict, IcrcVerdict::Exact { identification: index as u16 });
    }
}

#[test]
fn a_longer_packet_or_one_after_a_shorter_does_not_fit() {
    let mut run = buffer(64);
    assert!(run.takes(5000) && !run.closes_with(5000));
    send(&mut run, 1024);
    assert!(run.takes(1040) && !run.takes(1044));
    assert!(!run.closes_with(1040) && run.closes_with(16));
    send(&mut run, 8);
    assert!(!run.takes(8));
    run.clear();
    assert!(run.is_empty() && run.takes(5000));
}

#[test]
fn a_run_ends_at_the_ports_limits() {
    let mut run = buffer(2);
    assert!(run.takes(100));
    send(&mut run, 64);
    assert!(run.takes(80));
    send(&mut run, 64);
    assert!(!run.takes(80));

    let mut run = buffer(64);
    while run.takes(4112) {
        send(&mut run, 4096);
    }
    assert_eq!(run.count(), 15);
    assert!(run.len() <= MAX_RUN_BYTES);
}

#[test]
fn a_run_in_memory_has_zeros_in_place_of_icrcs() {
    for icrc in [None, Some(seed())] {
        let mut memory = run_memory().unwrap();
        let mut run = RunBuffer::new(&mut memory, 2, icrc.as_ref());
        send(&mut run, 1024);
        send(&mut run, 1024);
        let lack = private(&run).chunks(1040).map(|packet| packet[1036..] == [0; ICRC_LEN]);
        assert!(lack.eq([icrc.is_none(); 2]));
    }
}

/// The process that shares the room overwrites it after each packet.
#[test]
fn nothing_is_read_from_the_room_of_a_run() {
    let room: Vec<_> = (0..MAX_RUN_BYTES).map(|_| AtomicU8::new(0xee)).collect();
    let mut memory = run_memory().unwrap();
    let mut run = RunBuffer::new(&mut memory, 64, None);
    assert!(run.lacks_room());
    for _ in 0..2 {
        run.set_room(&room);
        let mut sent = Vec::new();
        for len in [1024, 1024, 1021] {
            let before = run.len();
            send(&mut run, len);
            let RunBytes::Room(bytes) = run.bytes() else { panic!("the run left its room") };
            sent.extend(bytes[before..].iter().map(|byte| byte.swap(0xee, Ordering::Relaxed)));
        }
        assert!(run.takes(1040) && !run.takes(1044) && !run.lacks_room());
        assert_eq!((run.count(), run.segment_size(), run.len()), (3, 1040, 3 * 1040));
        for packet in sent.chunks(run.segment_size()) {
            assert!(PacketView::parse(packet).unwrap().payload().iter().all(|byte| *byte == 7));
            assert_eq!(packet[1036..], [0; ICRC_LEN]);
        }
        run.clear();
        assert!(run.lacks_room());
    }
    // The next run has no room.
    send(&mut run, 8);
    assert_eq!(private(&run).len(), run.len());
    assert!(room.iter().all(|byte| byte.load(Ordering::Relaxed) == 0xee));
    let len = packet_len(Opcode::RcSendMiddle, 8);
    assert!(memory[len..].iter().all(|byte| *byte == 0), "runs in room used private memory");
}

#[test]
fn a_failing_fill_appends_nothing() {
    let mut run = buffer(4);
    assert_eq!(run.append(packet(Opcode::RcSendOnly), 10, |_| Err("no")), Err("no"));
    assert!(run.is_empty() && private(&run).is_empty());
}

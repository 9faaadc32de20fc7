use std::convert::Infallible;

use urxe_wire::{Bth, Ext, IcrcSolver, IcrcVerdict, Opcode, PacketView, Psn, Qpn};

use super::*;

fn seed() -> IcrcSeed {
    IcrcSeed::new([127, 0, 0, 1].into(), 4791, [127, 0, 0, 2].into(), 4791).unwrap()
}

fn buffer(max_segments: usize) -> RunBuffer {
    let mut run = RunBuffer::new(seed()).unwrap();
    run.prepare(max_segments, false);
    run
}

fn packet(opcode: Opcode) -> PacketRepr {
    PacketRepr::new(Bth::new(opcode, Qpn::new(17).unwrap(), Psn::new(3)), Ext::None)
}

fn send(run: &mut RunBuffer, len: usize) {
    let fill = |to: &mut [u8]| {
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
    for (index, bytes) in run.bytes().chunks(run.segment_size()).enumerate() {
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
    assert!(run.bytes().len() <= MAX_RUN_BYTES);
}

#[test]
fn a_run_in_memory_has_zeros_in_place_of_icrcs() {
    let mut run = buffer(2);
    for is_in_memory in [true, false] {
        run.prepare(2, is_in_memory);
        send(&mut run, 1024);
        send(&mut run, 1024);
        let lack = run.bytes().chunks(1040).map(|packet| packet[1036..] == [0; ICRC_LEN]);
        assert!(lack.eq([is_in_memory; 2]));
        run.clear();
    }
}

#[test]
fn a_failing_fill_appends_nothing() {
    let mut run = buffer(4);
    assert_eq!(run.append(packet(Opcode::RcSendOnly), 10, |_| Err("no")), Err("no"));
    assert!(run.is_empty() && run.bytes().is_empty());
}

//! Measures the cost of a packet: ICRC, verification, parsing and emitting.
//!
//! Run with `cargo bench -p urxe-wire`.
#![allow(missing_docs)] // criterion's macros make public items

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use urxe_wire::packet::{ICRC_LEN, MAX_PACKET_LEN};
use urxe_wire::{
    Aeth, Bth, Ext, IcrcSeed, IcrcSolver, Msn, Opcode, PacketRepr, PacketView, Psn, Qpn, Reth,
    Rkey, Syndrome,
};

const PAYLOADS: [usize; 3] = [64, 1024, 4096];

fn seed() -> IcrcSeed {
    IcrcSeed::new([127, 0, 0, 1].into(), 4791, [127, 0, 0, 2].into(), 4791).expect("one family")
}

fn bth(opcode: Opcode) -> Bth {
    Bth::new(opcode, Qpn::masked(0x11), Psn::new(77))
}

/// Returns a SEND ONLY with a payload of this length and the ICRC for this identification.
fn send(payload_len: usize, identification: u16) -> Vec<u8> {
    let mut buf = vec![0; MAX_PACKET_LEN];
    let payload: Vec<u8> = (0..payload_len).map(|i| i as u8).collect();
    let end =
        PacketRepr::new(bth(Opcode::RcSendOnly), Ext::None).emit(&payload, &mut buf).expect("fits");
    let len = seed().append(identification, &mut buf, end).expect("fits");
    buf.truncate(len);
    buf
}

fn icrc(c: &mut Criterion) {
    let mut group = c.benchmark_group("icrc");
    let seed = seed();
    for payload in PAYLOADS {
        group.throughput(Throughput::Bytes(payload as u64));
        let packet = send(payload, 0);
        let covered = &packet[..packet.len() - ICRC_LEN];
        group.bench_function(BenchmarkId::new("compute", payload), |b| {
            b.iter(|| seed.icrc(black_box(3), true, black_box(covered)));
        });
        let mut solver = IcrcSolver::new();
        group.bench_function(BenchmarkId::new("verify_exact", payload), |b| {
            b.iter(|| seed.verify(&mut solver, black_box(&packet), 0));
        });
        let arbitrary = send(payload, 0xbeef);
        group.bench_function(BenchmarkId::new("verify_solved", payload), |b| {
            b.iter(|| seed.verify(&mut solver, black_box(&arbitrary), 0));
        });
    }
    group.bench_function("seed", |b| b.iter(self::seed));
    group.finish();
}

fn parse(c: &mut Criterion) {
    let mut group = c.benchmark_group("parse");
    let packet = send(64, 0);
    group.bench_function("send_only_fields", |b| {
        b.iter(|| {
            let view = PacketView::parse(black_box(&packet)).expect("good");
            (view.info().kind, view.dest_qp(), view.psn(), view.ack_req(), view.payload().len())
        });
    });
    let mut buf = [0; 64];
    let reth = Reth { va: 0x7f00_1234_0000, rkey: Rkey(7), dma_len: 8 };
    let end = PacketRepr::new(bth(Opcode::RcWriteOnly), Ext::Reth(reth))
        .emit(&[1; 8], &mut buf)
        .expect("fits");
    let write = &buf[..end + ICRC_LEN];
    group.bench_function("write_only_reth", |b| {
        b.iter(|| {
            let view = PacketView::parse(black_box(write)).expect("good");
            (view.psn(), view.reth(), view.payload().len())
        });
    });
    group.bench_function("write_only_repr", |b| {
        b.iter(|| PacketView::parse(black_box(write)).expect("good").to_repr());
    });
    group.finish();
}

fn emit(c: &mut Criterion) {
    let mut group = c.benchmark_group("emit");
    let mut buf = [0; 128];
    let reth = Reth { va: 0x7f00_1234_0000, rkey: Rkey(7), dma_len: 8 };
    let write = PacketRepr::new(bth(Opcode::RcWriteOnly), Ext::Reth(reth));
    group.bench_function("write_only_headers", |b| {
        b.iter(|| black_box(&write).emit_headers(black_box(&mut buf)));
    });
    let ack = PacketRepr::new(
        bth(Opcode::RcAcknowledge),
        Ext::Aeth(Aeth { syndrome: Syndrome::ACK, msn: Msn::masked(9) }),
    );
    let seed = seed();
    group.bench_function("ack_with_icrc", |b| {
        b.iter(|| {
            let end = black_box(&ack).emit_headers(&mut buf).expect("fits");
            seed.append(0, &mut buf, end)
        });
    });
    group.finish();
}

criterion_group!(benches, icrc, parse, emit);
criterion_main!(benches);

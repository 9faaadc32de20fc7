//! Measures a message between requester and responder without any system call: post, send, receive,
//! acknowledge, poll. `cargo bench -p urxe-stack --bench step`.
#![allow(missing_docs)] // criterion's macros make public items

mod pair;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};

use self::pair::Pair;

/// One run of full packets of 4 KiB.
const RUN: u32 = 15 * 4096;

fn step(c: &mut Criterion) {
    let mut group = c.benchmark_group("step");
    let mut pair = Pair::new();
    group.throughput(Throughput::Bytes(64));
    group.bench_function("send_64", |b| b.iter(|| pair.send(64)));
    group.throughput(Throughput::Bytes(u64::from(RUN)));
    group.bench_function("write_run_of_15", |b| b.iter(|| pair.write(RUN)));
    group.throughput(Throughput::Bytes(64 << 10));
    group.bench_function("read_64k", |b| b.iter(|| pair.read(64 << 10)));
    group.finish();
}

criterion_group!(benches, step);
criterion_main!(benches);

//! Bytes arrive once, in order and unchanged, by each of the traits.

use std::io::{Read, Write};
use std::thread;

use smol::io::{AsyncReadExt as _, AsyncWriteExt as _};
use urxe::sim::{Fabric, LinkFaults, Probability};
use urxe::stream::RdmaStream;

use super::{byte_at, bytes, client, listener, pair, pair_of, simulated};

/// More than the buffers of both ends hold.
const LARGE: u64 = 4 << 20;

/// Returns lengths of reads and writes: short ones, and longer than a buffer.
fn lengths() -> impl Iterator<Item = usize> {
    [1, 63, 64, 65, 2048, 3000, 70_000, 200_000].into_iter().cycle()
}

async fn write_all(stream: &mut (impl smol::io::AsyncWrite + Unpin), len: u64) {
    let mut at = 0;
    for part in lengths() {
        let end = len.min(at + part as u64);
        stream.write_all(&bytes(at..end)).await.unwrap();
        at = end;
        if at == len {
            break;
        }
    }
    stream.close().await.unwrap();
}

async fn read_all(stream: &mut (impl smol::io::AsyncRead + Unpin)) -> u64 {
    let mut buffer = vec![0; 200_000];
    let mut at = 0;
    for part in lengths() {
        let read = stream.read(&mut buffer[..part]).await.unwrap();
        if read == 0 {
            break;
        }
        for byte in &buffer[..read] {
            assert_eq!(*byte, byte_at(at), "byte {at}");
            at += 1;
        }
    }
    at
}

/// Transfers `len` bytes each way at the same time, by the traits of futures.
async fn both_ways(stream: RdmaStream, len: u64) {
    let (mut reader, mut writer) = smol::io::split(stream);
    let (read, ()) = smol::future::zip(read_all(&mut reader), write_all(&mut writer, len)).await;
    assert_eq!(read, len);
}

#[test]
fn two_tasks_exchange_large_streams_by_the_traits_of_futures() {
    let [accepted, connected] = pair(100);
    let server = thread::spawn(|| smol::block_on(both_ways(accepted, LARGE)));
    smol::block_on(both_ways(connected, LARGE));
    server.join().unwrap();
}

#[test]
fn two_tasks_exchange_large_streams_by_the_traits_of_tokio() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    async fn echo(stream: RdmaStream) {
        let (mut reader, mut writer) = tokio::io::split(stream);
        assert_eq!(tokio::io::copy(&mut reader, &mut writer).await.unwrap(), LARGE);
        writer.shutdown().await.unwrap();
    }

    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        let listener = listener(101);
        let connect = client(101).connect(listener.local_addr());
        let server = tokio::spawn(async move { echo(listener.accept().await.unwrap().0).await });
        let (mut reader, mut writer) = tokio::io::split(connect.await.unwrap());
        let sending = tokio::spawn(async move {
            writer.write_all(&bytes(0..LARGE)).await.unwrap();
            writer.flush().await.unwrap();
            writer.shutdown().await.unwrap();
        });
        let mut echoed = Vec::new();
        reader.read_to_end(&mut echoed).await.unwrap();
        assert!(echoed == bytes(0..LARGE), "the echo differs");
        sending.await.unwrap();
        server.await.unwrap();
    });
}

#[test]
fn two_threads_exchange_a_large_stream() {
    let listener = listener(102);
    let [accepted, connected] = pair_of(&listener, client(102).send_buffer(5000));
    let server = thread::spawn(move || {
        let mut received = Vec::new();
        accepted.blocking().read_to_end(&mut received).unwrap();
        received
    });
    let mut blocking = connected.blocking();
    blocking.write_all(&bytes(0..LARGE)).unwrap();
    blocking.shutdown().unwrap();
    assert!(server.join().unwrap() == bytes(0..LARGE), "the bytes differ");
}

/// The smallest buffers, which all transfers wrap around.
#[test]
fn small_buffers_transfer_every_byte() {
    let listener = RdmaStream::builder().device(&crate::cm::device(103, 1)).receive_buffer(0);
    let listener = listener.bind((crate::cm::address(103, 1), 0).into()).unwrap();
    let [accepted, connected] = pair_of(&listener, client(103).receive_buffer(0).send_buffer(0));
    let server = thread::spawn(|| smol::block_on(both_ways(accepted, 300_000)));
    smol::block_on(both_ways(connected, 300_000));
    server.join().unwrap();
}

/// Each message is one credit; there are 384.
#[test]
fn thousands_of_short_messages_need_new_credits() {
    let [accepted, connected] = pair(104);
    let server = thread::spawn(move || {
        let mut received = Vec::new();
        accepted.blocking().read_to_end(&mut received).unwrap();
        received
    });
    let mut blocking = connected.blocking();
    for position in 0..5000 {
        blocking.write_all(&[byte_at(position)]).unwrap();
    }
    blocking.shutdown().unwrap();
    assert_eq!(server.join().unwrap(), bytes(0..5000));
}

/// In virtual time, in one thread, with lost, reordered and duplicated packets.
#[test]
fn streams_survive_faults_of_a_simulated_network() {
    for seed in 0..5 {
        println!("seed {seed}");
        let fabric = Fabric::new(seed);
        let ([here, there], to) = simulated(&fabric);
        let percent = Probability::from_percent;
        fabric.set_faults(LinkFaults {
            loss: percent(2),
            duplicate: percent(2),
            ..LinkFaults::default()
        });
        let listener = RdmaStream::builder().device(&here).bind(to).unwrap();
        let connect = RdmaStream::builder().device(&there).connect(to);
        let server = async { both_ways(listener.accept().await.unwrap().0, 400_000).await };
        let client = async { both_ways(connect.await.unwrap(), 400_000).await };
        smol::block_on(smol::future::zip(server, client));
        assert!(fabric.counters().lost > 0, "seed {seed}");
    }
}

//! The end of a stream: half closes, dropped ends, and errors that say what happened.

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use urxe::sim::{Fabric, PausedPackets};
use urxe::stream::{RdmaStream, StreamError};

use super::{bytes, client, eventually, listener, pair, pair_of, reason, simulated_pair};
use crate::common::LONG;

fn read_to_end(stream: &RdmaStream) -> std::io::Result<Vec<u8>> {
    let mut read = Vec::new();
    stream.blocking().read_to_end(&mut read)?;
    Ok(read)
}

#[test]
fn a_half_close_leaves_the_other_direction_open() {
    let [accepted, connected] = pair(110);
    connected.blocking().write_all(b"question").unwrap();
    connected.blocking().shutdown().unwrap();
    assert_eq!(read_to_end(&accepted).unwrap(), b"question");
    // The end stays.
    assert_eq!(accepted.blocking().read(&mut [0]).unwrap(), 0);
    let answer = bytes(0..1 << 20);
    thread::scope(|scope| {
        scope.spawn(|| {
            accepted.blocking().write_all(&answer).unwrap();
            accepted.blocking().shutdown().unwrap();
        });
        assert!(read_to_end(&connected).unwrap() == answer, "the answer differs");
    });
}

#[test]
fn a_side_that_is_shut_down_refuses_bytes() {
    let [accepted, connected] = pair(111);
    connected.blocking().shutdown().unwrap();
    let error = connected.blocking().write(b"more").unwrap_err();
    assert_eq!((error.kind(), reason(&error)), (ErrorKind::BrokenPipe, StreamError::ShutDown));
    // A second shutdown does nothing.
    connected.blocking().shutdown().unwrap();
    drop(accepted);
}

#[test]
fn both_sides_may_shut_down_at_the_same_time() {
    for round in 0..20 {
        let ends = pair(112);
        let [one, other] = ends.each_ref().map(|end| {
            end.blocking().write_all(&bytes(0..100_000)).unwrap();
            move || {
                end.blocking().shutdown().unwrap();
                read_to_end(end).unwrap()
            }
        });
        let read = thread::scope(|scope| {
            let other = scope.spawn(other);
            [one(), other.join().unwrap()]
        });
        assert!(read.iter().all(|read| *read == bytes(0..100_000)), "round {round}");
    }
}

#[test]
fn shutdown_delivers_all_bytes_before_the_stream_is_dropped() {
    for round in 0..20 {
        let [accepted, connected] = pair(113);
        connected.blocking().write_all(&bytes(0..100_000)).unwrap();
        connected.blocking().shutdown().unwrap();
        drop(connected);
        assert!(read_to_end(&accepted).unwrap() == bytes(0..100_000), "round {round}");
        // The peer is gone, and has nothing to wait for.
        accepted.blocking().shutdown().unwrap();
    }
}

#[test]
fn a_dropped_stream_ends_that_of_the_peer() {
    let [accepted, connected] = pair(114);
    connected.blocking().write_all(b"last").unwrap();
    drop(connected);
    assert_eq!(read_to_end(&accepted).unwrap(), b"last");
    let mut last = None;
    eventually(|| {
        last = accepted.blocking().write(b"more").err();
        last.is_some()
    });
    let error = last.unwrap();
    assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    assert_eq!(reason(&error), StreamError::Ended { peer: accepted.peer_addr() });
    // Nothing was lost: this end had sent nothing that was not acknowledged.
    accepted.blocking().shutdown().unwrap();
}

/// More bytes than the buffers of both ends hold stop the writer. They wait until the peer reads.
#[test]
fn a_peer_that_does_not_read_stops_the_writer() {
    let listener = listener(115);
    let [accepted, connected] = pair_of(&listener, client(115));
    let mut blocking = connected.blocking().timeout(Duration::from_millis(200));
    let mut written = 0;
    let error = loop {
        match blocking.write(&[7; 10_000]) {
            Ok(bytes) => written += bytes,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    // The receive buffer, and no more than the send buffer beside it.
    assert!((128 << 10..=256 << 10).contains(&written), "{written}");
    let mut read = vec![0; written];
    accepted.blocking().read_exact(&mut read).unwrap();
    assert!(read.iter().all(|byte| *byte == 7));
    blocking.write_all(b"again").unwrap();
}

/// A task that is woken, and then reads nothing.
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn a_dropped_future_loses_no_bytes() {
    use tokio::io::AsyncRead;

    let [mut accepted, connected] = pair(116);
    let mut buffer = [0; 8];
    let woken = Arc::new(Woken(AtomicBool::new(false)));
    let waker = Waker::from(Arc::clone(&woken));
    let mut context = Context::from_waker(&waker);
    let mut into = tokio::io::ReadBuf::new(&mut buffer);
    assert!(std::pin::Pin::new(&mut accepted).poll_read(&mut context, &mut into).is_pending());
    connected.blocking().write_all(b"bytes").unwrap();
    eventually(|| woken.0.load(Ordering::Acquire));
    let mut read = [0; 5];
    accepted.blocking().read_exact(&mut read).unwrap();
    assert_eq!(&read, b"bytes");
}

#[test]
fn halves_end_each_for_itself() {
    let [accepted, connected] = pair(117);
    let (mut reader, mut writer) = connected.into_split();
    let (mut server_reader, server_writer) = accepted.into_split();
    let (mut got, mut answer) = (Vec::new(), Vec::new());
    smol::block_on(async {
        use smol::io::{AsyncReadExt, AsyncWriteExt};

        writer.write_all(b"question").await.unwrap();
        // Dropping the half ends this side, and the peer can answer.
        drop(writer);
        server_reader.read_to_end(&mut got).await.unwrap();
        let mut server_writer = server_writer;
        server_writer.write_all(b"answer").await.unwrap();
        server_writer.close().await.unwrap();
        reader.read_to_end(&mut answer).await.unwrap();
    });
    assert_eq!((got.as_slice(), answer.as_slice()), (&b"question"[..], &b"answer"[..]));
}

#[test]
fn two_threads_use_the_halves_at_the_same_time() {
    let [accepted, connected] = pair(118);
    let (mut reader, mut writer) = accepted.into_split();
    let echo = thread::spawn(move || {
        smol::block_on(async {
            smol::io::copy(&mut reader, &mut writer).await.unwrap();
            smol::io::AsyncWriteExt::close(&mut writer).await.unwrap();
        });
    });
    let (mut reader, mut writer) = connected.into_split();
    let sending = thread::spawn(move || {
        smol::block_on(async {
            use smol::io::AsyncWriteExt;

            writer.write_all(&bytes(0..1 << 20)).await.unwrap();
            writer.close().await.unwrap();
        });
    });
    let mut echoed = Vec::new();
    smol::block_on(smol::io::AsyncReadExt::read_to_end(&mut reader, &mut echoed)).unwrap();
    assert!(echoed == bytes(0..1 << 20), "the echo differs");
    sending.join().unwrap();
    echo.join().unwrap();
}

#[test]
fn a_peek_leaves_the_bytes_in_the_stream() {
    let [mut accepted, connected] = pair(119);
    connected.blocking().write_all(b"GET /").unwrap();
    smol::block_on(async {
        let mut start = [0; 3];
        for _ in 0..2 {
            assert_eq!(accepted.peek(&mut start).await.unwrap(), 3);
            assert_eq!(&start, b"GET");
        }
        let (mut reader, _writer) = accepted.into_split();
        assert_eq!(reader.peek(&mut start[..1]).await.unwrap(), 1);
        let mut all = [0; 5];
        smol::io::AsyncReadExt::read_exact(&mut reader, &mut all).await.unwrap();
        assert_eq!(&all, b"GET /");
        connected.blocking().shutdown().unwrap();
        assert_eq!(reader.peek(&mut start).await.unwrap(), 0, "the end");
    });
}

#[test]
fn an_aborted_stream_has_no_end() {
    let [accepted, connected] = pair(122);
    connected.blocking().write_all(b"half of").unwrap();
    let mut read = [0; 7];
    accepted.blocking().read_exact(&mut read).unwrap();
    connected.abort();
    assert_all_calls_fail(&accepted, StreamError::Reset { peer: accepted.peer_addr() });
}

/// Each call fails, and so does each later one.
#[track_caller]
pub(super) fn assert_all_calls_fail(stream: &RdmaStream, expected: StreamError) {
    for _ in 0..2 {
        let mut blocking = stream.blocking().timeout(LONG.unwrap());
        assert_eq!(reason(&blocking.read(&mut [0]).unwrap_err()), expected, "read");
        assert_eq!(reason(&blocking.write(b"more").unwrap_err()), expected, "write");
    }
    let mut blocking = stream.blocking().timeout(LONG.unwrap());
    assert_eq!(reason(&blocking.shutdown().unwrap_err()), expected, "shutdown");
    assert_eq!(reason(&blocking.read(&mut [0]).unwrap_err()), expected, "read at the end");
}

#[test]
fn a_dropped_stream_whose_bytes_are_lost_is_a_reset() {
    let fabric = Fabric::new(3);
    let ([accepted, connected], device) = simulated_pair(&fabric);
    fabric.pause(&device, PausedPackets::Drop, Duration::from_millis(1)).unwrap();
    connected.blocking().write_all(b"lost").unwrap();
    drop(connected);
    // The device repeats that the connection has ended, at about the time at which a message of
    // this end fails.
    let first = reason(&accepted.blocking().read(&mut [0]).unwrap_err());
    assert!(matches!(first, StreamError::Reset { .. } | StreamError::Lost { .. }), "{first}");
    assert_all_calls_fail(&accepted, first);
}

/// A write copies into the send buffer, so the first ones succeed.
#[test]
fn a_writer_notices_after_eight_ack_timeouts_that_its_peer_vanished() {
    let fabric = Fabric::new(4);
    let ([_accepted, connected], device) = simulated_pair(&fabric);
    fabric.pause(&device, PausedPackets::Drop, Duration::from_secs(3600)).unwrap();
    let before = fabric.now();
    connected.blocking().write_all(b"lost").unwrap();
    let error = connected.blocking().read(&mut [0]).unwrap_err();
    let waited = fabric.now() - before;
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    let StreamError::Lost { reason: lost, .. } = reason(&error) else { panic!("{error}") };
    assert_eq!(lost.status, urxe::WcStatus::RetryExcErr);
    // 4.096 µs · 2^17 each. A message that lends memory may have left before.
    let expected = Duration::from_nanos(8 * (4096 << 17));
    assert!(waited.abs_diff(expected) < Duration::from_millis(500), "{waited:?}");
    assert_all_calls_fail(&connected, reason(&error));
}

#[test]
fn a_keep_alive_handle_does_not_keep_the_stream() {
    let [accepted, connected] = pair(126);
    let keep_alive = connected.keep_alive();
    assert!(keep_alive.send());
    let (reader, writer) = connected.into_split();
    drop(writer);
    assert!(keep_alive.send(), "a half is there");
    drop(reader);
    assert!(!keep_alive.send());
    // The peer reads the end.
    assert_eq!(read_to_end(&accepted).unwrap(), b"");
}

/// Neither needs bytes of the peer, or room in its buffer.
#[test]
fn reads_and_writes_of_no_bytes_do_not_wait() {
    let [_accepted, connected] = pair(127);
    let mut blocking = connected.blocking().timeout(Duration::from_millis(100));
    assert_eq!(blocking.read(&mut []).unwrap(), 0);
    while blocking.write(&[7; 100_000]).is_ok() {}
    assert_eq!(blocking.write(&[]).unwrap(), 0);
}

/// The reader is not called after that, so nothing else can lend the buffer.
#[test]
fn a_read_of_all_bytes_lends_the_receive_buffer_again() {
    let [mut accepted, connected] = pair(128);
    let mut blocking = connected.blocking().timeout(Duration::from_millis(200));
    let mut written = 0;
    while let Ok(bytes) = blocking.write(&[7; 10_000]) {
        written += bytes;
    }
    let mut into = vec![0; written];
    eventually(|| smol::block_on(accepted.peek(&mut into)).unwrap() == written);
    assert_eq!(accepted.blocking().read(&mut into).unwrap(), written);
    blocking = blocking.timeout(LONG.unwrap());
    assert_eq!(blocking.write(b"more").unwrap(), 4);
}

/// Two messages of that kind may be outstanding. The end is sent when one is acknowledged.
#[test]
fn the_end_of_a_side_follows_outstanding_keepalives() {
    let ([mut accepted, mut connected], _device) = simulated_pair(&Fabric::new(1));
    (0..3).for_each(|_| connected.send_keepalive());
    let mut byte = [0];
    smol::block_on(async {
        std::future::poll_fn(|cx| connected.poll_end(cx)).await.unwrap();
        assert_eq!(accepted.peek(&mut byte).await.unwrap(), 0, "the end");
    });
}

#[test]
fn the_end_of_a_side_does_not_wait_for_a_peer_that_vanished() {
    let fabric = Fabric::new(2);
    let ([_accepted, mut connected], device) = simulated_pair(&fabric);
    fabric.pause(&device, PausedPackets::Drop, Duration::from_secs(3600)).unwrap();
    (0..2).for_each(|_| connected.send_keepalive());
    let ended = smol::block_on(std::future::poll_fn(|cx| connected.poll_end(cx)));
    assert!(matches!(reason(&ended.unwrap_err()), StreamError::Lost { .. }));
}

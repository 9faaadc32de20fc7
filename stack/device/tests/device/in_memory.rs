//! Paths that stay in the memory of the host: packets without ICRCs.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use urxe_types::port::{MAX_RUN_BYTES, Run, SendInMemory, SendOutcome, Transmit};
use urxe_types::rng::Rng;
use urxe_wire::packet::ICRC_LEN;

use super::source_ports::host;
use super::*;
use urxe_test_support::host::poll;

/// A port with one path in memory: between A and B, to slot 0.
struct Memory {
    wire: Wire,
    is_open: AtomicBool,
    /// Whether the path leaves the memory between the question and the run.
    is_lost: AtomicBool,
    lost: AtomicUsize,
    /// The room for runs; empty for a path whose runs are copied.
    room: Box<[AtomicU8]>,
    /// The runs that were built in the room.
    built: AtomicUsize,
}

impl Memory {
    fn new() -> Self {
        let flag = |is_set| AtomicBool::new(is_set);
        let count = || AtomicUsize::new(0);
        let (wire, room) = (Wire::default(), Box::default());
        let (is_open, is_lost) = (flag(true), flag(false));
        Self { wire, is_open, is_lost, lost: count(), room, built: count() }
    }

    fn with_room() -> Self {
        let room = std::iter::repeat_with(AtomicU8::default).take(MAX_RUN_BYTES).collect();
        Self { room, ..Self::new() }
    }

    /// Returns the runs of `from` with whether each packet lacks its ICRC.
    fn take(&self, from: &Host) -> Vec<(PacketRun, bool)> {
        from.device.transmit_pending(from.clock.now(), self);
        let has_none = |run: &PacketRun| {
            let ends = run.segments().map(|packet| packet[packet.len() - ICRC_LEN..] == [0; 4]);
            let ends: Vec<_> = ends.collect();
            assert!(ends.iter().all(|lacks| *lacks == ends[0]), "the packets of a run are alike");
            ends[0]
        };
        self.wire.take().into_iter().map(|run| (run.clone(), has_none(&run))).collect()
    }
}

impl Transmit for Memory {
    fn transmit(&self, run: &Run<'_>) -> SendOutcome {
        self.wire.transmit(run)
    }

    fn with_memory(
        &self,
        _: &IpAddr,
        _: &IpAddr,
        peer_slot: u8,
        send: &mut dyn for<'m> FnMut(&mut (dyn SendInMemory<'m> + 'm)),
    ) -> bool {
        let is_in_memory = peer_slot == 0 && self.is_open.load(Ordering::Relaxed);
        if is_in_memory {
            send(&mut &*self);
        }
        is_in_memory
    }
}

impl<'m> SendInMemory<'m> for &'m Memory {
    fn room(&mut self) -> Option<&'m [AtomicU8]> {
        (!self.room.is_empty()).then_some(&*self.room)
    }

    /// The other process overwrites the room at once.
    fn transmit_room(&mut self, run: &Run<'_, AtomicU8>) -> SendOutcome {
        self.built.fetch_add(1, Ordering::Relaxed);
        let bytes: Vec<_> =
            run.bytes.iter().map(|byte| byte.swap(0xee, Ordering::Relaxed)).collect();
        let Run { from, from_port, to, segment_size, traffic_class, hop_limit, .. } = *run;
        let bytes = &bytes;
        let run = Run { from, from_port, to, bytes, segment_size, traffic_class, hop_limit };
        self.transmit(&run)
    }

    fn transmit(&mut self, run: &Run<'_>) -> SendOutcome {
        if self.is_lost.load(Ordering::Relaxed) {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return SendOutcome::Dropped;
        }
        self.wire.transmit(run)
    }

    fn is_receiver_congested(&mut self) -> bool {
        false
    }
}

/// Delivers runs to `to`, those without ICRCs as packets from memory.
fn deliver(to: &Host, runs: &[(PacketRun, bool)]) {
    let mut scratch = ReceiveScratch::default();
    for (run, in_memory) in runs {
        let (now, datagrams) = (to.clock.now(), run.datagrams());
        match in_memory {
            true => to.device.receive_in_memory(now, &datagrams, &mut scratch),
            false => to.device.receive(now, &datagrams, &mut scratch),
        }
    }
}

/// Exchanges the packets of both hosts until there are none.
fn exchange(a: &Host, b: &Host, port: &Memory) {
    loop {
        let (from_a, from_b) = (port.take(a), port.take(b));
        if from_a.is_empty() && from_b.is_empty() {
            return;
        }
        deliver(b, &from_a);
        deliver(a, &from_b);
    }
}

fn write(a: &Host, b: &Host, len: u32) {
    a.write(0, &vec![7; len as usize]);
    a.post(SendOp::Write { remote: b.remote(0) }, &[a.sge(0, len)]);
}

#[test]
fn packets_in_memory_have_no_icrc_and_only_the_memory_takes_them() {
    for port in [Memory::new(), Memory::with_room()] {
        let (a, b, _) = pair();
        write(&a, &b, 10_000);
        let sent = port.take(&a);
        assert!(sent.iter().all(|(_, lacks_icrc)| *lacks_icrc));
        let built = if port.room.is_empty() { 0 } else { sent.len() };
        assert_eq!(port.built.load(Ordering::Relaxed), built);
        // As packets from a wire, they are damaged.
        let mut scratch = ReceiveScratch::default();
        let mut packets = 0;
        for (run, _) in &sent {
            packets += run.segments().count() as u64;
            b.device.receive(b.clock.now(), &run.datagrams(), &mut scratch);
        }
        assert_eq!(b.counter(Counter::DropIcrc), packets);
        assert_eq!(b.counter(Counter::RcvdPkts), 0);
        deliver(&b, &sent);
        exchange(&a, &b, &port);
        assert_eq!(a.statuses(), [WcStatus::Success]);
        assert_eq!(b.bytes(0, 10_000), vec![7; 10_000]);
    }
}

#[test]
fn a_run_that_the_memory_loses_is_repeated_over_the_wire() {
    for port in [Memory::new(), Memory::with_room()] {
        let (a, b, _) = pair();
        port.is_lost.store(true, Ordering::Relaxed);
        write(&a, &b, 3000);
        assert!(port.take(&a).is_empty());
        assert!(port.lost.load(Ordering::Relaxed) > 0);
        assert!(a.counter(Counter::SendErr) > 0);
        port.is_open.store(false, Ordering::Relaxed);
        a.clock.set(a.device.next_deadline().unwrap());
        a.device.handle_timeouts(a.clock.now());
        exchange(&a, &b, &port);
        assert_eq!((a.statuses(), b.bytes(0, 3000)), (vec![WcStatus::Success], vec![7; 3000]));
    }
}

#[test]
fn runs_in_room_are_the_same_as_copied_ones() {
    let sent = [Memory::new(), Memory::with_room()].map(|port| {
        let (a, b, _) = pair();
        a.write(0, &(0..200_000_u32).map(|at| at as u8).collect::<Vec<_>>());
        let mut runs = Vec::new();
        // Whole runs, pads, several messages in a run, inline data, no data.
        for (at, len) in [(0, 100_000), (100, 4099), (3, 1), (9, 0), (5, 4096), (7, 2)] {
            a.post(SendOp::Write { remote: b.remote(0) }, &[a.sge(at, len)]);
        }
        a.post(SendOp::Read { remote: b.remote(0) }, &[a.sge(150_000, 30_000)]);
        loop {
            let (from_a, from_b) = (port.take(&a), port.take(&b));
            if from_a.is_empty() && from_b.is_empty() {
                break;
            }
            deliver(&b, &from_a);
            deliver(&a, &from_b);
            runs.extend(from_a.into_iter().chain(from_b).map(|(run, _)| run.bytes));
        }
        assert_eq!(a.statuses(), [WcStatus::Success; 7]);
        assert_eq!(port.built.load(Ordering::Relaxed) > 3, !port.room.is_empty());
        runs
    });
    assert_eq!(sent[0], sent[1]);
}

/// The other process changes headers of packets that it sent, as a hostile one may. Only payload is
/// placed, and only in the registered memory.
#[test]
fn no_change_of_shared_headers_places_anything_but_payload() {
    let (mut whole, mut partial, mut none) = (0, 0, 0);
    for seed in 0..400 {
        let (mut rng, (a, b, wire)) = (Rng::stream(seed, 0), pair());
        b.write(0, &[1; 40_000]);
        a.write(0, &[7; 10_000]);
        a.post(SendOp::Write { remote: b.remote(10_000) }, &[a.sge(0, 10_000)]);
        a.transmit(&wire);
        for run in wire.take() {
            let shared: Vec<AtomicU8> = run.bytes.iter().copied().map(AtomicU8::new).collect();
            for _ in 0..rng.between(0, 3) {
                let headers: Vec<_> =
                    run.packets().map(|packet| packet.info().headers_len()).collect();
                let packet = rng.index(headers.len());
                let byte = &shared[packet * run.segment_size + rng.index(headers[packet])];
                byte.store(rng.index(256) as u8, Ordering::Relaxed);
            }
            let datagrams = run.datagrams().with_bytes(&shared, run.segment_size);
            let mut scratch = ReceiveScratch::collecting_unmatched();
            b.device.receive_shared(b.clock.now(), &datagrams, &mut scratch);
        }
        let written = b.bytes(0, 40_000);
        assert!(written.iter().all(|byte| [1, 7].contains(byte)), "seed {seed}");
        match written.iter().filter(|byte| **byte == 7).count() {
            0 => none += 1,
            10_000 => whole += 1,
            _ => partial += 1,
        }
    }
    assert!(whole > 20 && partial > 20 && none > 20, "{whole} {partial} {none}");
}

/// QP1 and groups have a path of their own, because their packets are for several processes.
#[test]
fn only_packets_for_one_process_stay_in_memory() {
    let (a, _) = host(QpType::Ud);
    start(&a, a.qp, QpType::Ud);
    let ah = a.ah(B.into());
    let port = Memory::new();
    let group = a.ah([239, 1, 2, 3].into());
    let to_each = [(ah, 5), (ah, 1), (group, 0xff_ffff), (ah, 6)];
    let to_each = to_each.map(|(ah, number)| (ah, Qpn::masked(number)));
    for (ah, qpn) in to_each {
        let (to, flags) = (to_qp(ah, qpn, urxe_wire::QKey(7)), SendFlags::INLINE);
        let payload = Payload::Inline(&[b"to one, or to all"]);
        let request = SendRequest { to, flags, payload, ..request(SendOp::Send, &[]) };
        a.post_request(a.qp, &request).unwrap();
    }
    let mut sent: Vec<_> = port
        .take(&a)
        .iter()
        .flat_map(|(run, lacks_icrc)| run.packets().map(|packet| (packet.dest_qp(), *lacks_icrc)))
        .collect();
    sent.sort_by_key(|(qpn, _)| qpn.value());
    let expected = [(1, false), (5, true), (6, true), (0xff_ffff, false)];
    assert_eq!(sent, expected.map(|(number, lacks_icrc)| (Qpn::masked(number), lacks_icrc)));
}

/// A port that another thread makes wait until it has polled the completions of the sender.
struct Contended {
    cq: Arc<Cq>,
    polled: AtomicUsize,
}

impl Transmit for Contended {
    fn transmit(&self, _: &Run<'_>) -> SendOutcome {
        let (cq, (result, polled)) = (Arc::clone(&self.cq), mpsc::channel());
        std::thread::spawn(move || result.send(poll(&cq).len()));
        let polled = polled.recv_timeout(Duration::from_secs(10));
        self.polled.fetch_add(polled.expect("the queue is not locked"), Ordering::Relaxed);
        SendOutcome::Sent
    }
}

#[test]
fn no_completion_queue_is_locked_while_a_port_sends() {
    const MESSAGES: usize = 9;
    let (a, _) = host(QpType::Ud);
    start(&a, a.qp, QpType::Ud);
    let to = to_qp(a.ah(B.into()), Qpn::masked(5), urxe_wire::QKey(7));
    for number in 0..MESSAGES {
        // Each third message ends a run, because the next one is longer.
        let payload = [&b"a long message"[..4 * (3 - number % 3)]];
        let (payload, flags) = (Payload::Inline(&payload), SendFlags::INLINE | SendFlags::SIGNALED);
        let request = SendRequest { to, flags, payload, ..request(SendOp::Send, &[]) };
        a.post_request(a.qp, &request).unwrap();
    }
    let port = Contended { cq: Arc::clone(&a.cq), polled: AtomicUsize::new(0) };
    a.device.transmit_pending(a.clock.now(), &port);
    let polled = port.polled.into_inner();
    assert!(polled > 0, "completions come before the run is sent");
    assert_eq!(polled + a.completions().len(), MESSAGES);
}

//! Rings that a device reads, of which both ends are in this process.

use std::sync::{OnceLock, Weak};

use urxe_test_support::packet::{PACKET, Packet};
use urxe_test_support::wire::PacketRun;

use super::*;
use crate::driver::ports::ReceiveScope;
use crate::port::{Datagrams, PacketTap, Run};
use crate::ring::{Accepted, Endpoint, Link, Producer, Push, Record};
use crate::sys::shared_memory::SharedMemory;

const CAPACITY: usize = 1 << 16;
const LAYOUT: u64 = 1;

/// The producer's end of a ring.
#[derive(Debug)]
struct Writer {
    _link: Link,
    memory: SharedMemory,
    producer: Producer,
}

impl Writer {
    /// Adds a ring to the device.
    fn new(shared: &Shared, to: IpAddr) -> Self {
        let [own, others] = Link::pair().unwrap();
        let (memory, file) = SharedMemory::create(CAPACITY, LAYOUT).unwrap();
        let others_memory = SharedMemory::open(&*file, CAPACITY, LAYOUT).unwrap();
        let from = Endpoint { address: to, scope_id: 0, slot: 1 };
        let accepted = Accepted { link: others, memory: others_memory, from };
        shared.ports.rings().unwrap().incoming.add(accepted, to).unwrap();
        Self { _link: own, memory, producer: Producer::default() }
    }

    fn push(&mut self, run: &PacketRun) {
        let run = run.run();
        let record = Record {
            segment_size: run.segment_size as u16,
            from_port: run.from_port,
            traffic_class: 0,
            hop_limit: 64,
        };
        let pushed = self.producer.push(&self.memory, record, run.bytes).unwrap();
        assert!(matches!(pushed, Push::Done { .. }));
    }
}

/// Adds a second ring at the first packet that arrives, as the background thread may do.
#[derive(Debug, Default)]
struct AddsRing {
    device: OnceLock<(Weak<Shared>, IpAddr)>,
    ring: OnceLock<Mutex<Writer>>,
}

impl PacketTap for AddsRing {
    fn sent(&self, _: u64, _: &Run<'_>) {}

    fn received(&self, _: u64, _: &Datagrams<'_>) {
        if let Some((shared, to)) = self.device.get()
            && let Some(shared) = shared.upgrade()
        {
            let _ = self.ring.get_or_init(|| Mutex::new(Writer::new(&shared, *to)));
        }
    }
}

/// The device reads its sockets before the first record of a ring, because their packets are older.
#[test]
fn a_ring_that_comes_while_the_sockets_are_read_is_read_too() {
    let (to, outside) = (IpAddr::V4(address(24, 1)), IpAddr::V4(address(24, 2)));
    let tap = Arc::new(AddsRing::default());
    let config =
        EngineConfig { shared_memory: true, tap: Some(tap.clone()), ..EngineConfig::default() };
    let end = End::new(address(24, 1), config);
    let outside = UdpPort::open(UdpConfig::new(outside)).unwrap();
    let shared = &end.engine.shared;
    let run = Packet::merge(outside.address(), to, [(Qpn::masked(5), PACKET)]);

    // The background thread reads nothing until then.
    let mut receiver = lock(&shared.receiver);
    let receive = |receiver: &mut _| {
        shared.ports.receive(receiver, &shared.device, ReceiveScope::All);
    };
    let in_memory = || end.counter(Counter::RcvdInMemory);
    assert!(tap.device.set((Arc::downgrade(shared), to)).is_ok());
    let mut first = Writer::new(shared, to);
    assert_eq!(outside.transmit(&run.run()), crate::port::SendOutcome::Sent);
    first.push(&run);
    let start = Instant::now();
    while tap.ring.get().is_none() {
        assert!(start.elapsed() < Duration::from_secs(20), "no packet arrives");
        receive(&mut receiver);
    }
    assert_eq!(in_memory(), 1);
    lock(tap.ring.get().unwrap()).push(&run);
    receive(&mut receiver);
    assert_eq!(in_memory(), 2);
}

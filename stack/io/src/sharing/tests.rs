//! Devices of one process on one address, which share it in the same way as processes do. The
//! project's `tests/tests/sharing.rs` kills processes; the tests of `sys::fork` fork.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::AtomicU64;

use super::*;
use crate::sys::unix;
use crate::udp::ReceiveBuffers;
use crate::udp::tests::run_between;
use urxe_types::port::{Run, StoredPacket, Transmit};
use urxe_types::rng::Rng;

/// Returns an address that no other test uses.
fn address(of_test: u8) -> IpAddr {
    let [.., high, low] = std::process::id().to_be_bytes();
    IpAddr::V4(Ipv4Addr::new(127, 64 + of_test, high, low.max(1)))
}

fn joined(address: IpAddr) -> PortSet {
    static CLAIMS: AtomicU64 = AtomicU64::new(1);
    let seed = CLAIMS.fetch_add(1, Ordering::Relaxed);
    let mut rng = Rng::stream(seed, u64::from(std::process::id()));
    join(&[UdpConfig::new(address)], || rng.next_u64()).unwrap()
}

/// Returns a packet of 64 bytes to a queue pair, without an ICRC.
fn packet(qpn: u32, mark: u8) -> Vec<u8> {
    let mut bytes = vec![mark; 64];
    bytes[..8].copy_from_slice(&[0x04, 0, 0xff, 0xff, 0, 0, 0, 0]);
    bytes[4..8].copy_from_slice(&(qpn & 0xff_ffff).to_be_bytes());
    bytes
}

fn qpn_of(slot: u8) -> u32 {
    u32::from(slot) << steering::QPN_SLOT_SHIFT | 0x123
}

fn send(to: IpAddr, bytes: &[u8]) {
    let socket = UdpSocket::bind((to, 0)).unwrap();
    socket.send_to(bytes, SocketAddr::new(to, urxe_wire::ROCE_PORT)).unwrap();
}

/// Returns the marks of the packets that wait at a port.
fn marks(port: &UdpPort) -> Vec<u8> {
    let mut buffers = ReceiveBuffers::new(ReceiveBuffers::MAX).unwrap();
    let mut marks = Vec::new();
    while port.receive(&mut buffers).unwrap() > 0 {
        for datagrams in buffers.iter() {
            marks.extend(datagrams.segments().map(|segment| segment[segment.len() - 1]));
        }
    }
    marks
}

#[test]
fn devices_on_one_address_get_slots_and_each_its_own_packets() {
    let at = address(0);
    let devices: Vec<PortSet> = (0..5).map(|_| joined(at)).collect();
    assert_eq!(devices.iter().map(|device| device.slot).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    for (device, mark) in devices.iter().zip(10..) {
        send(at, &packet(qpn_of(device.slot), mark));
    }
    send(at, &packet(1, 99));
    for (device, mark) in devices.iter().zip(10..) {
        assert_eq!(marks(&device.ports[0]), [mark]);
    }
    assert_eq!(marks(devices[3].members[0].common().unwrap()), [99], "QP1's packet is everybody's");
    assert_eq!(marks(devices[1].members[0].common().unwrap()), [0; 0], "and was read once");
}

#[test]
fn a_slot_keeps_its_socket_when_lower_slots_are_released_and_is_reused_empty() {
    let at = address(1);
    let mut devices: Vec<Option<PortSet>> = (0..4).map(|_| Some(joined(at))).collect();
    // In this order a group of plain sockets would be renumbered twice.
    devices[0] = None;
    devices[2] = None;
    for (slot, mark) in [(1, 1), (3, 3)] {
        send(at, &packet(qpn_of(slot), mark));
    }
    for slot in [1, 3] {
        assert_eq!(marks(&devices[usize::from(slot)].as_ref().unwrap().ports[0]), [slot]);
    }
    for slot in [0, 2] {
        send(at, &packet(qpn_of(slot), 77));
    }
    let again = joined(at);
    assert_eq!(again.slot, 0, "the lowest free slot");
    assert_eq!(marks(&again.ports[0]), [0; 0], "what was for its former owner is gone");
    let discarded = again.members[0]
        .discard_orphaned(&mut ReceiveBuffers::new(ReceiveBuffers::MAX).unwrap(), |_| false);
    assert_eq!(discarded, 1, "and what is for the other dead slot is discarded");
    send(at, &packet(qpn_of(0), 5));
    assert_eq!(marks(&again.ports[0]), [5]);
}

#[test]
fn a_receiver_is_congested_before_anything_is_lost_and_no_longer_when_it_has_read() {
    let at = address(20);
    let [here, there] = [joined(at), joined(at)];
    let is_receiver_congested = || here.members[0].is_receiver_congested(there.slot);
    let lost = || socket::memory(&there.ports[0]).unwrap().dropped;
    let long = [packet(qpn_of(there.slot), 1), vec![1; 32_000]].concat();
    let mut sent = 0;
    while !is_receiver_congested() {
        send(at, &long);
        sent += 1;
        assert_eq!(lost(), 0, "after {sent} packets");
    }
    assert!(sent > 2, "{sent}");
    // The burst that a sender may have in flight when it checks.
    for _ in 0..urxe_types::port::PACED_BURST / 32_000 {
        send(at, &long);
    }
    assert_eq!(lost(), 0);
    marks(&there.ports[0]);
    assert!(!is_receiver_congested());
    assert!(!here.members[0].is_receiver_congested(here.slot), "no process checks itself");
    assert!(!here.members[0].is_receiver_congested(63), "no process has ever had that slot");
}

#[test]
fn the_address_is_free_again_when_the_last_one_leaves() {
    let at = address(2);
    let devices: Vec<PortSet> = (0..3).map(|_| joined(at)).collect();
    assert_eq!(sharers(at, 0).iter().map(|sharer| sharer.slot).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(matches!(UdpPort::open(UdpConfig::new(at)), Err(OpenPortError::AddressInUse { .. })));
    drop(devices);
    assert_eq!(sharers(at, 0), []);
    drop(UdpPort::open(UdpConfig::new(at)).unwrap());
}

#[test]
fn the_holder_of_an_unshared_port_is_named() {
    let at = address(3);
    let holder = UdpPort::open(UdpConfig::new(at)).unwrap();
    let error = join(&[UdpConfig::new(at)], || 1).unwrap_err();
    let OpenPortError::AddressInUse { owner: Some(owner), free: Some(free), .. } = error else {
        panic!("{error:?}")
    };
    assert_eq!(
        (owner.pid, owner.uid),
        (Some(std::process::id() as i32), rustix::process::geteuid().as_raw())
    );
    let text = error.to_string();
    assert!(
        text.contains(&std::process::id().to_string()) && text.contains(&free.to_string()),
        "{text}"
    );
    assert_eq!(error.errno(), libc::EADDRINUSE);
    drop(holder);
    assert_eq!(joined(at).slot, 0);
}

#[test]
fn as_many_devices_as_there_are_slots_share_an_address_and_no_more() {
    let at = address(4);
    let mut devices: Vec<PortSet> = (0..64).map(|_| joined(at)).collect();
    let error = join(&[UdpConfig::new(at)], || 1).unwrap_err();
    assert!(matches!(error, OpenPortError::TooManyProcesses { allowed: 64, .. }), "{error:?}");
    send(at, &packet(qpn_of(63), 63));
    assert_eq!(marks(&devices[63].ports[0]), [63]);
    devices.remove(17);
    assert_eq!(joined(at).slot, 17);
}

#[test]
fn a_device_with_several_addresses_has_the_same_slot_on_all() {
    let (a, b) = (address(5), address(6));
    let on_a = [joined(a), joined(a)];
    let on_b = joined(b);
    let mut claims = 100;
    let both = join(&[UdpConfig::new(b), UdpConfig::new(a)], || {
        claims += 1;
        claims
    })
    .unwrap();
    assert_eq!((on_a[1].slot, on_b.slot, both.slot), (1, 0, 2));
    for (port, at) in both.ports.iter().zip([b, a]) {
        assert_eq!(port.address(), at);
        send(at, &packet(qpn_of(2), 42));
        assert_eq!(marks(port), [42]);
    }
    // Slot 1 of b was skipped, not lost.
    assert_eq!(joined(b).slot, 1);
}

fn to_forward(to: IpAddr, bytes: &[u8]) -> Datagrams<'_> {
    let from = "127.0.0.9".parse().unwrap();
    let (from_port, traffic_class, hop_limit) = (0xc000, 2, 64);
    let segment_size = bytes.len();
    Datagrams { from, from_port, to, bytes, segment_size, traffic_class, hop_limit }
}

#[test]
fn a_packet_in_the_wrong_process_is_forwarded_to_the_right_one() {
    let at = address(7);
    let (here, there) = (joined(at), joined(at));
    let bytes = packet(qpn_of(there.slot), 9);
    let datagrams = to_forward(at, &bytes);
    let serving = std::thread::spawn(move || {
        let mut taken = Vec::new();
        while taken.len() < 2 {
            let sink = |datagrams: &Datagrams<'_>| taken.push(format!("{datagrams:?}"));
            there.members[0].serve(&mut Vec::new(), sink, |_| (), Vec::new);
            std::thread::yield_now();
        }
        taken
    });
    assert_eq!(here.members[0].forward_packets(1, [datagrams, datagrams].into_iter()), 2);
    assert_eq!(serving.join().unwrap(), [format!("{datagrams:?}"), format!("{datagrams:?}")]);
    assert_eq!(
        here.members[0].forward_packets(1, std::iter::once(datagrams)),
        0,
        "no device has the slot any more"
    );
}

#[test]
fn all_packets_that_a_process_took_arrive_there() {
    let at = address(14);
    let (here, there) = (joined(at), joined(at));
    let bytes = packet(qpn_of(there.slot), 9);
    let packets = std::iter::repeat_n(to_forward(at, &bytes), 2000);
    let forwarding = std::thread::spawn({
        let packets: Vec<_> =
            packets.map(|packet| StoredPacket::new(&packet, bytes.clone().into())).collect();
        move || here.members[0].forward_packets(1, packets.iter().map(StoredPacket::datagrams))
    });
    let mut arrived = 0;
    let deadline = crate::sys::clock::now() + Duration::from_secs(20);
    let mut serve = || there.members[0].serve(&mut Vec::new(), |_| arrived += 1, |_| (), Vec::new);
    while !forwarding.is_finished() {
        assert!(crate::sys::clock::now() < deadline, "the sender waits");
        serve();
    }
    // The last connections.
    (0..200).for_each(|_| serve());
    let taken = forwarding.join().unwrap();
    assert!(taken > 0);
    assert_eq!(arrived, taken);
}

#[test]
fn a_process_sends_its_listing_to_a_tool() {
    let at = address(10);
    let there = joined(at);
    let slot = there.slot;
    assert_eq!(listing_of(at, 0, slot), Err(Errno::TIMEDOUT), "no thread serves the requests");
    assert_eq!(listing_of(at, 0, slot + 1), Err(Errno::CONNREFUSED));
    // Longer than any message.
    for text in [Vec::new(), b"connections".repeat(100_000)] {
        std::thread::scope(|scope| {
            let asking = scope.spawn(|| listing_of(at, 0, slot));
            while !asking.is_finished() {
                there.members[0].serve(
                    &mut Vec::new(),
                    |_| panic!("nothing was handed in"),
                    |_| (),
                    || text.clone(),
                );
                std::thread::yield_now();
            }
            assert!(asking.join().unwrap().unwrap() == text);
        });
    }
}

/// Replies once to a joining process, as a later version does.
fn later_version(address: IpAddr) -> std::thread::JoinHandle<()> {
    let name = SharedAddress::new(address, 0).rendezvous_name(0);
    let listener = unix::listen_at(unix::Name::Abstract(&name)).unwrap();
    std::thread::spawn(move || {
        let deadline = crate::sys::clock::now() + Duration::from_secs(20);
        let connection = loop {
            match rustix::net::accept(&listener) {
                Ok(connection) => break connection,
                Err(_) => assert!(crate::sys::clock::now() < deadline, "no process asks"),
            }
            std::thread::yield_now();
        };
        let mut request = [0; 2];
        while unix::receive(&connection, &mut request, &mut Vec::new(), false).is_err() {
            std::thread::yield_now();
        }
        assert_eq!(request, [b'J', 1], "the request of this version");
        unix::send(&connection, &[b"V\x02", b"0.9.1\0/opt/later/liburxe.so"], &[]).unwrap();
    })
}

#[test]
fn a_version_that_does_not_understand_the_request_is_named_with_its_path() {
    let at = address(15);
    let _port = UdpPort::open(UdpConfig::new(at)).unwrap();
    let later = later_version(at);
    let error = join(&[UdpConfig::new(at)], || 1).unwrap_err();
    later.join().unwrap();
    let OpenPortError::OtherVersion { own, other, .. } = &error else { panic!("{error:?}") };
    assert_eq!((own.protocol, own.version.as_str()), (1, env!("CARGO_PKG_VERSION")));
    assert_eq!(own.path, std::env::current_exe().unwrap().to_str().unwrap());
    assert_eq!((other.protocol, other.version.as_str()), (2, "0.9.1"));
    assert!(error.to_string().contains("/opt/later/liburxe.so"), "{error}");
    assert_eq!(error.errno(), libc::EADDRINUSE);
}

#[test]
fn an_unknown_request_is_answered_with_version_and_path() {
    let at = address(16);
    let there = joined(at);
    let name = SharedAddress::new(at, 0).rendezvous_name(there.slot);
    for request in [&b"J\x02"[..], b"V\x01", b"Z", b"J\x01 and more"] {
        let connection = unix::connect_to(unix::Name::Abstract(&name)).unwrap();
        unix::send(&connection, &[request], &[]).unwrap();
        there.members[0].serve(&mut Vec::new(), |_| panic!("no packet"), |_| (), Vec::new);
        let mut reply = [0; crate::rendezvous::MAX_DESCRIPTION];
        let length = unix::receive(&connection, &mut reply, &mut Vec::new(), false).unwrap();
        assert_eq!(LibraryCopy::parse(&reply[..length]), Some(LibraryCopy::own()), "{request:?}");
    }
}

/// The second view of the group stands for that of another copy, which has its own registry.
#[test]
fn a_second_copy_of_the_library_in_a_process_is_refused_with_both_paths() {
    let at = address(17);
    let first = joined(at);
    let shared = SharedAddress::new(at, 0);
    std::thread::scope(|scope| {
        let second = scope.spawn(|| {
            let group = Arc::new(*server::request_group(shared).unwrap());
            let claimed = claim(&[&group], &mut || 1).map(|(slot, _)| slot);
            // Closing its table would release the locks of the process.
            std::mem::forget(group);
            claimed
        });
        while !second.is_finished() {
            first.members[0].serve(&mut Vec::new(), |_| panic!("no packet"), |_| (), Vec::new);
            std::thread::yield_now();
        }
        let error = second.join().unwrap().unwrap_err();
        let path = std::env::current_exe().unwrap().display().to_string();
        assert_eq!(error.to_string().matches(&path).count(), 2, "{error}");
        assert_eq!(error.errno(), libc::EBUSY);
    });
}

#[test]
fn a_record_of_the_program_that_executed_this_one_is_no_second_copy() {
    let at = address(18);
    let first = joined(at);
    let group = Arc::clone(first.members[0].group());
    // The record of slot 1 has this process, but no process listens there.
    let record = group.table.record(first.slot).unwrap();
    group.table.set_record(1, record).unwrap();
    assert_eq!(joined(at).slot, 2);
}

#[test]
fn a_request_that_was_too_late_is_sent_again() {
    let at = address(11);
    let there = joined(at);
    let listener = there.members[0].rendezvous().unwrap();
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| listing_of(at, 0, there.slot));
        // Three times, the server's timeout passes before it reads the request.
        for _ in 0..3 {
            while !asking.is_finished() && rustix::net::accept(listener).is_err() {
                std::thread::yield_now();
            }
        }
        while !asking.is_finished() {
            there.members[0].serve(&mut Vec::new(), |_| {}, |_| (), || b"connections".to_vec());
            std::thread::yield_now();
        }
        assert_eq!(asking.join().unwrap().unwrap(), b"connections");
    });
}

#[test]
fn each_peer_slot_has_a_source_port_of_its_own() {
    let at = address(8);
    let (here, there) = (joined(at), joined(at));
    let port = &here.ports[0];
    let numbers: Vec<u16> = (0..64).map(|slot| port.port_towards(slot)).collect();
    assert_eq!(numbers, (0..64).map(|slot| port.port_towards(slot)).collect::<Vec<_>>());
    let distinct: std::collections::BTreeSet<_> = numbers.iter().collect();
    assert_eq!(distinct.len(), 64);
    let bytes = packet(qpn_of(there.slot), 4);
    let run = |from_port| Run { from_port, ..run_between(at, at, &bytes, bytes.len()) };
    assert_eq!(port.transmit(&run(numbers[1])), urxe_types::port::SendOutcome::Sent);
    let mut buffers = ReceiveBuffers::new(ReceiveBuffers::MAX).unwrap();
    assert_eq!(there.ports[0].receive(&mut buffers).unwrap(), 1);
    assert_eq!(buffers.iter().next().unwrap().from_port, numbers[1]);
    // A sender receives nothing.
    UdpSocket::bind((at, 0)).unwrap().send_to(b"x", (at, numbers[1])).unwrap();
    assert_eq!(
        port.transmit(&run(1)),
        urxe_types::port::SendOutcome::Dropped,
        "a port that is not open here"
    );
}

#[test]
fn a_service_is_claimed_once_and_goes_with_its_process() {
    let at = address(9);
    let (a, b) = (joined(at), joined(at));
    let id = 0x0106_1234;
    a.members[0].listen(id).unwrap();
    assert_eq!(b.members[0].listener_of(id), Some(a.slot));
    for of in [&a, &b] {
        let error = of.members[0].listen(id).unwrap_err();
        assert!(matches!(error, ListenError::InUse { owner: Some(_), .. }), "{error:?}");
        assert_eq!(error.errno(), libc::EADDRINUSE);
        assert!(error.to_string().contains("port 4660"), "{error}");
    }
    // The same port in another port space is another service.
    b.members[0].listen(0x0111_1234).unwrap();
    assert!(!b.members[0].unlisten(id), "not its own");
    drop(a);
    assert_eq!(b.members[0].listener_of(id), None);
    b.members[0].listen(id).unwrap();
    assert!(b.members[0].unlisten(id) && b.members[0].listen(id).is_ok());
    for n in 0..urxe_types::owner::MAX_SERVICES as u64 - 2 {
        b.members[0].listen(0x9_0000 + n).unwrap();
    }
    assert!(matches!(b.members[0].listen(1), Err(ListenError::TooMany { .. })));
}

#[test]
fn the_search_for_one_address_does_not_hold_up_another() {
    use std::sync::mpsc::channel;
    let (slow, fast) = (address(12), address(13));
    let shared = SharedAddress::new(slow, 0);
    let ((started, has_started), (done, is_done)) = (channel(), channel());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let find = || {
                started.send(()).unwrap();
                is_done
                    .recv_timeout(Duration::from_secs(30))
                    .map_err(|_| "the other one waited")?;
                Err("found none")
            };
            assert_eq!(REGISTRY.get().group(shared, find).map(drop), Err("found none"));
        });
        has_started.recv().unwrap();
        drop(joined(fast));
        done.send(()).unwrap();
    });
    assert_eq!(joined(slow).slot, 0);
}

#[test]
fn ipv6_is_shared_as_well() {
    let at: IpAddr = "::1".parse().unwrap();
    let free = UdpSocket::bind((at, urxe_wire::ROCE_PORT));
    if free.is_err() {
        eprintln!("not tried: [::1]:4791 is taken or there is no IPv6");
        return;
    }
    drop(free);
    let devices: Vec<PortSet> = (0..3).map(|_| joined(at)).collect();
    for device in &devices {
        send(at, &packet(qpn_of(device.slot), device.slot));
    }
    for device in &devices {
        assert_eq!(marks(&device.ports[0]), [device.slot]);
    }
}

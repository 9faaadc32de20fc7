//! What a device tells when its interface goes down and up and its addresses go and come; and that hosts made of network namespaces stay apart.
//!
//! Needs root in a network namespace of its own, and `ip` (iproute2):
//!
//! ```text
//! sudo unshare --net cargo test -p urxe-stack --test interface_changes -- --ignored
//! unshare --map-root-user --net cargo test -p urxe-stack --test interface_changes -- --ignored
//! ```
//!
//! A veth pair stands for a cable: its other end has no address, and is taken down to take the carrier away.

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::thread::{UnshareFlags, unshare_unsafe};
use urxe_stack::cq::{AsyncEvent, Completion, Cq, PortEventType};
use urxe_stack::device::QpHandle;
use urxe_stack::driver::eventfd::EventFd;
use urxe_stack::driver::{Engine, EngineConfig};
use urxe_stack::link::{LinkSpec, OperState};
use urxe_stack::memory::{Access, Buffer, Mr, PdId};
use urxe_stack::qp::QpInit;
use urxe_stack::qp::attr::{AddressVector, QpAttr, QpAttrMask, QpCap, QpState, QpType};
use urxe_stack::qp::wr::{Destination, Payload, RecvRequest, SendFlags, SendOp, SendRequest, Sge};
use urxe_wire::{Gid, QKey, Qpn};

const FIRST: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
const SECOND: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 2);
const NEW: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 3);

fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split(' ')).output().expect("iproute2 is installed");
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A cable with the addresses [`FIRST`] and [`SECOND`] at this end, for one test at a time.
struct Cable {
    _alone: MutexGuard<'static, ()>,
}

impl Cable {
    fn new() -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let interfaces = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
        let others = interfaces.lines().skip(2).filter(|line| !line.trim_start().starts_with("lo:")).count();
        assert_eq!(others, 0, "this is not a network namespace of the test's own: see the head of this file");
        ip("link add here type veth peer name there");
        // No IPv6: its addresses come and go by themselves, seconds after the interface.
        ip("link set here addrgenmode none");
        ip(&format!("address add {FIRST}/24 dev here"));
        ip(&format!("address add {SECOND}/24 dev here"));
        ip("link set there up");
        ip("link set here up");
        Self { _alone: alone }
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        ip("link del here");
    }
}

fn open(source: &str) -> Engine {
    let spec: LinkSpec = format!("rxe0={source}").parse().unwrap();
    let engine = Engine::open(&spec, EngineConfig::default()).unwrap();
    // What setting up the cable told may still be under way.
    std::thread::sleep(Duration::from_millis(200));
    while engine.device().events().next_event().is_some() {}
    engine
}

/// The next events, as many as `expected` has.
fn told(engine: &Engine, expected: &[PortEventType]) {
    let end = Instant::now() + Duration::from_secs(30);
    let mut got = Vec::new();
    while got.len() < expected.len() && Instant::now() < end {
        match engine.device().events().next_event() {
            Some(event) => got.push(event),
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    let expected: Vec<_> = expected.iter().map(|event| AsyncEvent::Port(*event, 1)).collect();
    assert_eq!(got, expected);
}

fn addresses(engine: &Engine) -> Vec<Option<IpAddr>> {
    let table = engine.device().gids();
    assert_eq!(table, engine.gids().iter().map(|entry| entry.gid).collect::<Vec<_>>());
    table.iter().map(|gid| (!gid.is_zero()).then(|| gid.to_ip())).collect()
}

/// A datagram queue pair with receives of 1 KiB, behind the 40 bytes of header of each.
struct Talker<'e> {
    engine: &'e Engine,
    pd: PdId,
    cq: Arc<Cq>,
    qp: QpHandle,
    buffer: Arc<Buffer>,
    mr: Mr,
}

const QKEY: QKey = QKey(0x1234);
const ROOM: usize = 1024;

impl<'e> Talker<'e> {
    fn new(engine: &'e Engine) -> Self {
        let device = engine.device();
        let pd = device.alloc_pd().unwrap();
        let cq = device.create_cq(16, None, 0).unwrap();
        let cap =
            QpCap { max_send_wr: 4, max_recv_wr: 4, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 64 };
        let (send_cq, recv_cq) = (Arc::clone(&cq), Arc::clone(&cq));
        let init = QpInit { qp_type: QpType::Ud, pd, send_cq, recv_cq, srq: None, cap, sq_sig_all: false };
        let qp = device.create_qp(&init).unwrap();
        use QpAttrMask as M;
        let states = [
            (QpState::Init, M::PKEY_INDEX | M::PORT | M::QKEY),
            (QpState::Rtr, M::empty()),
            (QpState::Rts, M::SQ_PSN),
        ];
        for (qp_state, bits) in states {
            let attr = QpAttr { qp_state, port_num: 1, qkey: QKEY, ..QpAttr::default() };
            engine.modify_qp(qp, &attr, bits | M::STATE).unwrap();
        }
        let buffer = Arc::new(Buffer::new(ROOM).unwrap());
        let mr =
            device.memory().register_buffer(pd, &buffer, 0..ROOM, buffer.addr() as u64, Access::LOCAL_WRITE);
        Self { engine, pd, cq, qp, buffer, mr: mr.unwrap() }
    }

    /// Sends from entry `sgid_index` of the own table to a talker's address.
    fn send(&self, sgid_index: u8, to: &Talker<'_>, address: Ipv4Addr, text: &[u8]) {
        self.send_to(sgid_index, to.qp.qpn(), address, text);
    }

    fn send_to(&self, sgid_index: u8, qpn: Qpn, address: Ipv4Addr, text: &[u8]) {
        let attr = AddressVector {
            dgid: Gid::from_ip(address.into()),
            sgid_index,
            is_global: true,
            port_num: 1,
            ..AddressVector::default()
        };
        let ah = self.engine.device().create_ah(self.pd, &attr).unwrap();
        let request = SendRequest {
            wr_id: 1,
            op: SendOp::Send,
            to: Destination::Datagram { ah, qpn, qkey: QKEY },
            flags: SendFlags::empty(),
            payload: Payload::Inline(&[text]),
        };
        self.engine.post_send(self.qp, &[request]).unwrap();
    }

    fn listen(&self) {
        let sges = [Sge { addr: self.mr.iova, length: ROOM as u32, lkey: self.mr.lkey }];
        self.engine.post_recv(self.qp, &[RecvRequest { wr_id: 2, sges: &sges }]).unwrap();
    }

    /// Waits for a datagram without receiving: source and destination address by its header, and its text. `None` if none comes.
    fn hear(&self, patience: Duration) -> Option<(Ipv4Addr, Ipv4Addr, Vec<u8>)> {
        let end = Instant::now() + patience;
        let mut out = [Completion::default()];
        while self.cq.poll(&mut out).unwrap() == 0 {
            if Instant::now() > end {
                return None;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut bytes = vec![0; out[0].byte_len as usize];
        self.buffer.read(0, &mut bytes).unwrap();
        let ip = |at: usize| Ipv4Addr::new(bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]);
        Some((ip(32), ip(36), bytes[40..].to_vec()))
    }
}

const GONE: [PortEventType; 2] = [PortEventType::GidChange, PortEventType::ClientReregister];

#[test]
#[ignore = "needs root in a network namespace of its own: unshare --map-root-user --net cargo test ... -- --ignored"]
fn the_port_follows_the_interface_and_its_carrier() {
    let _cable = Cable::new();
    let engine = open("here");
    assert_eq!(engine.port_state(), OperState::Up);
    assert!(engine.device().is_port_active());
    ip("link set there down");
    told(&engine, &[PortEventType::PortErr]);
    assert_eq!(engine.port_state(), OperState::NoCarrier);
    assert!(!engine.device().is_port_active());
    ip("link set there up");
    told(&engine, &[PortEventType::PortActive]);
    ip("link set here down");
    told(&engine, &[PortEventType::PortErr]);
    assert_eq!(engine.port_state(), OperState::Disabled);
    ip("link set here up");
    told(&engine, &[PortEventType::PortActive]);
    assert!(engine.device().is_port_active());
    assert_eq!(engine.device().events().next_event(), None);
}

#[test]
#[ignore = "needs root in a network namespace of its own: unshare --map-root-user --net cargo test ... -- --ignored"]
fn the_gid_table_follows_the_addresses() {
    let _cable = Cable::new();
    let engine = open("here");
    let by_mac = addresses(&engine)[0];
    let (first, second, new) = (Some(FIRST.into()), Some(SECOND.into()), Some(NEW.into()));
    assert_eq!(addresses(&engine), [by_mac, first, second]);
    ip(&format!("address add {NEW}/24 dev here"));
    told(&engine, &GONE);
    assert_eq!(addresses(&engine), [by_mac, first, second, new]);
    assert_eq!(
        engine.gids().iter().map(|entry| entry.assigned).collect::<Vec<_>>(),
        [false, true, true, true]
    );
    ip(&format!("address del {SECOND}/24 dev here"));
    told(&engine, &GONE);
    assert_eq!(addresses(&engine), [by_mac, first, None, new]);
    ip(&format!("address add {SECOND}/24 dev here"));
    told(&engine, &GONE);
    assert_eq!(addresses(&engine), [by_mac, first, second, new]);
    assert!(engine.device().is_port_active());
}

#[test]
#[ignore = "needs root in a network namespace of its own: unshare --map-root-user --net cargo test ... -- --ignored"]
fn a_device_of_one_address_is_told_of_that_one_only() {
    let _cable = Cable::new();
    let engine = open(&FIRST.to_string());
    ip(&format!("address del {SECOND}/24 dev here"));
    ip(&format!("address add {NEW}/24 dev here"));
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(engine.device().events().next_event(), None);
    ip(&format!("address del {FIRST}/24 dev here"));
    told(&engine, &GONE);
    assert_eq!(addresses(&engine), [None, None]);
    ip(&format!("address add {FIRST}/24 dev here"));
    told(&engine, &GONE);
    assert_eq!(addresses(&engine), [Some(FIRST.into()); 2]);
}

const PATIENCE: Duration = Duration::from_secs(20);

#[test]
#[ignore = "needs root in a network namespace of its own: unshare --map-root-user --net cargo test ... -- --ignored"]
fn a_new_address_sends_and_receives_at_once_and_again_when_it_comes_back() {
    let _cable = Cable::new();
    ip("link set lo up");
    let (follower, other) = (open("here"), open(&FIRST.to_string()));
    assert_ne!(follower.process_slot(), other.process_slot());
    let [here, there] = [Talker::new(&follower), Talker::new(&other)];
    let both_ways = || {
        here.listen();
        there.send(0, &here, NEW, b"hello");
        assert_eq!(here.hear(PATIENCE), Some((FIRST, NEW, b"hello".to_vec())));
        there.listen();
        here.send(3, &there, FIRST, b"welcome");
        assert_eq!(there.hear(PATIENCE), Some((NEW, FIRST, b"welcome".to_vec())));
    };
    let add = || ip(&format!("address add {NEW}/24 dev here"));
    // A thread that sleeps since before the address came receives there.
    std::thread::scope(|threads| {
        here.listen();
        let sleeper = threads.spawn(|| {
            let never = EventFd::new().unwrap();
            let end = follower.now().plus_ns(PATIENCE.as_nanos() as u64);
            follower.wait(never.as_fd(), end, &mut || !here.cq.is_empty())
        });
        std::thread::sleep(Duration::from_millis(100));
        add();
        told(&follower, &GONE);
        there.send(0, &here, NEW, b"good morning");
        assert_eq!(sleeper.join().unwrap(), Ok(true));
        assert_eq!(here.hear(PATIENCE), Some((FIRST, NEW, b"good morning".to_vec())));
    });
    both_ways();
    ip(&format!("address del {NEW}/24 dev here"));
    told(&follower, &GONE);
    // Nobody is there now, and everything else goes on.
    here.listen();
    there.send(0, &here, NEW, b"gone");
    assert_eq!(here.hear(Duration::from_millis(200)), None);
    there.send(0, &here, SECOND, b"still here");
    assert_eq!(here.hear(PATIENCE), Some((FIRST, SECOND, b"still here".to_vec())));
    ip(&format!("address add {NEW}/24 dev here"));
    told(&follower, &GONE);
    both_ways();
}

#[test]
#[ignore = "needs root in a network namespace of its own: unshare --map-root-user --net cargo test ... -- --ignored"]
fn groups_are_joined_from_an_address_that_came_later() {
    let _cable = Cable::new();
    let engine = open("here");
    let talker = Talker::new(&engine);
    let attach = |group: IpAddr| engine.device().attach_mcast(talker.qp, Gid::from_ip(group));
    let of_ipv6: IpAddr = "ff15::4d43".parse().unwrap();
    assert_eq!(attach(of_ipv6).unwrap_err().errno(), libc::EINVAL, "it has no address of IPv6");
    ip("address add fd99::1/64 dev here nodad");
    told(&engine, &GONE);
    attach(of_ipv6).unwrap();
    engine.device().detach_mcast(talker.qp, Gid::from_ip(of_ipv6)).unwrap();
    // The addresses that it began with go, so that only the new one is left to join from.
    for (change, address) in [("del", SECOND), ("del", FIRST), ("add", NEW)] {
        ip(&format!("address {change} {address}/24 dev here"));
        told(&engine, &GONE);
    }
    let group = Ipv4Addr::new(239, 99, 0, 1);
    attach(group.into()).unwrap();
    let own = addresses(&engine).iter().position(|address| *address == Some(NEW.into())).unwrap();
    talker.listen();
    talker.send_to(own as u8, Qpn::MULTICAST, group, b"to all");
    assert_eq!(talker.hear(PATIENCE), Some((NEW, group, b"to all".to_vec())));
}

#[test]
#[ignore = "needs root in a network namespace of its own: unshare --map-root-user --net cargo test ... -- --ignored"]
fn a_new_address_that_another_process_has_with_the_same_slot_is_listed_and_not_assigned() {
    let _cable = Cable::new();
    ip(&format!("address add {NEW}/24 dev lo"));
    ip("link set lo up");
    // Both have slot 0, each on addresses of its own.
    let (follower, other) = (open("here"), open(&NEW.to_string()));
    assert_eq!((follower.process_slot(), other.process_slot()), (0, 0));
    ip(&format!("address add {NEW}/24 dev here"));
    told(&follower, &GONE);
    assert_eq!(addresses(&follower)[3], Some(NEW.into()));
    assert!(!follower.gids()[3].assigned);
    ip(&format!("address del {NEW}/24 dev lo"));
}

/// A device in a namespace made for it, with a loopback interface only.
fn open_elsewhere(devices: usize) -> Vec<Engine> {
    let opened = std::thread::spawn(move || {
        // SAFETY: only this thread goes to another network, with what it makes there; no descriptors change.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.expect("root may make namespaces");
        ip("link set lo up");
        (0..devices).map(|_| open("127.0.0.1")).collect()
    });
    opened.join().unwrap()
}

#[test]
#[ignore = "needs root in a network namespace of its own: unshare --map-root-user --net cargo test ... -- --ignored"]
fn hosts_made_of_namespaces_do_not_meet_within_their_process() {
    let (here, there) = (open_elsewhere(2), open_elsewhere(2));
    fn talkers(engines: &[Engine]) -> Vec<Talker<'_>> {
        engines.iter().map(Talker::new).collect()
    }
    let (here, there) = (talkers(&here), talkers(&there));
    let address = Ipv4Addr::LOCALHOST;
    for listener in here.iter().chain(&there) {
        listener.listen();
    }
    here[0].send(0, &there[0], address, b"stray");
    here[0].send(0, &there[1], address, b"stray");
    here[0].send(0, &here[1], address, b"neighbour");
    let heard = here[1].hear(Duration::from_secs(30)).expect("the one next to it");
    assert_eq!(heard, (address, address, b"neighbour".to_vec()));
    for host in &there {
        assert!(host.hear(Duration::from_millis(300)).is_none(), "another host");
    }
    let directly = |talker: &Talker<'_>| -> u64 {
        talker.engine.ports().map(|port| port.counters().sent_directly).sum()
    };
    assert_eq!(directly(&here[0]), 1, "to the neighbour");
}

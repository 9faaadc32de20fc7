//! What a device tells when its interface goes down and up and its addresses go and come.
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
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use urxe_stack::cq::{AsyncEvent, PortEventType};
use urxe_stack::driver::{Engine, EngineConfig};
use urxe_stack::link::{LinkSpec, OperState};

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
        [false, true, true, false]
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

//! A veth pair for one test at a time, the events of a device on it, and its GID table.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

use urxe_stack::cq::{AsyncEvent, PortEventType};
use urxe_stack::driver::{Engine, EngineConfig};
use urxe_stack::link::LinkSpec;
use urxe_test_support::namespace::{ip, own_namespace};

pub const FIRST: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
pub const SECOND: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 2);
pub const NEW: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 3);
pub const FIRST_V6: Ipv6Addr = Ipv6Addr::new(0xfd99, 0, 0, 0, 0, 0, 0, 1);
pub const SECOND_V6: Ipv6Addr = Ipv6Addr::new(0xfd99, 0, 0, 0, 0, 0, 0, 2);
pub const NEW_V6: Ipv6Addr = Ipv6Addr::new(0xfd99, 0, 0, 0, 0, 0, 0, 3);

/// Adds an address to this end of the pair. An IPv6 address is usable at once, without duplicate
/// address detection.
pub fn add(address: impl Into<IpAddr>) {
    match address.into() {
        IpAddr::V4(address) => ip(&format!("address add {address}/24 dev here")),
        IpAddr::V6(address) => ip(&format!("address add {address}/64 dev here nodad")),
    }
}

/// Removes an address.
pub fn del(address: impl Into<IpAddr>) {
    match address.into() {
        IpAddr::V4(address) => ip(&format!("address del {address}/24 dev here")),
        IpAddr::V6(address) => ip(&format!("address del {address}/64 dev here")),
    }
}

/// A veth pair with the addresses [`FIRST`] and [`SECOND`] at this end, for one test at a time.
pub struct Veth {
    _alone: MutexGuard<'static, ()>,
}

impl Veth {
    pub fn new() -> Self {
        let alone = own_namespace();
        ip("link add here type veth peer name there");
        // No link-local address: the kernel would add it seconds after the interface.
        ip("link set here addrgenmode none");
        add(FIRST);
        add(SECOND);
        ip("link set there up");
        ip("link set here up");
        Self { _alone: alone }
    }

    /// A veth pair that also has [`FIRST_V6`] and [`SECOND_V6`].
    pub fn of_both_families() -> Self {
        let pair = Self::new();
        // The system lists the latest address first.
        add(SECOND_V6);
        add(FIRST_V6);
        pair
    }
}

impl Drop for Veth {
    fn drop(&mut self) {
        ip("link del here");
    }
}

pub fn open(source: &str) -> Engine {
    open_with(source, EngineConfig::default())
}

pub fn open_with(source: &str, config: EngineConfig) -> Engine {
    let spec: LinkSpec = format!("rxe0={source}").parse().unwrap();
    let engine = Engine::open(&spec, config).unwrap();
    // Time for the events of setting up the pair, which are then discarded.
    std::thread::sleep(Duration::from_millis(200));
    while engine.device().events().next_event().is_some() {}
    engine
}

/// Checks the next events.
pub fn expect_events(engine: &Engine, expected: &[PortEventType]) {
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

pub fn addresses(engine: &Engine) -> Vec<Option<IpAddr>> {
    let table = engine.device().gids();
    assert_eq!(table, engine.gids().iter().map(|entry| entry.gid).collect::<Vec<_>>());
    table.iter().map(|gid| (!gid.is_zero()).then(|| gid.to_ip())).collect()
}

/// The events of a changed GID table.
pub const GID_CHANGE: [PortEventType; 2] =
    [PortEventType::GidChange, PortEventType::ClientReregister];

/// Returns the index of an address in the GID table.
pub fn index_of(engine: &Engine, address: impl Into<IpAddr>) -> u8 {
    let wanted = Some(address.into());
    addresses(engine).iter().position(|address| *address == wanted).unwrap() as u8
}

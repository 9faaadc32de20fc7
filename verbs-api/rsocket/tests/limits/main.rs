//! Peers that send forged messages, and peers that connect without end.

mod backlog;
mod datagrams;

use std::net::Ipv4Addr;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use rustix::io::Errno;
use urxe_rsocket::{Device, Process};
use urxe_stack::device::Limits;
use urxe_stack::driver::{AfterProgress, Connections, Engine, EngineConfig};
use urxe_stack::link::{LinkSpec, Source};

/// The time limit of a step: far more than needed.
const LIMIT: Duration = Duration::from_secs(20);
/// A time in which a message over loopback arrives with certainty.
const SOON: Duration = Duration::from_millis(300);

/// One test counts the descriptors of the process. `cargo test` runs the tests of a binary in
/// threads, so that test holds the lock for writing, and the others for reading.
static DESCRIPTORS: RwLock<()> = RwLock::new(());

/// Returns the guard of a test that opens descriptors.
fn opens_descriptors() -> RwLockReadGuard<'static, ()> {
    DESCRIPTORS.read().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the guard of a test that counts descriptors.
fn counts_descriptors() -> RwLockWriteGuard<'static, ()> {
    DESCRIPTORS.write().unwrap_or_else(PoisonError::into_inner)
}

/// A process with one device, which is never closed.
#[derive(Debug)]
struct Host {
    connections: &'static Arc<Connections>,
    device: Device,
}

impl Process for Host {
    fn connections(&self) -> &'static Arc<Connections> {
        self.connections
    }

    fn devices(&self) -> Result<Vec<Device>, Errno> {
        Ok(vec![self.device])
    }
}

/// No program takes asynchronous events.
struct NoEvents;

impl AfterProgress for NoEvents {
    fn is_due(&self) -> bool {
        false
    }

    fn act(&self) {}
}

/// Opens a device with these limits on an address that only this test uses.
fn host(of_test: u8, limits: Limits) -> (&'static Host, Ipv4Addr) {
    let [.., high, low] = std::process::id().to_be_bytes();
    let ip = Ipv4Addr::new(127, 140 + of_test, high, low.max(1));
    let connections = Arc::new(Connections::new(u64::from(std::process::id())));
    let connections: &'static Arc<Connections> = Box::leak(Box::new(connections));
    let config =
        EngineConfig { limits, connections: Some(Arc::clone(connections)), ..Default::default() };
    let spec = LinkSpec { source: Source::Address(ip.into()), ..LinkSpec::built_in() };
    let engine: &'static Engine = Box::leak(Box::new(Engine::open(&spec, config).unwrap()));
    let device = Device {
        key: engine.connection_key().unwrap(),
        engine,
        pd: engine.device().alloc_pd().unwrap(),
        events: &NoEvents,
    };
    (Box::leak(Box::new(Host { connections, device })), ip)
}

//! The connection service of one device or of several, and its identifiers.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, Weak};

use urxe_stack::cma::{ChannelId, Cma, CmaError, CmaEvent, CmaId, DeviceKey, System};
use urxe_stack::cq::Wake;
use urxe_stack::driver::{Connections, EngineConfig, Host};
use urxe_stack::qp::attr::QpType;
use urxe_stack::sys::fork::ProcessId;
use urxe_stack::time::Time;
use urxe_wire::mad::PortSpace;

use super::error::ConnectError;
use crate::device::{Device, Inner};
use crate::waker_list::{ReadyWakers, lock};

/// The RDMA IP CM service of one or more devices.
pub(crate) struct Service {
    connections: Arc<Connections>,
    /// The wakers of all devices. One thread may receive a message for a waiter at another device.
    ready: Arc<ReadyWakers>,
    devices: Mutex<Vec<(DeviceKey, Weak<Inner>)>>,
    /// The routes of this machine, or those of a simulated host.
    system: Box<dyn System + Send + Sync>,
    process: ProcessId,
}

/// A service and its devices.
pub(super) type ServiceDevices = (Arc<Service>, Vec<Device>);

impl Service {
    pub(crate) fn new() -> Arc<Self> {
        // The keys of the hasher are random numbers of the operating system.
        let seed = RandomState::new().build_hasher().finish();
        Self::with(Arc::new(Connections::new(seed)), Arc::default(), Box::new(Host))
    }

    /// Returns the service of a host with other connections and routes than those of this machine.
    pub(crate) fn with(
        connections: Arc<Connections>,
        ready: Arc<ReadyWakers>,
        system: Box<dyn System + Send + Sync>,
    ) -> Arc<Self> {
        let (devices, process) = (Mutex::default(), ProcessId::this());
        Arc::new(Self { connections, ready, devices, system, process })
    }

    /// Adds a device that was opened for this service.
    pub(crate) fn register_device(&self, device: &Device) {
        if let Some(key) = device.inner.backend.connection_key() {
            lock(&self.devices).push((key, Arc::downgrade(&device.inner)));
        }
    }

    /// Makes the engine that is opened with `config` part of the service.
    pub(crate) fn configure(&self, config: &mut EngineConfig) {
        config.connections = Some(Arc::clone(&self.connections));
    }

    pub(crate) fn ready(&self) -> &Arc<ReadyWakers> {
        &self.ready
    }

    pub(super) fn system(&self) -> &dyn System {
        &*self.system
    }

    /// Calls the core. The caller runs the ready wakers afterwards by
    /// [`Service::run_ready_wakers`].
    pub fn call<T>(&self, call: impl FnOnce(&mut Cma, Time) -> T) -> T {
        self.connections.call(call)
    }

    /// Runs the wakers that the last call made ready.
    pub fn run_ready_wakers(&self) {
        self.ready.run();
    }

    fn device(&self, key: DeviceKey) -> Option<Device> {
        let known = lock(&self.devices);
        let (_, inner) = known.iter().find(|(of, _)| *of == key)?;
        Some(Device { inner: inner.upgrade()? })
    }

    /// Returns whether this process is a forked child and has none of the service's threads.
    pub fn is_inherited(&self) -> bool {
        self.process.is_other()
    }
}

/// An identifier with a channel of its own. Dropping it destroys both and notifies the peer if the
/// protocol requires this.
pub(super) struct CmId {
    pub service: Arc<Service>,
    pub core: CmaId,
    channel: ChannelId,
}

impl CmId {
    pub fn new(
        service: &Arc<Service>,
        space: PortSpace,
        qp_type: QpType,
        wake: Arc<dyn Wake>,
    ) -> Result<Self, CmaError> {
        let (core, channel) = service.call(|cma, _| {
            let channel = cma.create_channel(wake);
            cma.create_id(channel, space, qp_type, 0).map(|core| (core, channel))
        })?;
        Ok(Self { service: Arc::clone(service), core, channel })
    }

    /// Takes ownership of the identifier of a request.
    pub fn adopt(service: &Arc<Service>, cma: &mut Cma, core: CmaId, wake: Arc<dyn Wake>) -> Self {
        let channel = cma.create_channel(wake);
        // Both exist, because the event of the request was just taken.
        let moved = cma.migrate(core, channel);
        debug_assert_eq!(moved, Ok(()));
        Self { service: Arc::clone(service), core, channel }
    }

    pub fn channel(&self) -> ChannelId {
        self.channel
    }

    pub fn next_event(&self) -> Option<CmaEvent> {
        self.service.call(|cma, _| cma.next_event(self.channel, |_, _| 0))
    }

    /// Calls the core with this identifier.
    pub fn call<T>(
        &self,
        call: impl FnOnce(&mut Cma, Time, CmaId) -> Result<T, CmaError>,
    ) -> Result<T, ConnectError> {
        self.service.call(|cma, now| call(cma, now, self.core)).map_err(ConnectError::Cm)
    }

    /// Returns the device of the identifier, if the device is still open.
    pub fn device(&self) -> Option<Device> {
        self.service
            .call(|cma, _| cma.device_of(self.core))
            .and_then(|key| self.service.device(key))
    }

    /// Returns the local address and the address of the peer.
    pub fn addresses(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        self.service.call(|cma, _| cma.addresses(self.core)).unwrap_or_default()
    }
}

impl Drop for CmId {
    fn drop(&mut self) {
        if self.service.is_inherited() {
            return;
        }
        self.service.call(|cma, now| {
            let gone = cma.destroy_id(now, self.core);
            debug_assert_eq!(gone, Ok(()), "only its handle destroys an identifier");
            cma.destroy_channel(now, self.channel);
        });
        // In a simulated network no other thread calls the wakers later.
        self.service.run_ready_wakers();
    }
}

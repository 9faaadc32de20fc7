//! What the connections of one device, or of the configured devices together, have in common; and
//! identifiers of it.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, Weak};

use urxe_stack::cma::{ChannelId, Cma, CmaError, CmaEvent, CmaId, DeviceKey};
use urxe_stack::cq::Wake;
use urxe_stack::driver::Connections;
use urxe_stack::qp::attr::QpType;
use urxe_stack::sys::fork::{PerProcess, ProcessId};
use urxe_stack::time::Time;
use urxe_wire::mad::PortSpace;

use super::error::{ConnectError, NoServiceError};
use crate::device::{Device, Inner, OpenError, devices};
use crate::waker_list::{ReadyWakers, lock};

/// The RDMA IP CM service over one device or several.
pub(crate) struct Service {
    connections: Arc<Connections>,
    /// Wakers of all its devices: what one thread receives may be for who waits at another device.
    ready: Arc<ReadyWakers>,
    devices: Mutex<Vec<(DeviceKey, Weak<Inner>)>>,
    process: ProcessId,
}

/// A service, and the devices that it is over.
pub(super) type ServiceDevices = (Arc<Service>, Vec<Device>);

/// The configured devices, once a connection needed them.
static CONFIGURED: PerProcess<Mutex<Option<ServiceDevices>>> = PerProcess::new(Mutex::default);

impl Service {
    pub(crate) fn new() -> Arc<Self> {
        // The hasher's keys are the operating system's random numbers.
        let seed = RandomState::new().build_hasher().finish();
        Arc::new(Self {
            connections: Arc::new(Connections::new(seed)),
            ready: Arc::default(),
            devices: Mutex::default(),
            process: ProcessId::this(),
        })
    }

    /// A device that was opened for it.
    pub(crate) fn register_device(&self, key: DeviceKey, device: &Device) {
        lock(&self.devices).push((key, Arc::downgrade(&device.inner)));
    }

    pub(crate) fn connections(&self) -> &Arc<Connections> {
        &self.connections
    }

    pub(crate) fn ready(&self) -> &Arc<ReadyWakers> {
        &self.ready
    }

    /// Calls the core. Whom that woke is called by [`Service::run_ready_wakers`].
    pub fn call<T>(&self, call: impl FnOnce(&mut Cma, Time) -> T) -> T {
        self.connections.call(call)
    }

    /// Calls whom the last call woke.
    pub fn run_ready_wakers(&self) {
        self.ready.run();
    }

    fn device(&self, key: DeviceKey) -> Option<Device> {
        let known = lock(&self.devices);
        let (_, inner) = known.iter().find(|(of, _)| *of == key)?;
        Some(Device { inner: inner.upgrade()? })
    }

    /// Whether this process is a fork of the one that made it, and has none of its threads.
    pub fn is_inherited(&self) -> bool {
        self.process.is_other()
    }
}

/// The service of `device`, or else of the configured devices, with the devices that it is over.
pub(super) fn of_device(device: Option<&Device>) -> Result<ServiceDevices, NoServiceError> {
    match device {
        Some(device) => {
            let service = device.inner.service.clone().ok_or(NoServiceError::Simulated)?;
            Ok((service, vec![device.clone()]))
        }
        None => configured(),
    }
}

/// Opens the configured devices, unless that was done; those that cannot be opened are left out as
/// long as one can.
fn configured() -> Result<ServiceDevices, NoServiceError> {
    let mut slot = lock(CONFIGURED.get());
    if let Some((service, devices)) = &*slot {
        return Ok((Arc::clone(service), devices.clone()));
    }
    let service = Service::new();
    let (mut open, mut failed) = (Vec::new(), None);
    for listed in devices().map_err(OpenError::from)? {
        match Device::builder().open_within(listed.spec(), Arc::clone(&service)) {
            Ok(device) => open.push(device),
            Err(error) => {
                tracing::warn!(device = %listed, %error, "connections do without a device");
                failed = Some(error);
            }
        }
    }
    match failed {
        Some(error) if open.is_empty() => return Err(error.into()),
        None if open.is_empty() => return Err(NoServiceError::NothingConfigured),
        _ => {}
    }
    *slot = Some((Arc::clone(&service), open.clone()));
    Ok((service, open))
}

/// An identifier with a channel of its own. Dropping it destroys both, and tells the peer what it
/// needs to know.
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

    /// Takes over the identifier that a request made.
    pub fn adopt(service: &Arc<Service>, cma: &mut Cma, core: CmaId, wake: Arc<dyn Wake>) -> Self {
        let channel = cma.create_channel(wake);
        // Both are there: the request's event has just been taken.
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

    /// Calls the core about this identifier.
    pub fn call<T>(
        &self,
        call: impl FnOnce(&mut Cma, Time, CmaId) -> Result<T, CmaError>,
    ) -> Result<T, ConnectError> {
        self.service.call(|cma, now| call(cma, now, self.core)).map_err(ConnectError::Cm)
    }

    /// The device it is bound to, if that is still open.
    pub fn device(&self) -> Option<Device> {
        self.service
            .call(|cma, _| cma.device_of(self.core))
            .and_then(|key| self.service.device(key))
    }

    /// Its own address and the peer's.
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
            cma.destroy_channel(self.channel);
        });
    }
}

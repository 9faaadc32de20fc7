//! The devices of connections and listeners that select none.
//!
//! ```text
//!   DefaultDevices::open ──> DEFAULT <── the first connection or listener: the configured devices
//!                               │
//!   connect, bind without a device
//! ```

use std::sync::{Arc, Mutex};

use urxe_stack::link::LinkSpec;
use urxe_stack::sys::fork::PerProcess;

use super::error::NoServiceError;
use super::service::{Service, ServiceDevices};
use crate::device::{Device, DeviceBuilder, OpenError, devices};
use crate::waker_list::lock;

/// The open devices of this process.
static DEFAULT: PerProcess<Mutex<Option<ServiceDevices>>> = PerProcess::new(Mutex::default);

/// Devices for connections and listeners that select none, in place of the configured devices.
///
/// [`connect`](super::connect), [`prepare`](super::prepare), [`resolve`](super::resolve) and
/// [`Listener::bind`](super::Listener::bind) use these devices until the value is dropped. Later
/// calls use the configured devices again. Existing connections and listeners keep their devices
/// open.
///
/// ```
/// use urxe::Device;
/// use urxe::cm::{self, DefaultDevices, Listener};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let links = ["rxe0=127.49.11.19".parse()?, "rxe1=127.49.11.20".parse()?];
/// let open = DefaultDevices::open(&links, &Device::builder().ecn(false))?;
/// assert_eq!(open.devices().len(), 2);
/// // The listener has a port on both devices.
/// let listener = Listener::bind("0.0.0.0:0")?;
/// let to = ("127.49.11.20", listener.local_addr().port());
/// let client = std::thread::spawn(move || cm::connect(to));
/// let accepted = listener.wait(None)?.accept()?;
/// assert_eq!(accepted.device().name(), "rxe1");
/// # client.join().unwrap()?;
/// # Ok(())
/// # }
/// ```
#[must_use = "the devices are used while the value lives"]
pub struct DefaultDevices {
    open: ServiceDevices,
}

impl DefaultDevices {
    /// Opens the devices of `links` with the options of `builder`. A capture of the builder has the
    /// packets of all of them. A device that cannot be opened is omitted with a warning, unless
    /// none can be opened.
    ///
    /// # Errors
    /// Fails with [`NoServiceError`].
    pub fn open(links: &[LinkSpec], builder: &DeviceBuilder) -> Result<Self, NoServiceError> {
        let open = open_all(links.iter(), builder.clone())?;
        *lock(DEFAULT.get()) = Some(open.clone());
        Ok(Self { open })
    }

    /// Returns the open devices.
    #[must_use]
    pub fn devices(&self) -> &[Device] {
        &self.open.1
    }
}

impl Drop for DefaultDevices {
    fn drop(&mut self) {
        let mut default = lock(DEFAULT.get());
        let is_own = |(service, _): &mut ServiceDevices| Arc::ptr_eq(service, &self.open.0);
        // A later value may have replaced the devices.
        let _closed = default.take_if(is_own);
    }
}

impl std::fmt::Debug for DefaultDevices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DefaultDevices").field("devices", &self.open.1).finish()
    }
}

/// Returns the service of `device`, or that of the default devices, with its devices.
pub(super) fn of_device(device: Option<&Device>) -> Result<ServiceDevices, NoServiceError> {
    match device {
        Some(device) => Ok((Arc::clone(&device.inner.service), vec![device.clone()])),
        None => default_devices(),
    }
}

/// Returns the default devices. Opens the configured devices at the first call.
fn default_devices() -> Result<ServiceDevices, NoServiceError> {
    let mut default = lock(DEFAULT.get());
    if let Some(open) = &*default {
        return Ok(open.clone());
    }
    let configured = devices().map_err(OpenError::from)?;
    let open = open_all(configured.iter().map(|listed| listed.spec()), Device::builder())?;
    *default = Some(open.clone());
    Ok(open)
}

/// Returns a hint with the default devices, for an address that none of them has.
pub(super) fn hint() -> String {
    let open = lock(DEFAULT.get()).clone();
    let listed = match open {
        Some((_, open)) => {
            let links = open.iter().filter_map(Device::link);
            Ok(links.map(|link| link.spec.to_string()).collect::<Vec<_>>())
        }
        None => devices().map(|all| all.iter().map(ToString::to_string).collect()),
    };
    let add = "`urxe link add NAME ADDRESS` adds one";
    listed
        .map_or_else(|_| String::new(), |names| format!("; devices: {} ({add})", names.join(", ")))
}

/// Opens devices with a common service. Omits those that cannot be opened, unless none can.
fn open_all<'a>(
    links: impl Iterator<Item = &'a LinkSpec>,
    mut builder: DeviceBuilder,
) -> Result<ServiceDevices, NoServiceError> {
    builder.open_capture().map_err(OpenError::from)?;
    let service = Service::new();
    let (mut open, mut failed) = (Vec::new(), Vec::new());
    for link in links {
        match builder.clone().open_within(link, Arc::clone(&service)) {
            Ok(device) => open.push(device),
            Err(error) => failed.push((link, error)),
        }
    }
    if open.is_empty() {
        let last = failed.pop();
        return Err(last.map_or(NoServiceError::NothingConfigured, |(_, error)| error.into()));
    }
    for (link, error) in failed {
        tracing::warn!(device = %link, %error, "a device is not available for connections");
    }
    Ok((service, open))
}

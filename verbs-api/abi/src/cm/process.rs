//! The connections of the process, and the devices to which identifiers are bound.
//!
//! As in the original, the library opens each device once for itself, when an identifier first
//! needs devices, and keeps the device open. A program's `ibv_open_device` makes another context of
//! the same device.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::IpAddr;
use std::ptr;
use std::sync::{Arc, Mutex};

use urxe_stack::cma::DeviceKey;
use urxe_stack::driver::Connections;
use urxe_stack::memory::PdId;
use urxe_stack::port::udp::PathError;
use urxe_stack::sync::lock;
use urxe_stack::sys::fork::PerProcess;
use urxe_stack::time::Time;

use crate::context::{self, Context};
use crate::devices;
use crate::error::VerbError;
use crate::layout::{ibv_context, ibv_pd, ibv_xrcd, ibv_xrcd_init_attr};
use crate::pd::{self, Domain};
use crate::xrc;

static CONNECTIONS: PerProcess<Arc<Connections>> =
    // The keys of the hasher are random numbers of the operating system.
    PerProcess::new(|| Arc::new(Connections::new(RandomState::new().build_hasher().finish())));
static DEVICES: PerProcess<Mutex<Vec<CmDevice>>> = PerProcess::new(Mutex::default);

/// Returns the connections of this process, over all devices that it has open.
pub fn connections() -> &'static Arc<Connections> {
    CONNECTIONS.get()
}

/// Destroys all identifiers at the normal end of the process, as the kernel does when it closes the
/// descriptors. A forked child has none.
pub fn end_connections() {
    if let Some(connections) = CONNECTIONS.get_if_made() {
        connections.end();
    }
}

/// A device for identifiers.
#[derive(Clone, Copy)]
pub struct CmDevice {
    key: DeviceKey,
    pub context: *mut ibv_context,
    shared: &'static Context,
    /// The protection domain of queue pairs for which the program passes none.
    pub pd: *mut ibv_pd,
    domain: PdId,
    /// Maximum numbers of READs and atomics that a queue pair can answer and request at a time.
    pub max_responder_resources: u8,
    pub max_initiator_depth: u8,
    /// The domain of XRC queue pairs for which the program passes none.
    xrcd: *mut ibv_xrcd,
}

// SAFETY: the pointers are of objects that are made once and stay; their own verbs lock.
unsafe impl Send for CmDevice {}

impl CmDevice {
    /// Returns the last error of packets to `peer` since a time.
    pub fn path_error(&self, peer: IpAddr, since: Time) -> Option<PathError> {
        self.shared.engine().path_error(peer, since)
    }

    /// Returns the device for rsockets.
    pub fn for_rsockets(&self) -> urxe_rsocket::Device {
        let Self { key, shared, domain, .. } = *self;
        let (engine, events) = (shared.engine(), &*shared.shared_engine.router);
        urxe_rsocket::Device { key, engine, pd: domain, events }
    }
}

/// Opens all devices that this process does not have open yet. Fails if there is no device.
pub fn open_devices() -> Result<Vec<CmDevice>, VerbError> {
    let mut open = lock(DEVICES.get());
    if !open.is_empty() {
        return Ok(open.clone());
    }
    let mut failed = VerbError::system("no device", rustix::io::Errno::NODEV);
    for device in devices::list()? {
        match open_one(device) {
            Ok(device) => open.push(device),
            Err(error) => {
                tracing::warn!(target: "urxe_abi", "connections do without a device: {error}");
                failed = error;
            }
        }
    }
    if open.is_empty() { Err(failed) } else { Ok(open.clone()) }
}

fn open_one(device: *mut crate::layout::ibv_device) -> Result<CmDevice, VerbError> {
    let context = context::open_listed(device)?;
    // SAFETY: the context was just opened, and is never closed.
    let shared: &'static Context = unsafe { Context::from_c(context) }?;
    let key = shared.engine().connection_key().ok_or(VerbError::Unsupported("connections"))?;
    // SAFETY: as above.
    let pd = unsafe { pd::alloc_pd(context) };
    if pd.is_null() {
        return Err(VerbError::last("a protection domain"));
    }
    // SAFETY: the domain was just made, and is never deallocated.
    let domain = unsafe { Domain::from_c(pd) }?.0.id;
    let limits = shared.device().limits();
    Ok(CmDevice {
        key,
        context,
        shared,
        pd,
        domain,
        max_responder_resources: limits.max_qp_rd_atom,
        max_initiator_depth: limits.max_qp_init_rd_atom,
        xrcd: ptr::null_mut(),
    })
}

/// Returns the device for a key of the core.
pub fn device(key: DeviceKey) -> Option<CmDevice> {
    lock(DEVICES.get()).iter().find(|device| device.key == key).copied()
}

/// Returns the XRC domain of a device, created on first use.
pub fn xrcd(key: DeviceKey) -> Result<*mut ibv_xrcd, VerbError> {
    let mut open = lock(DEVICES.get());
    let device = open
        .iter_mut()
        .find(|device| device.key == key)
        .ok_or(VerbError::Unsupported("this device"))?;
    if device.xrcd.is_null() {
        // A domain without a file, which only this handle uses.
        let mut attr = ibv_xrcd_init_attr { comp_mask: 3, fd: -1, oflags: libc::O_CREAT };
        // SAFETY: the context is open, and stays so.
        device.xrcd = unsafe { xrc::open_xrcd(device.context, &mut attr) };
        if device.xrcd.is_null() {
            return Err(VerbError::last("an XRC domain"));
        }
    }
    Ok(device.xrcd)
}

//! The services that a process provides to its rsockets.

use std::fmt::Debug;
use std::sync::Arc;

use rustix::io::Errno;
use urxe_stack::cma::DeviceKey;
use urxe_stack::driver::{AfterProgress, Connections, Engine};
use urxe_stack::memory::PdId;

use crate::error::Result;

/// A process with its connections and the devices that they use.
pub trait Process: Debug + Sync {
    /// Returns the connections over all devices of the process.
    fn connections(&self) -> &'static Arc<Connections>;

    /// Returns the devices; the first call opens them.
    ///
    /// # Errors
    /// No device can be opened.
    fn devices(&self) -> std::result::Result<Vec<Device>, Errno>;
}

/// A device, which stays open until the process exits.
#[derive(Clone, Copy)]
pub struct Device {
    /// The key of the device among the connections.
    pub key: DeviceKey,
    /// The engine.
    pub engine: &'static Engine,
    /// The protection domain of the queue pairs and regions of rsockets.
    pub pd: PdId,
    /// Delivers asynchronous events of the engine. Any call of the engine may cause events.
    pub events: &'static dyn AfterProgress,
}

impl Device {
    /// Delivers the asynchronous events of a call of the engine.
    pub(crate) fn deliver_events(&self) {
        if self.events.is_due() {
            self.events.act();
        }
    }

    /// Returns the device with the key.
    pub(crate) fn find(process: &dyn Process, key: DeviceKey) -> Result<Self> {
        process.devices()?.into_iter().find(|device| device.key == key).ok_or(Errno::NODEV)
    }
}

impl Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device").field("key", &self.key).field("pd", &self.pd).finish()
    }
}

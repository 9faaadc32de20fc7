//! The place of `cm` in a build without the feature: the service of devices without connections.

use std::sync::Arc;

use urxe_stack::driver::EngineConfig;

use crate::device::Device;
use crate::waker_list::ReadyWakers;

/// The service of one device.
pub(crate) struct Service {
    ready: Arc<ReadyWakers>,
}

impl Service {
    pub(crate) fn new() -> Arc<Self> {
        Self::with(Arc::default())
    }

    pub(crate) fn with(ready: Arc<ReadyWakers>) -> Arc<Self> {
        Arc::new(Self { ready })
    }

    pub(crate) fn ready(&self) -> &Arc<ReadyWakers> {
        &self.ready
    }

    pub(crate) fn configure(&self, _: &mut EngineConfig) {}

    pub(crate) fn register_device(&self, _: &Device) {}
}

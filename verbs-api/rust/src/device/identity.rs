//! Identities of open devices, and their names for errors.

use std::collections::BTreeSet;
use std::sync::Mutex;

use urxe_stack::names::DeviceName;
use urxe_stack::sys::fork::PerProcess;

use crate::waker_list::lock;

/// The names of devices of this process. Only errors read them.
static NAMES: PerProcess<Mutex<Names>> = PerProcess::new(Mutex::default);

#[derive(Default)]
struct Names {
    open: Vec<(DeviceIdentity, DeviceName)>,
    /// All names so far, each once.
    all: BTreeSet<&'static str>,
}

/// Distinguishes the open devices of this process: the address of the device's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceIdentity(usize);

impl DeviceIdentity {
    pub(super) fn of(inner: &super::Inner) -> Self {
        Self(std::ptr::from_ref(inner).addr())
    }

    /// Records the name of a device that is open from now on.
    pub(super) fn record(self, name: &str) {
        let mut names = lock(NAMES.get());
        let name = DeviceName::interned(&mut names.all, name);
        names.open.push((self, name));
    }

    /// Removes the name of a device that is closed.
    pub(super) fn forget(self) {
        lock(NAMES.get()).open.retain(|(device, _)| *device != self);
    }

    /// Returns the name and the address of the device, for errors.
    pub(crate) fn name(self) -> DeviceName {
        let names = lock(NAMES.get());
        let known = names.open.iter().find(|(device, _)| *device == self);
        known.map_or_else(|| DeviceName::new("(closed)"), |(_, name)| *name)
    }
}

/// The devices of the objects that a work request names.
///
/// Keys and handles are numbers of one device. On another device the same number may denote another
/// object, for example memory with another owner. A request for such a device is therefore refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NamedDevices {
    None,
    One(DeviceIdentity),
    /// Two of several devices.
    Several(DeviceIdentity, DeviceIdentity),
}

impl NamedDevices {
    /// Adds the device of one more object.
    pub(crate) fn and(self, device: DeviceIdentity) -> Self {
        match self {
            Self::None => Self::One(device),
            Self::One(other) if other != device => Self::Several(other, device),
            Self::One(_) | Self::Several(..) => self,
        }
    }

    /// Returns a device other than `device`, if an object belongs to one.
    pub(crate) fn other_than(self, device: DeviceIdentity) -> Option<DeviceIdentity> {
        match self {
            Self::None => None,
            Self::One(named) => (named != device).then_some(named),
            Self::Several(first, second) => Some(if first == device { second } else { first }),
        }
    }
}

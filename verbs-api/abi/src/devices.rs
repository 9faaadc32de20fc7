//! The list of devices: the configured links that this machine has.
//!
//! A device structure stays valid for the life of the process, because programs open a device after
//! they freed the list. Listing again returns the same structures.

use std::ffi::{c_char, c_int, c_void};
use std::mem::zeroed;
use std::ptr;
use std::sync::Mutex;

use urxe_stack::link::{LinkSpec, ResolvedLink, configured, resolve};
use urxe_stack::sync::lock;
use urxe_stack::sys::fork::PerProcess;

use crate::environment;
use crate::error::VerbError;
use crate::ffi::{catch_panic, return_ptr, set_errno};
use crate::layout::{ibv_device, verbs_device};
use crate::load_check;
use crate::usage;

/// `IBV_NODE_CA`
const NODE_CA: c_int = 1;
/// `IBV_TRANSPORT_IB`; RoCE uses this transport type, too.
const TRANSPORT_IB: c_int = 0;

/// An `ibv_device` with the strings and the table that its fields point to.
#[repr(C)]
pub struct DeviceObject {
    shared: verbs_device,
    index: c_int,
    pub spec: LinkSpec,
    /// The node GUID when the device was first listed; opening the device reads the GUID again.
    guid: [u8; 8],
}

/// A device structure that is never freed.
struct Known(*mut DeviceObject);

// SAFETY: the structure is never freed and never changes.
unsafe impl Send for Known {}

/// The listed devices. A forked child starts a new list, because another thread of the parent may
/// have held the lock. Structures that the parent got stay valid.
static KNOWN: PerProcess<Mutex<Vec<Known>>> = PerProcess::new(Mutex::default);

/// An empty operations table. No provider's table has this address, and providers compare
/// addresses.
static NO_OPERATIONS: usize = 0;

impl DeviceObject {
    fn new(link: &ResolvedLink, index: usize) -> Self {
        // SAFETY: the structure consists of integers and pointers, for which zero is valid.
        let mut shared: verbs_device = unsafe { zeroed() };
        let device = &mut shared.device;
        device.node_type = NODE_CA;
        device.transport_type = TRANSPORT_IB;
        let name = link.spec.name.as_str();
        copy_text(&mut device.name, name);
        copy_text(&mut device.dev_name, &format!("uverbs{index}"));
        copy_text(&mut device.dev_path, &format!("/sys/class/infiniband_verbs/uverbs{index}"));
        copy_text(&mut device.ibdev_path, &format!("/sys/class/infiniband/{name}"));
        shared.ops = (&raw const NO_OPERATIONS).cast();
        shared.refcount = 1;
        let index = c_int::try_from(index).unwrap_or(c_int::MAX);
        Self { shared, index, spec: link.spec.clone(), guid: link.node_guid.to_bytes() }
    }

    /// Returns the device behind a C pointer.
    ///
    /// # Safety
    /// The ABI's contract: `device` is NULL or came from `ibv_get_device_list`.
    pub unsafe fn from_c<'a>(device: *mut ibv_device) -> Result<&'a Self, VerbError> {
        // SAFETY: devices of the list are the first field of a DeviceObject that is never freed nor
        // changed.
        unsafe { device.cast::<Self>().as_ref() }.ok_or(VerbError::Null("device"))
    }
}

/// Returns the listed device of a link specification.
pub fn known(spec: &LinkSpec) -> Option<*mut ibv_device> {
    // SAFETY: listed structures are never freed and never change.
    let is_it = |known: &&Known| unsafe { &(*known.0).spec } == spec;
    lock(KNOWN.get()).iter().find(is_it).map(|known| known.0.cast())
}

/// Copies `text` and a terminating zero, truncated to the size of `to`.
pub fn copy_text<const N: usize>(to: &mut [c_char; N], text: &str) {
    for (place, byte) in to[..N - 1].iter_mut().zip(text.bytes()) {
        *place = c_char::from_ne_bytes([byte]);
    }
}

/// Returns the configured devices that this machine has. Missing devices are reported on standard
/// error. Fails if the process has loaded another libibverbs meanwhile.
pub fn list() -> Result<Vec<*mut ibv_device>, VerbError> {
    usage::LOADED.note();
    load_check::check()?;
    let mut known = lock(KNOWN.get());
    let mut devices = Vec::new();
    for spec in configured()?.links {
        match resolve(&spec) {
            Ok(link) => devices.push(find_or_make(&mut known, &link)),
            Err(error) => tracing::error!(target: "urxe_abi", "device {spec} is left out: {error}"),
        }
    }
    Ok(devices)
}

fn find_or_make(known: &mut Vec<Known>, link: &ResolvedLink) -> *mut ibv_device {
    let same = |known: &&Known| {
        // SAFETY: see `Known`.
        let device = unsafe { &*known.0 };
        device.spec == link.spec && device.guid == link.node_guid.to_bytes()
    };
    let found = known.iter().find(same).map(|known| known.0);
    let device = found.unwrap_or_else(|| {
        let device = Box::into_raw(Box::new(DeviceObject::new(link, known.len())));
        known.push(Known(device));
        device
    });
    device.cast()
}

/// `ibv_get_device_list`
pub unsafe extern "C" fn get_device_list(num_devices: *mut c_int) -> *mut *mut ibv_device {
    environment::start_logging();
    if !num_devices.is_null() {
        // SAFETY: the ABI's contract: NULL or a place for the number.
        unsafe { num_devices.write(0) };
    }
    return_ptr("ibv_get_device_list", || {
        let mut devices = list().inspect_err(|error| {
            tracing::error!(target: "urxe_abi", "no devices: {error}");
        })?;
        if !num_devices.is_null() {
            // SAFETY: as above.
            unsafe { num_devices.write(c_int::try_from(devices.len()).unwrap_or(c_int::MAX)) };
        }
        devices.push(ptr::null_mut());
        // Programs free the array by `ibv_free_device_list`, which does not know the length.
        let bytes = size_of_val(&devices[..]);
        // SAFETY: allocates; the result is checked.
        let array = unsafe { libc::malloc(bytes) }.cast::<*mut ibv_device>();
        if array.is_null() {
            return Err(VerbError::system("the list of devices", rustix::io::Errno::NOMEM));
        }
        // SAFETY: both are as long as `devices`, aligned for pointers, and do not overlap.
        unsafe { ptr::copy_nonoverlapping(devices.as_ptr(), array, devices.len()) };
        Ok(array)
    })
}

/// `ibv_free_device_list`
pub unsafe extern "C" fn free_device_list(list: *mut *mut ibv_device) {
    // SAFETY: the ABI's contract: NULL, or an array from get_device_list, allocated by malloc.
    unsafe { libc::free(list.cast::<c_void>()) };
}

/// `ibv_get_device_name`
pub unsafe extern "C" fn get_device_name(device: *mut ibv_device) -> *const c_char {
    // SAFETY: the ABI's contract. The name lives as long as the device, which is for ever.
    match unsafe { device.as_ref() } {
        Some(device) => device.name.as_ptr(),
        None => ptr::null(),
    }
}

/// `ibv_get_device_index`: the position of the device among all devices that this process has
/// listed, or -1.
pub unsafe extern "C" fn get_device_index(device: *mut ibv_device) -> c_int {
    // SAFETY: the ABI's contract.
    unsafe { DeviceObject::from_c(device) }.map_or(-1, |device| device.index)
}

/// `ibv_get_device_guid`, in network byte order.
pub unsafe extern "C" fn get_device_guid(device: *mut ibv_device) -> u64 {
    catch_panic(0, || {
        // SAFETY: the ABI's contract.
        match unsafe { DeviceObject::from_c(device) } {
            Ok(device) => u64::from_ne_bytes(device.guid),
            Err(_) => {
                set_errno(libc::EINVAL);
                0
            }
        }
    })
}

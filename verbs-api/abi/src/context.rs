//! Contexts: `ibv_open_device`, `ibv_close_device`.

use std::ffi::{c_int, c_void};
use std::mem::{offset_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use rustix::fs::{MemfdFlags, fstat, memfd_create};
use rustix::io::fcntl_dupfd_cloexec;
use urxe_stack::cq::{AsyncEvents, EventObject};
use urxe_stack::device::Device;
use urxe_stack::driver::Engine;
use urxe_stack::driver::event_descriptor::EventDescriptor;
use urxe_stack::link::LinkSpec;
use urxe_stack::sync::lock;
use urxe_stack::sys::fork::PerProcess;

use crate::context_objects::ContextObjects;
use crate::devices::{self, DeviceObject};
use crate::error::VerbError;
use crate::layout::{ibv_context, ibv_device, set_functions, verbs_context};
use crate::shared_engine::SharedEngine;
use crate::{
    attributes, cq, cq_ex, dm, environment, ffi, handle_registry, mr, mw, pd, port, post, qp, srq,
    xrc,
};

/// `__VERBS_ABI_IS_EXTENDED`: the `ibv_context` is part of a `verbs_context`.
const EXTENDED: *mut c_void = ptr::without_provenance_mut(usize::MAX);

/// Device and inode of a file, which all its descriptors share.
pub type FileIdentity = (u64, u64);

/// The open contexts of this process: the file of the context's descriptor, and the device.
static OPEN: PerProcess<Mutex<Vec<(FileIdentity, LinkSpec)>>> = PerProcess::new(Mutex::default);

/// Returns the identity of the file behind a descriptor.
pub fn identity(descriptor: impl AsFd) -> rustix::io::Result<FileIdentity> {
    fstat(descriptor).map(|stat| (stat.st_dev, stat.st_ino))
}

/// Opens the device of the context that `descriptor` belongs to once more. Objects of both contexts
/// belong to one file, so they can be used together, as in libibverbs.
pub fn open_again(descriptor: BorrowedFd<'_>) -> Result<*mut ibv_context, VerbError> {
    let file = identity(descriptor).map_err(|_| VerbError::NoContext)?;
    let spec =
        lock(OPEN.get()).iter().find(|(open, _)| *open == file).map(|(_, spec)| spec.clone());
    let device = spec.and_then(|spec| devices::known(&spec)).ok_or(VerbError::NoContext)?;
    // SAFETY: devices stay where they are for the life of the process.
    let known = unsafe { DeviceObject::from_c(device) }?;
    let again = fcntl_dupfd_cloexec(descriptor, 0);
    open(device, known, again.map_err(|errno| VerbError::system(CMD_FD, errno))?)
}

/// Opens a device of the device list.
pub fn open_listed(device: *mut ibv_device) -> Result<*mut ibv_context, VerbError> {
    // SAFETY: devices of the list stay where they are for the life of the process.
    let listed = unsafe { DeviceObject::from_c(device) }?;
    open(device, listed, new_file(listed)?)
}

/// The subject of errors about a context's descriptor.
const CMD_FD: &str = "a descriptor for the context";

/// Creates the file of a new context.
fn new_file(listed: &DeviceObject) -> Result<OwnedFd, VerbError> {
    let made = memfd_create(format!("urxe-{}", listed.spec.name), MemfdFlags::CLOEXEC);
    made.map_err(|errno| VerbError::system(CMD_FD, errno))
}

/// A context. The C structure is its first field.
#[repr(C)]
pub struct Context {
    verbs: verbs_context,
    pub shared_engine: Arc<SharedEngine>,
    /// The queue of asynchronous events for the program.
    pub events: Arc<AsyncEvents>,
    pub events_fd: Arc<EventDescriptor>,
    /// A descriptor that only this context has. Programs may duplicate it and import the device by
    /// it; no events arrive there.
    _cmd_fd: OwnedFd,
    file: FileIdentity,
    next_handle: AtomicU32,
    objects: Mutex<ContextObjects>,
}

impl Context {
    /// Returns the context behind a C pointer. Fails for a context that is not in the handle
    /// registry.
    ///
    /// # Safety
    /// The ABI's contract: `context` is NULL or open, and stays open while the result is used.
    pub unsafe fn from_c<'a>(context: *mut ibv_context) -> Result<&'a Self, VerbError> {
        ffi::non_null(context, "context")?;
        handle_registry::check(Self::container_of(context))?;
        // SAFETY: the ABI's contract.
        Ok(unsafe { Self::from_c_unchecked(context) })
    }

    /// Returns the address of the [`Context`] that contains a C structure.
    pub fn container_of(context: *mut ibv_context) -> *mut Self {
        context.wrapping_byte_sub(offset_of!(verbs_context, context)).cast()
    }

    /// Returns the context behind the pointer in an object, which is never NULL, without looking
    /// into the handle registry.
    ///
    /// # Safety
    /// `context` is open, and stays open while the result is used.
    pub unsafe fn from_c_unchecked<'a>(context: *mut ibv_context) -> &'a Self {
        // SAFETY: an open context stands at this place in a Context, whose Rust fields are shared.
        unsafe { &*Self::container_of(context) }
    }

    /// Returns the engine of the device.
    pub fn engine(&self) -> &Engine {
        &self.shared_engine.engine
    }

    /// Returns the device.
    pub fn device(&self) -> &Device {
        self.engine().device()
    }

    /// Delivers pending asynchronous events. Each verb that may raise events calls this at its end.
    pub fn deliver_events(&self) {
        self.shared_engine.deliver_events();
    }

    /// Refuses an object of another context, unless both contexts are [of one
    /// file](Self::is_of_one_file). `what` names the object in the error.
    pub fn check_owner(&self, what: &'static str, other: &Self) -> Result<(), VerbError> {
        if self.is_of_one_file(other) {
            Ok(())
        } else if Arc::ptr_eq(&self.shared_engine, &other.shared_engine) {
            Err(VerbError::OtherContext(what))
        } else {
            Err(VerbError::OtherDevice(what))
        }
    }

    /// Returns whether both contexts are of one file: the same context, or one that was imported
    /// from the other.
    pub fn is_of_one_file(&self, other: &Self) -> bool {
        self.file == other.file
    }

    /// Returns whether this process is a child that inherited the context by `fork`. Destroying
    /// verbs do nothing there, because the device is the parent's, and locks that the parent's
    /// threads held stay locked.
    pub fn is_inherited(&self) -> bool {
        self.shared_engine.engine.is_inherited()
    }

    /// Returns a handle number that no other object of this context has.
    pub fn new_handle(&self) -> u32 {
        self.next_handle.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the objects that were made through this context.
    pub fn objects(&self) -> std::sync::MutexGuard<'_, ContextObjects> {
        lock(&self.objects)
    }

    /// Delivers events about `object` to this context from now on. `structure` is the `element` of
    /// these events.
    pub fn register_events(&self, object: EventObject, structure: *mut c_void) {
        self.objects().elements.insert(object, structure);
        self.shared_engine.router.set_owner(object, &self.events);
    }

    /// Stops delivering events about `object`, which is destroyed: discards those that are queued,
    /// and waits until the program has acknowledged those that it took.
    pub fn unregister_events(&self, object: EventObject) {
        self.shared_engine.router.remove_owner(object);
        self.events.retire(object);
        self.objects().elements.remove(&object);
    }
}

/// Returns the function tables that inline functions of the header call.
fn tables() -> verbs_context {
    // SAFETY: the structure consists of integers, pointers and optional functions, for all of which
    // zero is valid, and of a mutex, whose initial value is zero on Linux.
    let mut verbs: verbs_context = unsafe { zeroed() };
    verbs.sz = size_of::<verbs_context>();
    verbs.query_port = Some(port::query_port_ex);
    set_functions!(
        verbs;
        attributes::{query_device_ex, query_rt_values},
        cq_ex::{create_cq_ex, modify_cq},
        dm::{alloc_dm, free_dm, reg_dm_mr},
        mr::{advise_mr},
        pd::{alloc_td, dealloc_td, alloc_parent_domain},
        qp::{create_qp_ex},
        srq::{create_srq_ex, get_srq_num},
        xrc::{open_xrcd, close_xrcd, open_qp},
    );
    let ops = &mut verbs.context.ops;
    ops._compat_query_device = Some(attributes::query_device);
    ops._compat_query_port = Some(port::query_port);
    set_functions!(
        ops;
        cq::{poll_cq, req_notify_cq},
        mw::{alloc_mw, bind_mw, dealloc_mw},
        post::{post_send, post_recv, post_srq_recv},
    );
    verbs
}

/// `ibv_open_device`
pub unsafe extern "C" fn open_device(device: *mut ibv_device) -> *mut ibv_context {
    environment::start_logging();
    ffi::return_ptr("ibv_open_device", || {
        // SAFETY: the ABI's contract.
        let listed = unsafe { DeviceObject::from_c(device) }?;
        new_file(listed).and_then(|file| open(device, listed, file)).inspect_err(|error| {
            let spec = &listed.spec;
            match error {
                // No filter for other modules hides the line.
                VerbError::Capture(_) => {
                    tracing::error!(target: "urxe_report", "cannot open {spec}: {error}");
                }
                _ => tracing::error!(target: "urxe_abi", "cannot open {spec}: {error}"),
            }
        })
    })
}

fn open(
    device: *mut ibv_device,
    listed: &DeviceObject,
    cmd_fd: OwnedFd,
) -> Result<*mut ibv_context, VerbError> {
    let system = |what| move |errno| VerbError::system(what, errno);
    let events_fd =
        Arc::new(EventDescriptor::new().map_err(system("a descriptor for asynchronous events"))?);
    let shared_engine = SharedEngine::open(&listed.spec)?;
    let file = identity(&cmd_fd).map_err(system(CMD_FD))?;
    lock(OPEN.get()).push((file, listed.spec.clone()));
    let events = Arc::new(AsyncEvents::new(Box::new(Arc::clone(&events_fd))));
    shared_engine.router.add_context(&events);
    let mut verbs = tables();
    let context = &mut verbs.context;
    context.device = device;
    context.cmd_fd = cmd_fd.as_raw_fd();
    context.async_fd = events_fd.as_raw_fd();
    context.num_comp_vectors = completion_vectors();
    context.abi_compat = EXTENDED;
    let context = Box::new(Context {
        verbs,
        shared_engine,
        events,
        events_fd,
        _cmd_fd: cmd_fd,
        file,
        next_handle: AtomicU32::new(1),
        objects: Mutex::default(),
    });
    // SAFETY: the field is inside the box.
    Ok(unsafe { &raw mut (*handle_registry::into_raw(context)).verbs.context })
}

/// Returns one vector a processor, as the kernel's rxe has. All vectors behave alike.
fn completion_vectors() -> c_int {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    c_int::try_from(processors).unwrap_or(c_int::MAX)
}

/// `ibv_close_device`: destroys the objects that are left, as the kernel does.
pub unsafe extern "C" fn close_device(context: *mut ibv_context) -> c_int {
    ffi::return_minus_one("ibv_close_device", || {
        // SAFETY: the ABI's contract: open until now, and not used afterwards.
        let context = unsafe { Context::from_c(context) }?;
        if context.is_inherited() {
            return Ok(());
        }
        std::mem::take(&mut *context.objects()).destroy_all(context.engine());
        context.shared_engine.router.remove_context(&context.events);
        let mut open = lock(OPEN.get());
        if let Some(one) = open.iter().position(|(file, _)| *file == context.file) {
            open.swap_remove(one);
        }
        drop(open);
        let shared_engine = Arc::clone(&context.shared_engine);
        // SAFETY: `open` made the object, and the program does not use it again.
        drop(unsafe { handle_registry::from_raw(ptr::from_ref(context).cast_mut()) });
        shared_engine.close();
        Ok(())
    })
}

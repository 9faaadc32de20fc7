//! Completion queues.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::mem::zeroed;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use urxe_stack::cq::{ArmKind, Completion, Cq, CqError, EventObject, WcFlags};
use urxe_stack::memory::PdId;

use crate::channel::ChannelObject;
use crate::context::Context;
use crate::cq_ex::Polling;
use crate::error::VerbError;
use crate::ffi;
use crate::handle_registry;
use crate::layout::{ibv_comp_channel, ibv_context, ibv_cq, ibv_cq_ex, ibv_wc};

/// Completions that one call of the engine polls at most.
const BATCH: usize = 16;

/// A completion queue. The C structure is its first field: always the extended one, which begins
/// with the plain one.
#[repr(C)]
pub struct CqObject {
    c: UnsafeCell<ibv_cq_ex>,
    pub cq: Arc<Cq>,
    /// The batch that the functions of the extended structure read.
    pub polling: UnsafeCell<Polling>,
    /// Completions that were in the queue when the program last requested an event, and that no
    /// batch of the extended structure has consumed since.
    pub pending_at_arm: AtomicU32,
    /// Whether the program promised to poll from one thread only, so that polls need no lock.
    pub single_threaded: bool,
    /// The parent domain that the queue was created with.
    parent: Option<PdId>,
}

handle_registry::object!(pub CqObject, ibv_cq, "cq");

/// The smallest queue, which may be larger than requested, as the header allows. Hardware rounds up
/// and programs rely on that: perftest's latency tests request one entry and leave a completion in
/// the queue while they wait for an event.
const MIN_ENTRIES: u32 = 16;

/// Returns the size of a queue for a requested size; the stack refuses 0.
const fn size(entries: u32) -> u32 {
    if entries == 0 || entries > MIN_ENTRIES { entries } else { MIN_ENTRIES }
}

/// The parameters that `ibv_create_cq` and `ibv_create_cq_ex` share.
pub struct CqParams {
    pub entries: u32,
    pub cq_context: *mut c_void,
    pub channel: *mut ibv_comp_channel,
    pub vector: u32,
    pub single_threaded: bool,
    pub parent: Option<PdId>,
}

/// Creates a queue. `fill` sets the functions of the extended structure.
///
/// # Safety
/// The ABI's contract.
pub unsafe fn create(
    context: *mut ibv_context,
    params: &CqParams,
    fill: impl FnOnce(&mut ibv_cq_ex) -> Polling,
) -> Result<*mut CqObject, VerbError> {
    // SAFETY: the ABI's contract.
    let shared = unsafe { Context::from_c(context) }?;
    // SAFETY: the field is an integer of an open context.
    let vectors = unsafe { (*context).num_comp_vectors };
    if params.vector >= vectors.cast_unsigned() {
        let allowed = "it must be less than num_comp_vectors";
        return Err(VerbError::value("comp_vector", params.vector, allowed));
    }
    let channel = if params.channel.is_null() {
        None
    } else {
        // SAFETY: the ABI's contract.
        let (channel, of_channel) = unsafe { ChannelObject::with_context(params.channel) }?;
        if !shared.is_of_one_file(of_channel) {
            return Err(VerbError::ChannelOfOther);
        }
        Some(Arc::clone(&channel.channel))
    };
    let mut place = Box::<CqObject>::new_uninit();
    let address = place.as_mut_ptr();
    let cq = shared.device().create_cq(
        size(params.entries),
        channel,
        address.expose_provenance() as u64,
    )?;
    // SAFETY: the structure consists of integers, pointers and optional functions, for which zero
    // is valid, and of a mutex and a condition, whose initial value is zero on Linux.
    let mut c: ibv_cq_ex = unsafe { zeroed() };
    c.base.context = context;
    c.base.channel = params.channel;
    c.base.cq_context = params.cq_context;
    c.base.handle = cq.id().0;
    c.base.cqe = c_int::try_from(cq.capacity()).unwrap_or(c_int::MAX);
    let polling = fill(&mut c);
    let object = EventObject::Cq(cq.id());
    let (single_threaded, parent) = (params.single_threaded, params.parent);
    if let Some(parent) = parent {
        shared.device().hold_domain(parent)?;
    }
    shared.objects().cqs.insert(object, (Arc::clone(&cq), parent));
    let (c, polling, pending_at_arm) =
        (UnsafeCell::new(c), UnsafeCell::new(polling), AtomicU32::new(0));
    let made = handle_registry::into_raw(Box::write(
        place,
        CqObject { c, cq, polling, pending_at_arm, single_threaded, parent },
    ));
    shared.register_events(object, made.cast());
    if !params.channel.is_null() {
        // SAFETY: the ABI's contract.
        unsafe { ChannelObject::count(params.channel) };
    }
    Ok(made)
}

/// `ibv_create_cq`
pub unsafe extern "C" fn create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> *mut ibv_cq {
    ffi::return_ptr("ibv_create_cq", || {
        let entries = u32::try_from(cqe).unwrap_or(0);
        let vector = u32::try_from(comp_vector).unwrap_or(u32::MAX);
        let params =
            CqParams { entries, cq_context, channel, vector, single_threaded: false, parent: None };
        // SAFETY: the ABI's contract.
        unsafe { create(context, &params, |_| Polling::default()) }.map(<*mut _>::cast)
    })
}

/// `ibv_resize_cq`
pub unsafe extern "C" fn resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    ffi::return_errno("ibv_resize_cq", || {
        // SAFETY: the ABI's contract.
        let (object, _) = unsafe { CqObject::from_c(cq) }?;
        let asked = u32::try_from(cqe).unwrap_or(0);
        let held = u32::try_from(object.cq.len()).unwrap_or(u32::MAX);
        if held > asked {
            // Refused although the queue has more room than requested.
            return Err(CqError::TooSmall { requested: asked, held }.into());
        }
        let entries = object.cq.resize(size(asked))?;
        // SAFETY: the ABI's contract: no other thread resizes the queue, and the field is an
        // integer.
        unsafe { (&raw mut (*cq).cqe).write(c_int::try_from(entries).unwrap_or(c_int::MAX)) };
        Ok(())
    })
}

/// `ibv_destroy_cq`: fails with EBUSY while queue pairs use the queue. Blocks until the program has
/// acknowledged its events.
pub unsafe extern "C" fn destroy_cq(cq: *mut ibv_cq) -> c_int {
    let end = |object: &CqObject, context: &Context| {
        object.cq.destroy()?;
        if let Some(parent) = object.parent {
            context.device().release_domain(parent);
        }
        context.objects().cqs.remove(&EventObject::Cq(object.cq.id()));
        context.unregister_events(EventObject::Cq(object.cq.id()));
        // SAFETY: the field does not change.
        let channel = unsafe { (*cq).channel };
        if !channel.is_null() {
            // SAFETY: a channel is there as long as its queues.
            unsafe { ChannelObject::count(channel) };
        }
        Ok(())
    };
    // SAFETY: the ABI's contract.
    unsafe { CqObject::destroy("ibv_destroy_cq", cq, end) }
}

/// `ibv_poll_cq`, through `ibv_context.ops`: returns the number of completions, or a negative
/// number after an overrun.
pub unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, num_entries: c_int, wc: *mut ibv_wc) -> c_int {
    ffi::catch_panic(-libc::EIO, || {
        // SAFETY: the ABI's contract.
        let (object, context) = match unsafe { CqObject::from_c_unchecked(cq) } {
            Ok(found) => found,
            Err(error) => return -ffi::log_and_set_errno("ibv_poll_cq", &error),
        };
        let wanted = usize::try_from(num_entries).unwrap_or(0);
        if wanted > 0 && object.cq.is_quiet() {
            context.engine().progress_for(&object.cq);
            if object.cq.is_quiet() {
                // An empty poll, which programs repeat millions of times.
                object.cq.note_found_empty();
                context.deliver_events();
                return 0;
            }
        }
        let mut taken = 0;
        let mut batch = [Completion::default(); BATCH];
        while taken < wanted {
            let room = (wanted - taken).min(BATCH);
            let count = match context.engine().poll(&object.cq, &mut batch[..room]) {
                Ok(count) => count,
                Err(error) if taken == 0 => {
                    return -ffi::log_and_set_errno("ibv_poll_cq", &error.into());
                }
                Err(_) => break,
            };
            for completion in &batch[..count] {
                // SAFETY: the ABI's contract: num_entries places, of which fewer are filled.
                unsafe { wc.add(taken).write(to_c(completion)) };
                taken += 1;
            }
            if count < room {
                break;
            }
        }
        if taken < wanted {
            object.cq.note_found_empty();
        } else if wanted > 1 {
            // A program that fills its whole array and then waits for an event would miss the
            // remaining completions (perftest with --events --bidirectional and several queue
            // pairs). With an array of one, a program takes one completion for each event and must
            // get no extra event.
            object.cq.notify_unpolled();
        }
        context.deliver_events();
        taken as c_int
    })
}

/// `ibv_req_notify_cq`, through `ibv_context.ops`
pub unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    ffi::return_errno("ibv_req_notify_cq", || {
        // SAFETY: the ABI's contract.
        let (object, context) = unsafe { CqObject::from_c_unchecked(cq) }?;
        context.engine().flush_deferred();
        if solicited_only == 0 {
            let pending_at_arm =
                u32::try_from(object.cq.arm_and_count(ArmKind::Next)).unwrap_or(u32::MAX);
            // A program that found the queue empty may sleep after this call without a poll (UCX).
            // NVIDIA's devices send an event then. No completion after that event causes another,
            // so a batch may have them all.
            let is_reported = object.cq.notify_missed();
            // An event ends this state.
            if object.cq.was_found_empty() {
                context.engine().stop_polling();
            }
            let pending_at_arm = if is_reported { 0 } else { pending_at_arm };
            object.pending_at_arm.store(pending_at_arm, Ordering::Relaxed);
        } else {
            object.cq.arm(ArmKind::Solicited);
            object.pending_at_arm.store(0, Ordering::Relaxed);
        }
        Ok(())
    })
}

fn to_c(completion: &Completion) -> ibv_wc {
    ibv_wc {
        wr_id: completion.wr_id,
        status: completion.status.number().into(),
        opcode: completion.opcode.number().into(),
        vendor_err: completion.vendor_err,
        byte_len: completion.byte_len,
        imm_or_rkey: imm_or_rkey(completion),
        qp_num: completion.qp_num.value(),
        src_qp: completion.src_qp.value(),
        wc_flags: flags(completion),
        pkey_index: completion.pkey_index,
        slid: completion.slid,
        sl: completion.sl,
        dlid_path_bits: 0,
    }
}

/// Returns the flags. Each received message has `IBV_WC_GRH`, of every service, as over `rdma_rxe`
/// (`do_complete` in rxe_resp.c). Programs compare the flags with those of that driver.
pub fn flags(completion: &Completion) -> u32 {
    let mut flags = completion.flags();
    flags.set(WcFlags::GRH, completion.opcode.is_receive() && completion.status.is_success());
    flags.bits().into()
}

/// Returns immediate data in network order, or the invalidated key: C has one field for both.
pub fn imm_or_rkey(completion: &Completion) -> u32 {
    let key = || completion.invalidated_rkey().map_or(0, urxe_wire::Rkey::value);
    completion.imm_data().map_or_else(key, u32::to_be)
}

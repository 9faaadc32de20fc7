//! Extended completion queues: `ibv_create_cq_ex`, and the functions that read one completion after
//! another.

use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering;

use urxe_stack::cq::{Completion, CqError, Moderation};
use urxe_stack::memory::PdId;
use urxe_stack::sys::clock;

use crate::context::Context;
use crate::cq::{CqObject, CqParams, create, flags, imm_or_rkey};
use crate::error::VerbError;
use crate::ffi;
use crate::layout::{
    ibv_context, ibv_cq, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_modify_cq_attr, set_functions,
};
use crate::pd::Domain;

/// `IBV_WC_STANDARD_FLAGS` (byte length, immediate data, both queue pair numbers, and the fields
/// without meaning on Ethernet) and both timestamps: `IBV_WC_EX_WITH_COMPLETION_TIMESTAMP`,
/// `IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK`.
const WC_FLAGS: u64 = 0x7f | 1 << 7 | 1 << 11;
/// `IBV_CQ_INIT_ATTR_MASK_FLAGS`
const MASK_FLAGS: u32 = 1;
/// `IBV_CQ_INIT_ATTR_MASK_PD`: a parent domain, which the queue keeps in use. The single-thread
/// promise of a parent domain changes nothing here.
const MASK_PD: u32 = 1 << 1;
/// `IBV_CREATE_CQ_ATTR_SINGLE_THREADED`: the queue takes no turns.
/// `IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN` is not supported.
const SINGLE_THREADED: u32 = 1;
/// `IBV_CQ_ATTR_MODERATE`
const MODERATE: u32 = 1;

/// The batch of the thread that has its turn at the queue, with the completion being read.
///
/// A turn begins when start_poll finds a completion and lasts until end_poll, even if next_poll
/// found no further completion. The original holds a lock for the same time (providers/rxe/rxe.c).
///
/// If a batch begins with completions from before the program armed the queue, the batch ends
/// before the later ones. The event for the later ones is on its way, and a program that polls one
/// batch for each event finds them then. `ibv_rc_pingpong` with `-e -t` treats an event without a
/// completion as an error.
#[derive(Debug, Default)]
pub struct Polling {
    current: Completion,
    /// Number of completions that the batch may still return.
    remaining: u32,
}

/// `ibv_create_cq_ex`, through `verbs_context`
pub unsafe extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    ffi::return_ptr("ibv_create_cq_ex", || {
        // SAFETY: the ABI's contract.
        let attr = unsafe { attr.as_ref() }.ok_or(VerbError::Null("cq_attr"))?;
        check_bits("comp_mask", attr.comp_mask.into(), (MASK_FLAGS | MASK_PD).into())?;
        check_bits("wc_flags", attr.wc_flags, WC_FLAGS)?;
        let flags = if attr.comp_mask & MASK_FLAGS == 0 { 0 } else { attr.flags };
        check_bits("flags", flags.into(), SINGLE_THREADED.into())?;
        let params = CqParams {
            entries: attr.cqe,
            cq_context: attr.cq_context,
            channel: attr.channel,
            vector: attr.comp_vector,
            single_threaded: flags & SINGLE_THREADED != 0,
            parent: if attr.comp_mask & MASK_PD == 0 {
                None
            } else {
                // SAFETY: the ABI's contract.
                Some(unsafe { parent(context, attr) }?)
            },
        };
        // SAFETY: the ABI's contract.
        unsafe { create(context, &params, fill) }.map(<*mut _>::cast)
    })
}

/// Returns the parent domain that the queue is created with. A plain protection domain is refused.
///
/// # Safety
/// The ABI's contract.
unsafe fn parent(context: *mut ibv_context, attr: &ibv_cq_init_attr_ex) -> Result<PdId, VerbError> {
    // SAFETY: the ABI's contract.
    let domain = unsafe {
        Domain::from_c_in(Context::from_c(context)?, "parent_domain", attr.parent_domain)
    }?;
    if domain.id == domain.memory {
        let allowed = "the handle must belong to a parent domain";
        return Err(VerbError::value("parent_domain->handle", domain.id.0, allowed));
    }
    Ok(domain.id)
}

/// `ibv_modify_cq`, through `verbs_context`: sets the moderation of completion events.
pub unsafe extern "C" fn modify_cq(cq: *mut ibv_cq, attr: *mut ibv_modify_cq_attr) -> c_int {
    ffi::return_errno("ibv_modify_cq", || {
        // SAFETY: the ABI's contract.
        let (object, _) = unsafe { CqObject::from_c(cq) }?;
        // SAFETY: the ABI's contract.
        let attr = unsafe { attr.as_ref() }.ok_or(VerbError::Null("attr"))?;
        check_bits("attr_mask", attr.attr_mask.into(), MODERATE.into())?;
        if attr.attr_mask & MODERATE != 0 {
            let count = attr.moderate.cq_count;
            object.cq.moderate(Moderation { count, period_us: attr.moderate.cq_period })?;
        }
        Ok(())
    })
}

/// Refuses bits outside `offered`.
pub fn check_bits(field: &'static str, given: u64, offered: u64) -> Result<(), VerbError> {
    match given & !offered {
        0 => Ok(()),
        unknown => Err(VerbError::Bits { field, given, unknown }),
    }
}

fn fill(c: &mut ibv_cq_ex) -> Polling {
    set_functions!(c; start_poll, next_poll, end_poll);
    set_functions!(c; read_opcode, read_vendor_err, read_byte_len, read_imm_data, read_qp_num);
    set_functions!(c; read_src_qp, read_wc_flags, read_slid, read_sl, read_dlid_path_bits);
    set_functions!(c; read_completion_ts, read_completion_wallclock_ns);
    Polling::default()
}

/// Stores a completion where the program reads its fields. Returns 0, ENOENT without a completion,
/// or another error number.
///
/// # Safety
/// The ABI's contract: `cq` came from create_cq_ex. If there is a completion, this thread has the
/// turn.
unsafe fn store_completion(
    cq: *mut ibv_cq_ex,
    taken: Result<Option<Completion>, CqError>,
) -> c_int {
    match taken {
        Ok(None) => {
            // SAFETY: such a queue is the first field of a CqObject.
            unsafe { &*cq.cast::<CqObject>() }.cq.note_found_empty();
            libc::ENOENT
        }
        Ok(Some(completion)) => {
            // SAFETY: no other thread accesses these fields during the turn.
            unsafe {
                (*cq).wr_id = completion.wr_id;
                (*cq).status = completion.status.number().into();
                let polling = polling(cq);
                (*polling).current = completion;
                (*polling).remaining = (*polling).remaining.saturating_sub(1);
            }
            0
        }
        Err(error) => ffi::log_and_set_errno("ibv_start_poll", &error.into()),
    }
}

/// Takes the oldest completion, whether or not the caller has the turn.
fn take(object: &CqObject, context: &Context) -> Result<Option<Completion>, CqError> {
    let mut taken = [Completion::default()];
    let count = context.engine().poll(&object.cq, &mut taken)?;
    Ok((count > 0).then_some(taken[0]))
}

/// Takes the oldest completion and the turn; without a completion there is no turn.
fn start(object: &CqObject, context: &Context) -> Result<Option<Completion>, CqError> {
    if object.single_threaded {
        return take(object, context);
    }
    if let Some(taken) = object.cq.start_unguarded_poll()? {
        return Ok(Some(taken));
    }
    context.engine().progress_for(&object.cq);
    object.cq.start_unguarded_poll()
}

unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, attr: *mut c_void) -> c_int {
    ffi::catch_panic(libc::EIO, || {
        if !attr.is_null() {
            // SAFETY: the ABI's contract: a struct ibv_poll_cq_attr, which is a mask alone.
            let given = unsafe { attr.cast::<u32>().read() };
            if given != 0 {
                let allowed = "it must be 0";
                let error = VerbError::value("comp_mask", given, allowed);
                return ffi::log_and_set_errno("ibv_start_poll", &error);
            }
        }
        // SAFETY: the ABI's contract.
        let (object, context) = match unsafe { CqObject::from_c_unchecked(cq.cast()) } {
            Ok(found) => found,
            Err(error) => return ffi::log_and_set_errno("ibv_start_poll", &error),
        };
        let taken = start(object, context);
        context.deliver_events();
        if let Ok(Some(_)) = taken {
            let pending_at_arm = object.pending_at_arm.swap(0, Ordering::Relaxed);
            // SAFETY: this thread has the turn.
            unsafe {
                (*polling(cq)).remaining =
                    if pending_at_arm == 0 { u32::MAX } else { pending_at_arm }
            };
        }
        // SAFETY: the ABI's contract, and it is this thread's turn.
        unsafe { store_completion(cq, taken) }
    })
}

unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    ffi::catch_panic(libc::EIO, || {
        // SAFETY: the ABI's contract: start_poll has found the queue, and it is this thread's turn.
        unsafe {
            if (*polling(cq)).remaining == 0 {
                return libc::ENOENT;
            }
            let (object, context) = match CqObject::from_c_unchecked(cq.cast()) {
                Ok(found) => found,
                Err(error) => return ffi::log_and_set_errno("ibv_next_poll", &error),
            };
            let taken = take(object, context);
            context.deliver_events();
            store_completion(cq, taken)
        }
    })
}

unsafe extern "C" fn end_poll(cq: *mut ibv_cq_ex) {
    ffi::catch_panic((), || {
        // SAFETY: the ABI's contract: such a queue is the first field of a CqObject.
        let object = unsafe { &*cq.cast::<CqObject>() };
        if !object.single_threaded {
            object.cq.end_poll();
        }
    });
}

/// Returns a pointer to the state of the batch.
///
/// # Safety
/// The ABI's contract: `cq` came from create_cq_ex, and this thread polls the queue.
unsafe fn polling(cq: *mut ibv_cq_ex) -> *mut Polling {
    // SAFETY: such a queue is the first field of a CqObject.
    unsafe { (*cq.cast::<CqObject>()).polling.get() }
}

/// Returns the completion that start_poll or next_poll took.
///
/// # Safety
/// The ABI's contract: called between a successful start_poll and end_poll, in the polling thread.
unsafe fn current<'a>(cq: *mut ibv_cq_ex) -> &'a Completion {
    // SAFETY: a queue of create_cq_ex is the first field of a CqObject.
    unsafe { &(*polling(cq)).current }
}

macro_rules! readers {
    ($($name:ident -> $type:ty: $read:expr;)*) => {$(
        unsafe extern "C" fn $name(cq: *mut ibv_cq_ex) -> $type {
            let read: fn(&Completion) -> $type = $read;
            // SAFETY: the ABI's contract.
            read(unsafe { current(cq) })
        }
    )*};
}

readers! {
    read_opcode -> u32: |completion| completion.opcode.number().into();
    read_vendor_err -> u32: |completion| completion.vendor_err;
    read_byte_len -> u32: |completion| completion.byte_len;
    read_imm_data -> u32: imm_or_rkey;
    read_qp_num -> u32: |completion| completion.qp_num.value();
    read_src_qp -> u32: |completion| completion.src_qp.value();
    read_wc_flags -> u32: flags;
    read_slid -> u32: |completion| completion.slid.into();
    read_sl -> u8: |completion| completion.sl;
    read_dlid_path_bits -> u8: |_| 0;
    read_completion_ts -> u64: |completion| completion.timestamp_ns;
}

/// Returns the wall-clock time of the completion, computed from its age by the device clock.
unsafe extern "C" fn read_completion_wallclock_ns(cq: *mut ibv_cq_ex) -> u64 {
    ffi::catch_panic(0, || {
        // SAFETY: the ABI's contract.
        let (Ok((_, context)), completion) =
            (unsafe { (CqObject::from_c_unchecked(cq.cast()), current(cq)) })
        else {
            return 0;
        };
        let age_ns = context.engine().now().as_ns().saturating_sub(completion.timestamp_ns);
        clock::wall_ns().saturating_sub(age_ns)
    })
}

//! Work request builders: `ibv_wr_start`, `ibv_wr_send`, `ibv_wr_set_sge`, …, `ibv_wr_complete`.
//!
//! From start to complete (or abort), one thread uses the queue pair, as the header requires.
//! `ibv_wr_complete` posts the collected requests. The builder keeps the first error,
//! `ibv_wr_complete` returns it, and no request of that batch is posted.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use arrayvec::ArrayVec;
use urxe_stack::allocate::{self, OutOfMemory};
use urxe_stack::cq::SrqId;
use urxe_stack::qp::attr::QpType;
use urxe_stack::qp::work_request::{
    Destination, FlushRange, Payload, PostError, Remote, SendFlags, SendOp, SendRequest, Sge,
};
use urxe_wire::{Lkey, PlacementType, QKey, Qpn, Rkey};

use crate::ah::AhObject;
use crate::context::Context;
use crate::error::VerbError;
use crate::ffi;
use crate::layout::{
    ibv_ah, ibv_data_buf, ibv_mw, ibv_mw_bind_info, ibv_qp_ex, ibv_sge, set_functions,
};
use crate::mw;
use crate::post::{BATCH, bytes};
use crate::qp::QpObject;

/// `IBV_QP_EX_WITH_*`: WRITE, WRITE with immediate, SEND, SEND with immediate, LOCAL_INV, BIND_MW.
/// SEND with invalidate is missing, because unreliable connections have no opcode for it (IBTA vol.
/// 1, table 38). rdma-core's provider of `rdma_rxe` allows it nevertheless.
const UC_OPS: u64 = 0xf | 1 << 7 | 1 << 8;
/// The operations of `UC_OPS`, READ, both atomics, SEND with invalidate, FLUSH, ATOMIC WRITE.
const RC_OPS: u64 = UC_OPS | 0x3f << 4 | 1 << 11 | 1 << 12;
/// SEND, SEND with immediate.
const UD_OPS: u64 = 0xc;

/// Payload bytes of an ATOMIC WRITE.
const ATOMIC_BYTES: usize = 8;
/// `IBV_FLUSH_RANGE`
const FLUSH_RANGE: u8 = 0;
/// `IBV_FLUSH_MR`
const FLUSH_REGION: u8 = 1;

/// Refuses operations that queue pairs of this type do not have.
pub fn check_ops(qp_type: QpType, given: u64) -> Result<(), VerbError> {
    let offered = match qp_type {
        QpType::Rc | QpType::XrcSend => RC_OPS,
        QpType::Uc => UC_OPS,
        QpType::Ud => UD_OPS,
        _ => 0,
    };
    match given & !offered {
        0 => Ok(()),
        unknown => Err(VerbError::SendOps { qp_type, given, unknown }),
    }
}

/// Sets the builder functions of a queue pair.
pub fn install(c: &mut ibv_qp_ex) -> WrBuilder {
    set_functions!(c; wr_start, wr_complete, wr_abort);
    set_functions!(c; wr_send, wr_send_imm, wr_send_inv, wr_local_inv, wr_bind_mw, wr_flush);
    set_functions!(c; wr_rdma_read, wr_rdma_write, wr_rdma_write_imm);
    set_functions!(c; wr_atomic_cmp_swp, wr_atomic_fetch_add, wr_atomic_write);
    set_functions!(c; wr_set_ud_addr, wr_set_xrc_srqn, wr_set_sge, wr_set_sge_list);
    set_functions!(c; wr_set_inline_data, wr_set_inline_data_list);
    WrBuilder { busy: AtomicBool::new(false), batch: UnsafeCell::default() }
}

/// The batch being built, and whether the program has started one.
#[derive(Debug)]
pub struct WrBuilder {
    busy: AtomicBool,
    batch: UnsafeCell<Batch>,
}

impl WrBuilder {
    /// Runs `post` with the batch. Ends the batch, also if `post` panics: another thread that
    /// starts a batch would wait for ever otherwise.
    ///
    /// # Safety
    /// This thread has called start, but neither complete nor abort.
    unsafe fn complete<R>(&self, post: impl FnOnce(&mut Batch) -> R) -> R {
        let _end = EndOfBatch(&self.busy);
        // SAFETY: from start to complete the batch is this thread's alone.
        post(unsafe { &mut *self.batch.get() })
    }
}

/// Lets the next thread start a batch when it is dropped.
struct EndOfBatch<'b>(&'b AtomicBool);

impl Drop for EndOfBatch<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// The collected requests. The buffers are reused for the next batch.
#[derive(Debug, Default)]
struct Batch {
    requests: Vec<BuiltWr>,
    sges: Vec<Sge>,
    inline: Vec<u8>,
    first_error: Option<VerbError>,
}

#[derive(Debug)]
struct BuiltWr {
    wr_id: u64,
    op: SendOp,
    to: Destination,
    flags: SendFlags,
    sges: Range<usize>,
    inline: Range<usize>,
}

impl Batch {
    fn clear(&mut self) {
        self.requests.clear();
        self.sges.clear();
        self.inline.clear();
        self.first_error = None;
    }

    /// Keeps the first reason for which the batch cannot be posted.
    fn record_error(&mut self, first_error: VerbError) {
        self.first_error.get_or_insert(first_error);
    }

    /// Adds a request without data.
    fn push(&mut self, built: BuiltWr) -> Result<(), OutOfMemory> {
        allocate::reserve(&mut self.requests, 1)?;
        self.requests.push(built);
        Ok(())
    }

    fn request(&self, built: &BuiltWr) -> SendRequest<'_> {
        let payload = Payload::Sges(&self.sges[built.sges.clone()]);
        let BuiltWr { wr_id, op, to, flags, .. } = *built;
        SendRequest { wr_id, op, to, flags, payload }
    }
}

/// Runs `use_it` with the batch of a queue pair.
///
/// # Safety
/// The ABI's contract: `qp` came from ibv_qp_to_qp_ex, and this thread has called start but not
/// complete.
unsafe fn with_batch(qp: *mut ibv_qp_ex, use_it: impl FnOnce(&mut Batch)) {
    ffi::catch_panic((), || {
        // SAFETY: the ABI's contract; from start to complete the batch is this thread's alone.
        unsafe {
            let (object, _) = QpObject::from_c_unchecked(qp.cast()).unwrap_unchecked();
            if let Some(build) = &object.build {
                use_it(&mut *build.batch.get());
            }
        }
    });
}

/// Runs `fill` with the batch of a queue pair, and records the lack of memory for the new content.
///
/// # Safety
/// As `with_batch`.
unsafe fn fill_batch(qp: *mut ibv_qp_ex, fill: impl FnOnce(&mut Batch) -> Result<(), OutOfMemory>) {
    let fill = |batch: &mut Batch| {
        if let Err(error) = fill(batch) {
            batch.record_error(error.into());
        }
    };
    // SAFETY: the caller's.
    unsafe { with_batch(qp, fill) };
}

/// Begins a request with the identifier and the flags that the program stored in the queue pair.
///
/// # Safety
/// As `with_batch`.
unsafe fn begin(qp: *mut ibv_qp_ex, op: SendOp) {
    // SAFETY: the fields are the program's to write, in this thread.
    let (wr_id, flags) = unsafe { ((*qp).wr_id, (*qp).wr_flags) };
    // The setter that the program calls decides whether data is inline; the flag is ignored.
    let flags = SendFlags::from_bits_truncate(flags).difference(SendFlags::INLINE);
    let built = |batch: &Batch| {
        let (sges, inline) = (batch.sges.len(), batch.inline.len());
        BuiltWr {
            wr_id,
            op,
            to: Destination::Peer,
            flags,
            sges: sges..sges,
            inline: inline..inline,
        }
    };
    // SAFETY: the caller's.
    unsafe { fill_batch(qp, |batch| batch.push(built(batch))) };
}

/// Begins a request of the operation, or records the reason why the operation is refused.
///
/// # Safety
/// As `with_batch`.
unsafe fn begin_or_record(qp: *mut ibv_qp_ex, op: Result<SendOp, VerbError>) {
    // SAFETY: the caller's.
    unsafe {
        match op {
            Ok(op) => begin(qp, op),
            Err(error) => with_batch(qp, |batch| batch.record_error(error)),
        }
    }
}

unsafe extern "C" fn wr_start(qp: *mut ibv_qp_ex) {
    ffi::catch_panic((), || {
        // SAFETY: the ABI's contract.
        let found = unsafe { QpObject::from_c_unchecked(qp.cast()) };
        let Ok((QpObject { build: Some(build), .. }, _)) = found else { return };
        while build.busy.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
        // SAFETY: no other thread builds during this call.
        unsafe { (*build.batch.get()).clear() };
    });
}

unsafe extern "C" fn wr_abort(qp: *mut ibv_qp_ex) {
    // SAFETY: the ABI's contract.
    let found = unsafe { QpObject::from_c_unchecked(qp.cast()) };
    if let Ok((QpObject { build: Some(build), .. }, _)) = found {
        build.busy.store(false, Ordering::Release);
    }
}

unsafe extern "C" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    ffi::return_errno("ibv_wr_complete", || {
        // SAFETY: the ABI's contract.
        let (object, context) = unsafe { QpObject::from_c_unchecked(qp.cast()) }?;
        let Some(build) = &object.build else {
            return Err(VerbError::Unsupported("building work requests"));
        };
        // SAFETY: the ABI's contract: this thread has called start.
        let result = unsafe { build.complete(|batch| post(object, context, batch)) };
        context.deliver_events();
        result
    })
}

fn post(qp: &QpObject, context: &Context, batch: &mut Batch) -> Result<(), VerbError> {
    if let Some(first_error) = batch.first_error.take() {
        return Err(first_error);
    }
    let engine = &context.engine();
    // Inline data is passed as a list of slices, so the requests of a batch need a list of such
    // lists.
    for (nr, built) in batch.requests.chunks(BATCH).enumerate() {
        let pieces: ArrayVec<[&[u8]; 1], BATCH> =
            built.iter().map(|built| [&batch.inline[built.inline.clone()]]).collect();
        let requests: ArrayVec<SendRequest<'_>, BATCH> = built
            .iter()
            .zip(&pieces)
            .map(|(built, pieces)| match built.flags.contains(SendFlags::INLINE) {
                true => SendRequest { payload: Payload::Inline(pieces), ..batch.request(built) },
                false => batch.request(built),
            })
            .collect();
        let is_last = (nr + 1) * BATCH >= batch.requests.len();
        let posted = if is_last {
            engine.post_send(qp.handle, &requests)
        } else {
            engine.device().post_send(engine.now(), qp.handle, &requests)
        };
        posted.map_err(|(_, error)| error)?;
    }
    Ok(())
}

/// Generates functions that begin a request; the arguments define the operation.
macro_rules! operations {
    ($($name:ident($($argument:ident: $type:ty),*) => $op:expr;)*) => {$(
        unsafe extern "C" fn $name(qp: *mut ibv_qp_ex $(, $argument: $type)*) {
            // SAFETY: the ABI's contract.
            unsafe { begin(qp, $op) };
        }
    )*};
}

operations! {
    wr_send() => SendOp::Send;
    wr_send_imm(imm: u32) => SendOp::SendImm { imm: u32::from_be(imm) };
    wr_send_inv(rkey: u32) => SendOp::SendInvalidate { rkey: Rkey(rkey) };
    wr_local_inv(rkey: u32) => SendOp::LocalInv { rkey: Rkey(rkey) };
    wr_rdma_read(rkey: u32, addr: u64) => SendOp::Read { remote: remote(addr, rkey) };
    wr_rdma_write(rkey: u32, addr: u64) => SendOp::Write { remote: remote(addr, rkey) };
    wr_rdma_write_imm(rkey: u32, addr: u64, imm: u32) =>
        SendOp::WriteImm { remote: remote(addr, rkey), imm: u32::from_be(imm) };
    wr_atomic_cmp_swp(rkey: u32, addr: u64, compare: u64, swap: u64) =>
        SendOp::CompareSwap { remote: remote(addr, rkey), compare, swap };
    wr_atomic_fetch_add(rkey: u32, addr: u64, add: u64) =>
        SendOp::FetchAdd { remote: remote(addr, rkey), add };
}

const fn remote(addr: u64, rkey: u32) -> Remote {
    Remote { addr, rkey: Rkey(rkey) }
}

unsafe extern "C" fn wr_bind_mw(
    qp: *mut ibv_qp_ex,
    window: *mut ibv_mw,
    rkey: u32,
    info: *const ibv_mw_bind_info,
) {
    // SAFETY: the ABI's contract: the window is allocated, the structure is the program's.
    let bind = unsafe {
        match (window.as_ref(), info.as_ref()) {
            (None, _) => Err(VerbError::Null("mw")),
            (_, None) => Err(VerbError::Null("bind_info")),
            (Some(window), Some(info)) => mw::request(window, Rkey(rkey), info),
        }
    };
    // SAFETY: the ABI's contract.
    unsafe { begin_or_record(qp, bind.map(SendOp::BindMw)) };
}

unsafe extern "C" fn wr_atomic_write(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    addr: u64,
    from: *const c_void,
) {
    let remote = remote(addr, rkey);
    let fill = |batch: &mut Batch| {
        let Some(built) = batch.requests.last_mut() else { return Ok(()) };
        let start = batch.inline.len();
        allocate::reserve(&mut batch.inline, ATOMIC_BYTES)?;
        // SAFETY: the ABI's contract: eight bytes of the program.
        batch.inline.extend_from_slice(unsafe { bytes(from.addr() as u64, ATOMIC_BYTES) });
        built.inline = start..batch.inline.len();
        built.flags.insert(SendFlags::INLINE);
        Ok(())
    };
    // SAFETY: the ABI's contract.
    unsafe {
        begin(qp, SendOp::AtomicWrite { remote });
        fill_batch(qp, fill);
    }
}

unsafe extern "C" fn wr_flush(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    addr: u64,
    length: usize,
    placement: u8,
    level: u8,
) {
    let range = match (level, u32::try_from(length)) {
        (FLUSH_RANGE, Ok(length)) => Ok(FlushRange::Bytes(length)),
        (FLUSH_RANGE, Err(_)) => {
            let allowed = "a FLUSH covers less than 2^32 bytes";
            Err(VerbError::value("length", length as u64, allowed))
        }
        (FLUSH_REGION, _) => Ok(FlushRange::Region),
        _ => {
            let allowed = "IBV_FLUSH_RANGE (0) and IBV_FLUSH_MR (1) are allowed";
            Err(VerbError::value("level", level, allowed))
        }
    };
    let (remote, placement) = (remote(addr, rkey), PlacementType::from_bits_retain(placement));
    // SAFETY: the ABI's contract.
    unsafe {
        begin_or_record(qp, range.map(|range| SendOp::Flush { remote, placement, range }));
    }
}

/// Sets the destination of the request being built.
///
/// # Safety
/// As `with_batch`.
unsafe fn address(qp: *mut ibv_qp_ex, to: Destination) {
    let fill = |batch: &mut Batch| {
        if let Some(built) = batch.requests.last_mut() {
            built.to = to;
        }
    };
    // SAFETY: the caller's.
    unsafe { with_batch(qp, fill) };
}

unsafe extern "C" fn wr_set_ud_addr(qp: *mut ibv_qp_ex, ah: *mut ibv_ah, qpn: u32, qkey: u32) {
    // SAFETY: the ABI's contract.
    let named = unsafe {
        QpObject::from_c_unchecked(qp.cast())
            .and_then(|(_, context)| AhObject::handle_for(context, ah))
    };
    match named {
        Ok(ah) => {
            let to = Destination::Datagram { ah, qpn: Qpn::masked(qpn), qkey: QKey(qkey) };
            // SAFETY: the ABI's contract.
            unsafe { address(qp, to) };
        }
        // SAFETY: the ABI's contract.
        Err(error) => unsafe { with_batch(qp, |batch| batch.record_error(error)) },
    }
}

unsafe extern "C" fn wr_set_xrc_srqn(qp: *mut ibv_qp_ex, srqn: u32) {
    // SAFETY: the ABI's contract.
    unsafe { address(qp, Destination::XrcSrq { srq: SrqId(srqn) }) };
}

unsafe extern "C" fn wr_set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    let sge = ibv_sge { addr, length, lkey };
    // SAFETY: the ABI's contract.
    unsafe { wr_set_sge_list(qp, 1, &raw const sge) };
}

unsafe extern "C" fn wr_set_sge_list(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_sge) {
    // SAFETY: the ABI's contract: so many entries.
    let entry = |index| unsafe { *list.add(index) };
    let fill = |batch: &mut Batch| {
        let Some(built) = batch.requests.last_mut() else { return Ok(()) };
        let start = batch.sges.len();
        allocate::reserve(&mut batch.sges, count)?;
        batch.sges.extend((0..count).map(entry).map(|sge| Sge {
            addr: sge.addr,
            length: sge.length,
            lkey: Lkey(sge.lkey),
        }));
        built.sges = start..batch.sges.len();
        Ok(())
    };
    // SAFETY: the ABI's contract.
    unsafe { fill_batch(qp, fill) };
}

unsafe extern "C" fn wr_set_inline_data(qp: *mut ibv_qp_ex, addr: *const c_void, length: usize) {
    let piece = ibv_data_buf { addr, length };
    // SAFETY: the ABI's contract.
    unsafe { wr_set_inline_data_list(qp, 1, &raw const piece) };
}

unsafe extern "C" fn wr_set_inline_data_list(
    qp: *mut ibv_qp_ex,
    count: usize,
    list: *const ibv_data_buf,
) {
    // SAFETY: the ABI's contract.
    let Ok((_, context)) = (unsafe { QpObject::from_c_unchecked(qp.cast()) }) else { return };
    let allowed = context.device().limits().max_inline_data;
    // SAFETY: the ABI's contract: so many pieces.
    let piece = |index| unsafe { *list.add(index) };
    let given: usize = (0..count).map(|index| piece(index).length).fold(0, usize::saturating_add);
    let fill = |batch: &mut Batch| {
        if given > allowed as usize {
            // Data of this length is not copied. Posting checks the limit of the queue pair itself.
            batch.record_error(PostError::TooMuchInline { given, allowed }.into());
            return Ok(());
        }
        let Some(built) = batch.requests.last_mut() else { return Ok(()) };
        let start = batch.inline.len();
        allocate::reserve(&mut batch.inline, given)?;
        for piece in (0..count).map(piece) {
            // SAFETY: the ABI's contract: the program's bytes.
            batch
                .inline
                .extend_from_slice(unsafe { bytes(piece.addr.addr() as u64, piece.length) });
        }
        built.inline = start..batch.inline.len();
        built.flags.insert(SendFlags::INLINE);
        Ok(())
    };
    // SAFETY: the ABI's contract.
    unsafe { fill_batch(qp, fill) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_while_a_batch_is_posted_ends_the_batch() {
        let build = WrBuilder { busy: AtomicBool::new(true), batch: UnsafeCell::default() };
        let answer = ffi::return_errno("ibv_wr_complete", || {
            // SAFETY: the batch is started, and the test has one thread.
            unsafe { build.complete(|_| panic!("this fault is a test's")) }
        });
        assert_eq!(answer, libc::EIO);
        assert!(!build.busy.load(Ordering::Relaxed));
    }
}

//! Posting work requests: `ibv_post_send` and `ibv_post_recv`, through `ibv_context.ops`.
//!
//! A program passes a linked list. The list is posted in batches of a few requests, so that posting
//! allocates nothing. The engine sends packets after the last batch. At the first refused request,
//! `bad_wr` points to that request; the requests before it are posted.

use std::cell::RefCell;
use std::ffi::c_int;
use std::mem::offset_of;
use std::slice;

use arrayvec::ArrayVec;
use urxe_stack::cq::SrqId;
use urxe_stack::qp::attr::QpType;
use urxe_stack::qp::work_request::{
    Destination, Payload, PostError, RecvRequest, Remote, SendFlags, SendOp, SendRequest, Sge,
};
use urxe_wire::{QKey, Qpn, Rkey};

use crate::ah::AhObject;
use crate::context::Context;
use crate::error::VerbError;
use crate::ffi;
use crate::layout::{ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_sge, ibv_srq};
use crate::mw;
use crate::qp::QpObject;
use crate::srq::SrqObject;

/// Number of requests in a batch.
pub const BATCH: usize = 8;
/// Maximum number of scatter-gather entries of a request, which is also the limit of every device.
pub const MAX_SGE: usize = 32;

// A program's scatter-gather list is used in place, unless it is unaligned.
const _: () =
    assert!(size_of::<ibv_sge>() == size_of::<Sge>() && align_of::<ibv_sge>() == align_of::<Sge>());
const _: () = assert!(
    offset_of!(ibv_sge, addr) == offset_of!(Sge, addr)
        && offset_of!(ibv_sge, length) == offset_of!(Sge, length)
        && offset_of!(ibv_sge, lkey) == offset_of!(Sge, lkey)
);

/// `ibv_post_send`
pub unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the ABI's contract.
    let single = ffi::catch_panic(Some(libc::EIO), || unsafe { post_single(qp, wr) }.then_some(0));
    // SAFETY: the ABI's contract.
    single.unwrap_or_else(|| unsafe { post_list(qp, wr, bad_wr) })
}

/// Posts a single SEND, WRITE or READ between two queue pairs, which is the most frequent call.
///
/// Returns whether the request was posted. [`post_list`] handles all other requests, because the
/// cost of a batch and of an error reason is measurable for messages of 64 bytes.
///
/// # Safety
/// The ABI's contract.
unsafe fn post_single(qp: *mut ibv_qp, wr: *const ibv_send_wr) -> bool {
    // SAFETY: the ABI's contract.
    let (Ok((object, context)), Some(wr)) =
        (unsafe { QpObject::from_c_unchecked(qp) }, unsafe { wr.as_ref() })
    else {
        return false;
    };
    let has_peer = !matches!(object.qp_type, QpType::Ud | QpType::XrcSend);
    if !has_peer || !wr.next.is_null() || is_inline(wr) {
        return false;
    }
    // SAFETY: the ABI's contract.
    let entries = unsafe { entries(wr.sg_list, wr.num_sge, None) };
    let (Some(op), Some(sges)) = (plain_op(wr), entries) else { return false };
    let request = SendRequest {
        wr_id: wr.wr_id,
        op,
        to: Destination::Peer,
        flags: SendFlags::from_bits_truncate(wr.send_flags),
        payload: Payload::Sges(sges),
    };
    let posted = context.engine().post_send(object.handle, slice::from_ref(&request)).is_ok();
    context.deliver_events();
    posted
}

/// Returns the operation of a SEND, WRITE or READ, and `None` for other opcodes.
#[inline(always)]
fn plain_op(wr: &ibv_send_wr) -> Option<SendOp> {
    // SAFETY: integers in all parts of the union: whichever was written, these bytes are the
    // program's.
    let rdma = unsafe { wr.wr.rdma };
    let remote = Remote { addr: rdma.remote_addr, rkey: Rkey(rdma.rkey) };
    let imm = u32::from_be(wr.imm_or_rkey);
    // The numbers are those of enum ibv_wr_opcode.
    Some(match wr.opcode {
        0 => SendOp::Write { remote },
        1 => SendOp::WriteImm { remote, imm },
        2 => SendOp::Send,
        3 => SendOp::SendImm { imm },
        4 => SendOp::Read { remote },
        _ => return None,
    })
}

/// Posts a list of any requests.
///
/// # Safety
/// The ABI's contract.
unsafe fn post_list(qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad_wr: *mut *mut ibv_send_wr) -> c_int {
    let post = |next: &mut *mut ibv_send_wr| {
        // SAFETY: the ABI's contract.
        let (object, context) = unsafe { QpObject::from_c_unchecked(qp) }?;
        ffi::non_null(wr, "wr")?;
        // SAFETY: the ABI's contract: a list that ends with NULL.
        let result = unsafe { send_list(object, context, next) };
        context.deliver_events();
        result
    };
    // SAFETY: the ABI's contract.
    unsafe { reporting_bad_wr("ibv_post_send", wr, bad_wr, post) }
}

/// Posts the list that begins at `wr` by `post`, which advances its argument to the refused
/// request. Stores that request in `bad_wr`.
///
/// # Safety
/// The ABI's contract: `bad_wr` is NULL or valid for a write of the pointer.
unsafe fn reporting_bad_wr<T>(
    verb: &'static str,
    wr: *mut T,
    bad_wr: *mut *mut T,
    post: impl FnOnce(&mut *mut T) -> Result<(), VerbError>,
) -> c_int {
    let mut next = wr;
    let result = ffi::return_errno(verb, || post(&mut next));
    if result != 0 && !bad_wr.is_null() {
        // SAFETY: the caller's.
        unsafe { bad_wr.write(next) };
    }
    result
}

/// Posts the list that begins at `next`. On failure, `next` is the refused request.
///
/// # Safety
/// The ABI's contract.
unsafe fn send_list(
    qp: &QpObject,
    context: &Context,
    next: &mut *mut ibv_send_wr,
) -> Result<(), VerbError> {
    let engine = &context.engine();
    loop {
        let first = *next;
        // The inline pieces of the one request of a batch; a request with inline data is a batch of
        // its own.
        let pieces: ArrayVec<&[u8], MAX_SGE>;
        let copies = Copies::default();
        let mut batch: ArrayVec<SendRequest<'_>, BATCH> = ArrayVec::new();
        let mut failure = None;
        // SAFETY: the ABI's contract: the list's next request, or NULL at its end.
        while let Some(wr) = unsafe { (*next).as_ref() } {
            let is_inline = is_inline(wr);
            if batch.is_full() || (is_inline && !batch.is_empty()) {
                break;
            }
            // SAFETY: the ABI's contract, for all that the request points to.
            let request = unsafe { request(qp.qp_type, context, wr, &copies) };
            match request {
                Ok(request) if is_inline => {
                    // SAFETY: as above.
                    pieces = match unsafe { inline_pieces(wr) } {
                        Ok(pieces) => pieces,
                        Err(error) => {
                            failure = Some(error);
                            break;
                        }
                    };
                    batch.push(SendRequest { payload: Payload::Inline(&pieces), ..request });
                    *next = wr.next;
                    break;
                }
                Ok(request) => batch.push(request),
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
            *next = wr.next;
        }
        let is_last = failure.is_some() || next.is_null();
        // The engine also sends, whereas the device only queues requests.
        let posted = if is_last {
            engine.post_send(qp.handle, &batch)
        } else {
            engine.device().post_send(engine.now(), qp.handle, &batch)
        };
        if let Err((index, error)) = posted {
            *next = first;
            for _ in 0..index {
                // SAFETY: so many requests were read from the list above.
                *next = unsafe { (**next).next };
            }
            if !is_last {
                // Sends the requests that were posted before the refused one.
                engine.progress();
            }
            return Err(error.into());
        }
        match failure {
            Some(error) => return Err(error),
            None if is_last => return Ok(()),
            None => {}
        }
    }
}

fn is_inline(wr: &ibv_send_wr) -> bool {
    wr.send_flags & SendFlags::INLINE.bits() != 0
}

/// Converts a send work request to a queue pair of `context`.
///
/// # Safety
/// The ABI's contract: the fields that belong to the opcode and the entries are valid.
unsafe fn request<'a>(
    qp_type: QpType,
    context: &Context,
    wr: &ibv_send_wr,
    copies: &'a Copies,
) -> Result<SendRequest<'a>, VerbError> {
    // SAFETY: integers in all parts of the union: whichever was written, these bytes are the
    // program's.
    let (rdma, atomic) = unsafe { (wr.wr.rdma, wr.wr.atomic) };
    let remote = Remote { addr: rdma.remote_addr, rkey: Rkey(rdma.rkey) };
    let atomic_remote = Remote { addr: atomic.remote_addr, rkey: Rkey(atomic.rkey) };
    // The numbers are those of enum ibv_wr_opcode.
    let op = match (plain_op(wr), wr.opcode) {
        (Some(op), _) => op,
        (_, 5) => SendOp::CompareSwap {
            remote: atomic_remote,
            compare: atomic.compare_add,
            swap: atomic.swap,
        },
        (_, 6) => SendOp::FetchAdd { remote: atomic_remote, add: atomic.compare_add },
        (_, 7) => SendOp::LocalInv { rkey: Rkey(wr.imm_or_rkey) },
        (_, 8) => {
            // SAFETY: the ABI's contract: the window is NULL or allocated.
            let window = unsafe { wr.bind_mw.mw.as_ref() }.ok_or(VerbError::Null("mw"))?;
            // SAFETY: the ABI's contract.
            SendOp::BindMw(unsafe {
                mw::request(window, Rkey(wr.bind_mw.rkey), &wr.bind_mw.bind_info)
            }?)
        }
        (_, 9) => SendOp::SendInvalidate { rkey: Rkey(wr.imm_or_rkey) },
        (_, 10) => return Err(VerbError::Unsupported("IBV_WR_TSO")),
        // The structure has no field for the arguments of a FLUSH; ibv_wr_flush takes them.
        (_, 14) => return Err(VerbError::Unsupported("IBV_WR_FLUSH by ibv_post_send")),
        (_, 15) => SendOp::AtomicWrite { remote },
        (_, given) => {
            return Err(VerbError::value("opcode", given, "no such operation"));
        }
    };
    Ok(SendRequest {
        wr_id: wr.wr_id,
        op,
        // SAFETY: the ABI's contract.
        to: unsafe { destination(qp_type, context, wr) }?,
        flags: SendFlags::from_bits_truncate(wr.send_flags),
        // SAFETY: the ABI's contract.
        payload: Payload::Sges(unsafe { sges(wr.sg_list, wr.num_sge, copies) }?),
    })
}

/// Returns the destination of a request. The type of the queue pair says which field holds the
/// destination.
///
/// # Safety
/// The ABI's contract: for a datagram queue pair, the address handle is NULL or valid.
unsafe fn destination(
    qp_type: QpType,
    context: &Context,
    wr: &ibv_send_wr,
) -> Result<Destination, VerbError> {
    match qp_type {
        QpType::Ud => {
            // SAFETY: the queue pair's type says that this part was written.
            let ud = unsafe { wr.wr.ud };
            // SAFETY: the ABI's contract.
            let ah = unsafe { AhObject::handle_for(context, ud.ah) }?;
            Ok(Destination::Datagram {
                ah,
                qpn: Qpn::masked(ud.remote_qpn),
                qkey: QKey(ud.remote_qkey),
            })
        }
        QpType::XrcSend => Ok(Destination::XrcSrq { srq: SrqId(wr.remote_srqn) }),
        _ => Ok(Destination::Peer),
    }
}

/// Aligned copies of scatter-gather lists that a program has in packed structures, as libiscsi has
/// them. Without such a list, nothing is allocated.
#[derive(Default)]
struct Copies(RefCell<Vec<Vec<Sge>>>);

impl Copies {
    /// Copies an unaligned list. A copy has at most one entry too many, which the device refuses.
    ///
    /// # Safety
    /// The ABI's contract: `count` entries are at `list`.
    #[cold]
    unsafe fn add(&self, list: *const Sge, count: usize) -> &[Sge] {
        let count = count.min(MAX_SGE + 1);
        // SAFETY: the caller's. The entries are integers.
        let copy: Vec<Sge> =
            (0..count).map(|at| unsafe { list.add(at).read_unaligned() }).collect();
        let place = copy.as_ptr();
        self.0.borrow_mut().push(copy);
        // SAFETY: the copy stays at its place, because `self` neither changes nor removes it.
        unsafe { slice::from_raw_parts(place, count) }
    }
}

/// Returns a scatter-gather list, in place if it is aligned. Returns `None` if the pointer or the
/// count is invalid, and if an unaligned list needs `copies`.
///
/// # Safety
/// The ABI's contract: `count` entries are at `list` and do not change during the call.
unsafe fn entries(list: *mut ibv_sge, count: c_int, copies: Option<&Copies>) -> Option<&[Sge]> {
    match usize::try_from(count).ok()? {
        0 => Some(&[]),
        _ if list.is_null() => None,
        // SAFETY: the caller's.
        count if !list.is_aligned() => copies.map(|c| unsafe { c.add(list.cast(), count) }),
        // SAFETY: the entries are laid out alike (asserted above), and are the program's during the
        // call.
        count => Some(unsafe { slice::from_raw_parts(list.cast::<Sge>(), count) }),
    }
}

/// Returns the list of [`entries`], or the reason why the list is invalid.
///
/// # Safety
/// As [`entries`].
unsafe fn sges(list: *mut ibv_sge, count: c_int, copies: &Copies) -> Result<&[Sge], VerbError> {
    // SAFETY: the caller's.
    unsafe { entries(list, count, Some(copies)) }.ok_or_else(|| match count {
        0.. => VerbError::Null("sg_list"),
        _ => VerbError::value(
            "num_sge",
            count.cast_unsigned(),
            "it must be the number of entries of sg_list",
        ),
    })
}

/// Returns the pieces of inline data.
///
/// # Safety
/// The ABI's contract: the entries name memory of the program that does not change during the call.
unsafe fn inline_pieces<'a>(wr: &ibv_send_wr) -> Result<ArrayVec<&'a [u8], MAX_SGE>, VerbError> {
    let copies = Copies::default();
    // SAFETY: as above.
    let sges = unsafe { sges(wr.sg_list, wr.num_sge, &copies) }?;
    if sges.len() > MAX_SGE {
        return Err(PostError::TooManySges { given: sges.len(), allowed: MAX_SGE as u32 }.into());
    }
    // SAFETY: as above.
    Ok(sges.iter().map(|sge| unsafe { bytes(sge.addr, sge.length as usize) }).collect())
}

/// Returns bytes of the program.
///
/// # Safety
/// The ABI's contract: `length` bytes at `addr` belong to the program and do not change while the
/// result is used.
pub unsafe fn bytes<'a>(addr: u64, length: usize) -> &'a [u8] {
    if length == 0 {
        return &[];
    }
    // SAFETY: as above.
    unsafe { slice::from_raw_parts(std::ptr::with_exposed_provenance(addr as usize), length) }
}

/// `ibv_post_recv`
pub unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    let post = |next: &mut *mut ibv_recv_wr| {
        // SAFETY: the ABI's contract.
        let (object, context) = unsafe { QpObject::from_c_unchecked(qp) }?;
        ffi::non_null(wr, "wr")?;
        let post = |batch: &[RecvRequest<'_>]| context.engine().post_recv(object.handle, batch);
        // SAFETY: the ABI's contract: a list that ends with NULL.
        let result = unsafe { recv_list(next, post) };
        context.deliver_events();
        result
    };
    // SAFETY: the ABI's contract.
    unsafe { reporting_bad_wr("ibv_post_recv", wr, bad_wr, post) }
}

/// Posts the list that begins at `next`. On failure, `next` is the refused request.
///
/// # Safety
/// The ABI's contract.
unsafe fn recv_list(
    next: &mut *mut ibv_recv_wr,
    post: impl Fn(&[RecvRequest<'_>]) -> Result<(), (usize, PostError)>,
) -> Result<(), VerbError> {
    loop {
        let first = *next;
        let copies = Copies::default();
        let mut batch: ArrayVec<RecvRequest<'_>, BATCH> = ArrayVec::new();
        let mut failure = None;
        // SAFETY: the ABI's contract: the list's next request, or NULL at its end.
        while let Some(wr) = unsafe { (*next).as_ref() } {
            if batch.is_full() {
                break;
            }
            // SAFETY: the ABI's contract.
            match unsafe { sges(wr.sg_list, wr.num_sge, &copies) } {
                Ok(sges) => batch.push(RecvRequest { wr_id: wr.wr_id, sges }),
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
            *next = wr.next;
        }
        if let Err((index, error)) = post(&batch) {
            *next = first;
            for _ in 0..index {
                // SAFETY: so many requests were read from the list above.
                *next = unsafe { (**next).next };
            }
            return Err(error.into());
        }
        match failure {
            Some(error) => return Err(error),
            None if next.is_null() => return Ok(()),
            None => {}
        }
    }
}

/// `ibv_post_srq_recv`
pub unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    let post = |next: &mut *mut ibv_recv_wr| {
        // SAFETY: the ABI's contract.
        let (object, _) = unsafe { SrqObject::from_c_unchecked(srq) }?;
        // SAFETY: the ABI's contract: a list that ends with NULL.
        unsafe { recv_list(next, |batch| object.srq.post(batch)) }
    };
    // SAFETY: the ABI's contract.
    unsafe { reporting_bad_wr("ibv_post_srq_recv", wr, bad_wr, post) }
}

//! Memory regions.

use std::ffi::{c_int, c_void};

use urxe_stack::allocate;
use urxe_stack::memory::{Access, Advice, AdviseRange, Change, Mr, Translation};
use urxe_wire::Lkey;

use crate::context::Context;
use crate::cq_ex::check_bits;
use crate::error::VerbError;
use crate::ffi;
use crate::handle_registry;
use crate::layout::{ibv_mr, ibv_pd, ibv_sge};
use crate::pd::Domain;

/// `IBV_REREG_MR_ERR_INPUT`: the region is unchanged.
const REREG_INPUT: c_int = -1;
/// `IBV_REREG_MR_ERR_CMD`: the device refused, and the region is unchanged.
const REREG_FAILED: c_int = -4;
/// `IBV_REREG_MR_CHANGE_TRANSLATION`
const TRANSLATION: u32 = 1;
/// `IBV_REREG_MR_CHANGE_PD`
const PD: u32 = 1 << 1;
/// `IBV_REREG_MR_CHANGE_ACCESS`
const ACCESS: u32 = 1 << 2;
/// `IBV_ADVISE_MR_FLAG_FLUSH`
const ADVISE_FLUSH: u32 = 1;

handle_registry::object!(@plain ibv_mr, ibv_mr, "mr");

/// A domain, and the context that it belongs to.
type OwnedDomain<'a> = (Domain, &'a Context);

/// Registers memory and returns its structure.
///
/// # Safety
/// The ABI's contract, and the requirements of `urxe_stack::memory::Memory::register` on the
/// memory, which equal those of `ibv_reg_mr(3)`.
pub unsafe fn register(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: u32,
) -> Result<*mut ibv_mr, VerbError> {
    // SAFETY: the ABI's contract.
    let (domain, context) = unsafe { Domain::from_c(pd) }?;
    let access = Access::from_bits_retain(access);
    let _held = domain.hold(context)?;
    // SAFETY: the memory belongs to the C program. No Rust reference to the memory exists, and the
    // program keeps the memory mapped until the deregistration.
    let mr = unsafe {
        context.device().memory().register(domain.memory, addr.cast(), length, iova, access)
    }?;
    Ok(owned_ibv_mr((pd, domain), context, addr, length, &mr))
}

/// Makes the C structure of a new region that the context owns.
pub fn owned_ibv_mr(
    (pd, domain): (*mut ibv_pd, Domain),
    context: &Context,
    addr: *mut c_void,
    length: usize,
    mr: &Mr,
) -> *mut ibv_mr {
    context.objects().mrs.insert(mr.lkey);
    to_ibv_mr((pd, domain), addr, length, mr)
}

/// Makes the C structure of a region. The handle is the key, so other contexts of the device find
/// the region by the handle.
pub fn to_ibv_mr(
    (pd, domain): (*mut ibv_pd, Domain),
    addr: *mut c_void,
    length: usize,
    mr: &Mr,
) -> *mut ibv_mr {
    let (lkey, rkey) = (mr.lkey.0, mr.rkey.value());
    handle_registry::into_raw(Box::new(ibv_mr {
        context: domain.context,
        pd,
        addr,
        length,
        handle: lkey,
        lkey,
        rkey,
    }))
}

/// `ibv_reg_mr`
pub unsafe extern "C" fn reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    let iova = addr.addr() as u64;
    // SAFETY: the ABI's contract.
    ffi::return_ptr("ibv_reg_mr", || unsafe {
        register(pd, addr, length, iova, access.cast_unsigned())
    })
}

/// `ibv_reg_mr_iova`
pub unsafe extern "C" fn reg_mr_iova(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the ABI's contract.
    ffi::return_ptr("ibv_reg_mr_iova", || unsafe {
        register(pd, addr, length, iova, access.cast_unsigned())
    })
}

/// `ibv_reg_mr_iova2`. The header's `ibv_reg_mr` calls this function if the access flags are not
/// constant.
pub unsafe extern "C" fn reg_mr_iova2(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: u32,
) -> *mut ibv_mr {
    // SAFETY: the ABI's contract.
    ffi::return_ptr("ibv_reg_mr", || unsafe { register(pd, addr, length, iova, access) })
}

/// `ibv_reg_dmabuf_mr`: not supported, because a process cannot access memory of other devices.
pub unsafe extern "C" fn reg_dmabuf_mr(
    _pd: *mut ibv_pd,
    _offset: u64,
    _length: usize,
    _iova: u64,
    _fd: c_int,
    _access: c_int,
) -> *mut ibv_mr {
    ffi::return_ptr("ibv_reg_dmabuf_mr", || Err(VerbError::Unsupported("registering a dma-buf")))
}

/// `ibv_rereg_mr`: returns 0, or the number of the step that failed.
pub unsafe extern "C" fn rereg_mr(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    ffi::catch_panic(REREG_FAILED, || {
        // SAFETY: the ABI's contract.
        let read = unsafe { change(flags, pd, addr, length, access.cast_unsigned()) };
        let (change, domain) = match read {
            Ok(read) => read,
            Err(error) => {
                ffi::log_and_set_errno("ibv_rereg_mr", &error);
                return REREG_INPUT;
            }
        };
        // SAFETY: the ABI's contract, and the requirements of ibv_rereg_mr(3) on the memory.
        match unsafe { reregister(mr, pd, domain, &change) } {
            Ok(()) => 0,
            Err(error) => {
                ffi::log_and_set_errno("ibv_rereg_mr", &error);
                REREG_FAILED
            }
        }
    })
}

/// Reads the arguments that the flags select and ignores the others. Also returns the domain that
/// the region moves to, and the context of the domain.
///
/// # Safety
/// The ABI's contract.
unsafe fn change<'a>(
    flags: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: u32,
) -> Result<(Change, Option<OwnedDomain<'a>>), VerbError> {
    let flags = flags.cast_unsigned();
    let has = |bit| flags & bit != 0;
    if flags & !(TRANSLATION | PD | ACCESS) != 0 {
        let allowed = "IBV_REREG_MR_CHANGE_TRANSLATION (1), _PD (2) and _ACCESS (4) are allowed";
        return Err(VerbError::value("flags", flags, allowed));
    }
    if has(TRANSLATION) && (addr.is_null() || length == 0) {
        return Err(VerbError::Null("addr, or length,"));
    }
    if access != 0 && !has(ACCESS) {
        let allowed = "without IBV_REREG_MR_CHANGE_ACCESS it must be 0";
        return Err(VerbError::value("access", access, allowed));
    }
    // SAFETY: the ABI's contract.
    let domain = has(PD).then(|| unsafe { Domain::from_c(pd) }).transpose()?;
    let iova = addr.addr() as u64;
    let change = Change {
        translation: has(TRANSLATION).then_some(Translation {
            addr: addr.cast(),
            len: length,
            iova,
        }),
        pd: domain.map(|(domain, _)| domain.memory),
        access: has(ACCESS).then_some(Access::from_bits_retain(access)),
    };
    Ok((change, domain))
}

/// Changes a region and its structure. `domain` is the domain that the region moves to, and the
/// context of the domain.
///
/// # Safety
/// The ABI's contract, and the requirements of `urxe_stack::memory::Memory::reregister` on the
/// memory.
unsafe fn reregister(
    mr: *mut ibv_mr,
    pd: *mut ibv_pd,
    domain: Option<OwnedDomain<'_>>,
    change: &Change,
) -> Result<(), VerbError> {
    // SAFETY: the ABI's contract.
    let (_, context) = unsafe { ibv_mr::from_c(mr) }?;
    // SAFETY: the structure is valid, and no other thread uses it during the call.
    let region = unsafe { &mut *mr };
    let mut held = None;
    if let Some((domain, owner)) = domain {
        context.check_owner("pd", owner)?;
        held = Some(domain.hold(context)?);
    }
    // SAFETY: as for a registration, the memory belongs to the C program, has no Rust reference,
    // and stays mapped until the deregistration.
    let changed = unsafe { context.device().memory().reregister(Lkey(region.lkey), change) }?;
    if let Some(Translation { addr, len, .. }) = change.translation {
        region.addr = addr.cast();
        region.length = len;
    }
    if held.is_some() {
        region.pd = pd;
    }
    region.lkey = changed.lkey.0;
    region.rkey = changed.rkey.value();
    Ok(())
}

/// `ibv_advise_mr`, through `verbs_context`. The advice takes effect at once, with or without
/// `IBV_ADVISE_MR_FLAG_FLUSH`.
pub unsafe extern "C" fn advise_mr(
    pd: *mut ibv_pd,
    advice: c_int,
    flags: u32,
    list: *mut ibv_sge,
    count: u32,
) -> c_int {
    ffi::return_errno("ibv_advise_mr", || {
        // SAFETY: the ABI's contract.
        let (domain, context) = unsafe { Domain::from_c(pd) }?;
        let advice = match advice {
            0 => Advice::Prefetch,
            1 => Advice::PrefetchWrite,
            2 => Advice::PrefetchNoFault,
            _ => return Err(VerbError::Unsupported("this advice")),
        };
        check_bits("flags", flags.into(), ADVISE_FLUSH.into())?;
        if list.is_null() && count != 0 {
            return Err(VerbError::Null("sg_list"));
        }
        // SAFETY: the ABI's contract: so many entries.
        let ranges = (0..count as usize).map(|index| unsafe { *list.add(index) });
        let ranges = allocate::collected(ranges.map(|sge| AdviseRange {
            addr: sge.addr,
            len: sge.length.into(),
            lkey: Lkey(sge.lkey),
        }))?;
        Ok(context.device().memory().advise(domain.memory, advice, &ranges)?)
    })
}

/// `ibv_dereg_mr`: on return, no peer accesses the memory any more.
pub unsafe extern "C" fn dereg_mr(mr: *mut ibv_mr) -> c_int {
    let end = |object: &ibv_mr, context: &Context| {
        let lkey = Lkey(object.lkey);
        context.device().memory().deregister(lkey)?;
        context.objects().mrs.remove(&lkey);
        Ok(())
    };
    // SAFETY: the ABI's contract.
    unsafe { ibv_mr::destroy("ibv_dereg_mr", mr, end) }
}

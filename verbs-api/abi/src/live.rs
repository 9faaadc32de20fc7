//! Which structures programs hold. A handle that was destroyed already, or whose context was
//! closed, is refused before anything is read from it, as far as that can be told: an address may
//! have been given to a newer object of the same kind.
//!
//! The data path does not look here, and a forked child knows of nothing that it inherited: there,
//! what is not known is let pass.

use std::any::{TypeId, type_name};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use urxe_stack::sys::fork::PerProcess;

use crate::error::VerbError;
use crate::node::lock;

/// By address. An ordered map, whose memory valgrind finds.
type Known = Mutex<BTreeMap<usize, TypeId>>;

static LIVE: PerProcess<Live> = PerProcess::new(Live::new);
/// The process that handed out the first one.
static FIRST: AtomicU32 = AtomicU32::new(0);

struct Live {
    known: Known,
    /// It began with structures that are not known here.
    is_child: bool,
}

impl Live {
    fn new() -> Self {
        let own = std::process::id();
        let first = FIRST.compare_exchange(0, own, Ordering::Relaxed, Ordering::Relaxed);
        Self { known: Known::default(), is_child: first.is_err_and(|first| first != own) }
    }
}

/// Hands `object` to the program.
pub fn hand_out<T: 'static>(object: Box<T>) -> *mut T {
    let made = Box::into_raw(object);
    lock(&LIVE.get().known).insert(made.addr(), TypeId::of::<T>());
    made
}

/// Refuses what was not handed out, or was taken back. NULL is for the caller to refuse.
pub fn check<T: 'static>(object: *const T) -> Result<(), VerbError> {
    let live = LIVE.get();
    let known = lock(&live.known).get(&object.addr()).copied();
    match known {
        Some(kind) if kind == TypeId::of::<T>() => Ok(()),
        None if live.is_child => Ok(()),
        _ => {
            Err(VerbError::Gone { what: type_name::<T>().rsplit("::").next().unwrap_or_default() })
        }
    }
}

/// Takes an object back, which is dropped.
///
/// # Safety
/// It is from [`hand_out`], and nobody uses it any more.
pub unsafe fn take_back<T: 'static>(object: *mut T) {
    lock(&LIVE.get().known).remove(&object.addr());
    // SAFETY: made by Box::into_raw in `hand_out`, and the program does not use it again.
    drop(unsafe { Box::from_raw(object) });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_there_and_of_its_kind_passes() {
        let made = hand_out(Box::new(5_u64));
        assert!(check(made).is_ok());
        assert!(check(made.cast::<i64>()).is_err());
        assert!(check(made.wrapping_add(1)).is_err());
        // SAFETY: nobody else knows of it.
        unsafe { take_back(made) };
        assert!(check(made).is_err());
    }
}

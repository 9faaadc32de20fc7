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

use urxe_stack::sync::lock;
use urxe_stack::sys::fork::PerProcess;

use crate::error::VerbError;

/// By address. An ordered map, whose memory valgrind finds.
type Known = Mutex<BTreeMap<usize, TypeId>>;

static REGISTRY: PerProcess<Registry> = PerProcess::new(Registry::new);
/// The process that handed out the first one.
static FIRST: AtomicU32 = AtomicU32::new(0);

struct Registry {
    known: Known,
    /// It began with structures that are not known here.
    is_child: bool,
}

impl Registry {
    fn new() -> Self {
        let own = std::process::id();
        let first = FIRST.compare_exchange(0, own, Ordering::Relaxed, Ordering::Relaxed);
        Self { known: Known::default(), is_child: first.is_err_and(|first| first != own) }
    }
}

/// Hands `object` to the program.
pub fn into_raw<T: 'static>(object: Box<T>) -> *mut T {
    let made = Box::into_raw(object);
    lock(&REGISTRY.get().known).insert(made.addr(), TypeId::of::<T>());
    made
}

/// Refuses what was not handed out, or was taken back. NULL is for the caller to refuse.
pub fn check<T: 'static>(object: *const T) -> Result<(), VerbError> {
    let registry = REGISTRY.get();
    let known = lock(&registry.known).get(&object.addr()).copied();
    match known {
        Some(kind) if kind == TypeId::of::<T>() => Ok(()),
        None if registry.is_child => Ok(()),
        _ => {
            Err(VerbError::Gone { what: type_name::<T>().rsplit("::").next().unwrap_or_default() })
        }
    }
}

/// Takes an object back, which is dropped.
///
/// # Safety
/// It is from [`into_raw`], and nobody uses it any more.
pub unsafe fn from_raw<T: 'static>(object: *mut T) -> Box<T> {
    lock(&REGISTRY.get().known).remove(&object.addr());
    // SAFETY: made by Box::into_raw in `into_raw`, and the program does not use it again.
    unsafe { Box::from_raw(object) }
}

/// Says that `$object` is what stands behind a `*mut $c`, its first field, and makes the functions
/// that find and end it. `@plain`: the structure is all there is of the object.
macro_rules! object {
    ($visibility:vis $object:ty, $c:ty, $name:literal) => {
        const _: () = assert!(std::mem::offset_of!($object, c) == 0, "what C sees stands in front");

        $crate::handle_registry::object!(@plain $visibility $object, $c, $name);
    };
    (@plain $visibility:vis $object:ty, $c:ty, $name:literal) => {
        #[allow(dead_code, reason = "not every object needs every function")]
        impl $object {
            #[doc = concat!("The object that a program means by its `", stringify!($c), "`, and its context.")]
            /// What is not there (any more) is refused.
            ///
            /// # Safety
            /// The ABI's contract: the pointer is NULL, or from the verb that makes such objects
            /// and not destroyed while the result is used.
            $visibility unsafe fn from_c<'a>(
                c: *mut $c,
            ) -> Result<(&'a Self, &'a $crate::context::Context), $crate::error::VerbError> {
                if !c.is_null() {
                    $crate::handle_registry::check(c.cast::<Self>())?;
                    // SAFETY: it is there, and its context is the first field of it.
                    let context = unsafe { (*c).context };
                    $crate::handle_registry::check($crate::context::Context::container_of(context))?;
                }
                // SAFETY: the caller's.
                unsafe { Self::from_c_unchecked(c) }
            }

            /// The same where each nanosecond counts: nothing is refused but NULL.
            ///
            /// # Safety
            /// As [`from_c`](Self::from_c).
            $visibility unsafe fn from_c_unchecked<'a>(
                c: *mut $c,
            ) -> Result<(&'a Self, &'a $crate::context::Context), $crate::error::VerbError> {
                // SAFETY: by the contract it is the first field of such an object, whose Rust
                // fields are shared and whose context is open. The field is read in place: the
                // program may write others of its structure meanwhile.
                unsafe {
                    let object = c.cast::<Self>().as_ref().ok_or($crate::error::VerbError::Null($name))?;
                    Ok((object, $crate::context::Context::from_c_unchecked((*c).context)))
                }
            }

            /// The object that an argument `what` names, refused if it is of another context than
            /// `context`.
            ///
            /// # Safety
            /// As [`from_c`](Self::from_c).
            $visibility unsafe fn from_c_in<'a>(
                context: &$crate::context::Context,
                what: &'static str,
                c: *mut $c,
            ) -> Result<&'a Self, $crate::error::VerbError> {
                // SAFETY: the caller's.
                let (object, owner) = unsafe { Self::from_c(c) }?;
                context.check_owner(what, owner).map(|()| object)
            }

            /// Ends the object by `end`, for a verb that returns the error number, and takes it
            /// back from the program. What a forked child inherited stays.
            ///
            /// # Safety
            /// As [`from_c`](Self::from_c); if `end` succeeds, the program does not use the object
            /// again.
            $visibility unsafe fn destroy(
                verb: &'static str,
                c: *mut $c,
                end: impl FnOnce(&Self, &$crate::context::Context) -> Result<(), $crate::error::VerbError>,
            ) -> std::ffi::c_int {
                $crate::ffi::return_errno(verb, || {
                    // SAFETY: the caller's.
                    let (object, context) = unsafe { Self::from_c(c) }?;
                    if !context.is_inherited() {
                        end(object, context)?;
                        // SAFETY: handed out when it was made; the program does not use it again.
                        drop(unsafe { $crate::handle_registry::from_raw(c.cast::<Self>()) });
                    }
                    Ok(())
                })
            }
        }
    };
}
pub(crate) use object;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_there_and_of_its_kind_passes() {
        let made = into_raw(Box::new(5_u64));
        assert!(check(made).is_ok());
        assert!(check(made.cast::<i64>()).is_err());
        assert!(check(made.wrapping_add(1)).is_err());
        // SAFETY: nobody else knows of it.
        drop(unsafe { from_raw(made) });
        assert!(check(made).is_err());
    }
}

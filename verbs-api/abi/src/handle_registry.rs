//! The registry of the structures that programs have pointers to. Verbs refuse a pointer to a
//! destroyed object, or to an object of a closed context, before they read from it.
//!
//! The registry maps addresses to types. It cannot detect that an address now belongs to a newer
//! object of the same type. The data path does not use the registry. A forked child does not know
//! the objects that it inherited, so there unknown addresses are accepted.

use std::any::{TypeId, type_name};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use urxe_stack::sync::lock;
use urxe_stack::sys::fork::PerProcess;

use crate::error::VerbError;

/// Types by address. An ordered map, because valgrind finds pointers in its nodes.
type Known = Mutex<BTreeMap<usize, TypeId>>;

static REGISTRY: PerProcess<Registry> = PerProcess::new(Registry::new);
/// The process that created the first structure.
static FIRST: AtomicU32 = AtomicU32::new(0);

struct Registry {
    known: Known,
    /// Whether the process is a child of [`FIRST`], which may have inherited structures.
    is_child: bool,
}

impl Registry {
    fn new() -> Self {
        let own = std::process::id();
        let first = FIRST.compare_exchange(0, own, Ordering::Relaxed, Ordering::Relaxed);
        Self { known: Known::default(), is_child: first.is_err_and(|first| first != own) }
    }

    /// Fails unless the type that is `known` for the address of `object` is `T`.
    fn check_type<T: 'static>(
        &self,
        known: Option<TypeId>,
        _object: *const T,
    ) -> Result<(), VerbError> {
        match known {
            Some(kind) if kind == TypeId::of::<T>() => Ok(()),
            None if self.is_child => Ok(()),
            _ => Err(VerbError::Gone {
                what: type_name::<T>().rsplit("::").next().unwrap_or_default(),
            }),
        }
    }
}

/// Registers `object` and returns its address for the program.
pub fn into_raw<T: 'static>(object: Box<T>) -> *mut T {
    let made = Box::into_raw(object);
    lock(&REGISTRY.get().known).insert(made.addr(), TypeId::of::<T>());
    made
}

/// Fails for an address that is not registered with this type. The caller refuses NULL.
pub fn check<T: 'static>(object: *const T) -> Result<(), VerbError> {
    let registry = REGISTRY.get();
    let known = lock(&registry.known).get(&object.addr()).copied();
    registry.check_type(known, object)
}

/// Reads from a registered object. No other thread destroys the object during the call, so `read`
/// may take what a call needs that must outlast the object. `read` must not use the registry.
///
/// # Safety
/// In a forked child, `object` is NULL or an inherited object.
pub unsafe fn read<T: 'static, R>(
    object: *const T,
    name: &'static str,
    read: impl FnOnce(&T) -> R,
) -> Result<R, VerbError> {
    let registry = REGISTRY.get();
    let known = lock(&registry.known);
    registry.check_type(known.get(&object.addr()).copied(), object)?;
    // SAFETY: the object is registered, and its removal takes the lock. In a child the caller's.
    let result = unsafe { object.as_ref() }.map(read);
    drop(known);
    result.ok_or(VerbError::Null(name))
}

/// Removes an object from the registry and returns it.
///
/// # Safety
/// `object` is from [`into_raw`], and is not used again.
pub unsafe fn from_raw<T: 'static>(object: *mut T) -> Box<T> {
    lock(&REGISTRY.get().known).remove(&object.addr());
    // SAFETY: `into_raw` made the pointer by Box::into_raw, and the caller does not use it again.
    unsafe { Box::from_raw(object) }
}

/// Implements the functions that find and destroy `$object` behind a `*mut $c`, which is its first
/// field. With `@plain`, the C structure is the whole object.
macro_rules! object {
    ($visibility:vis $object:ty, $c:ty, $name:literal) => {
        const _: () = assert!(std::mem::offset_of!($object, c) == 0, "c is the first field");

        $crate::handle_registry::object!(@plain $visibility $object, $c, $name);
    };
    (@plain $visibility:vis $object:ty, $c:ty, $name:literal) => {
        #[allow(dead_code, reason = "not every object needs every function")]
        impl $object {
            #[doc = concat!("Returns the object and context of an `", stringify!($c), "`.")]
            /// Fails for a pointer that is not in the registry.
            ///
            /// # Safety
            /// The ABI's contract: the pointer is NULL, or is from the verb that creates such
            /// objects, and the object is not destroyed while the result is used.
            $visibility unsafe fn from_c<'a>(
                c: *mut $c,
            ) -> Result<(&'a Self, &'a $crate::context::Context), $crate::error::VerbError> {
                if !c.is_null() {
                    $crate::handle_registry::check(c.cast::<Self>())?;
                    // SAFETY: the object exists, and its context is its first field.
                    let context = unsafe { (*c).context };
                    let container = $crate::context::Context::container_of(context);
                    $crate::handle_registry::check(container)?;
                }
                // SAFETY: the caller's.
                unsafe { Self::from_c_unchecked(c) }
            }

            /// Returns the same for the data path, where a look into the registry costs too much:
            /// only NULL is refused.
            ///
            /// # Safety
            /// As for [`from_c`](Self::from_c).
            $visibility unsafe fn from_c_unchecked<'a>(
                c: *mut $c,
            ) -> Result<(&'a Self, &'a $crate::context::Context), $crate::error::VerbError> {
                // SAFETY: by the contract the structure is the first field of such an object, whose
                // Rust fields are shared and whose context is open. The field is read in place,
                // because the program may write other fields of its structure meanwhile.
                unsafe {
                    let object = c.cast::<Self>().as_ref();
                    let object = object.ok_or($crate::error::VerbError::Null($name))?;
                    Ok((object, $crate::context::Context::from_c_unchecked((*c).context)))
                }
            }

            /// Returns the object behind the argument `what`. Fails if the object belongs to
            /// another context than `context`.
            ///
            /// # Safety
            /// As for [`from_c`](Self::from_c).
            $visibility unsafe fn from_c_in<'a>(
                context: &$crate::context::Context,
                what: &'static str,
                c: *mut $c,
            ) -> Result<&'a Self, $crate::error::VerbError> {
                // SAFETY: the caller's.
                let (object, owner) = unsafe { Self::from_c(c) }?;
                context.check_owner(what, owner).map(|()| object)
            }

            /// Destroys the object by `end`, for a verb that returns the error number, and removes
            /// it from the registry. In a forked child, an inherited object stays.
            ///
            /// # Safety
            /// As for [`from_c`](Self::from_c); if `end` succeeds, the program does not use the
            /// object again.
            $visibility unsafe fn destroy(
                verb: &'static str,
                c: *mut $c,
                end: impl FnOnce(
                    &Self,
                    &$crate::context::Context,
                ) -> Result<(), $crate::error::VerbError>,
            ) -> std::ffi::c_int {
                $crate::ffi::return_errno(verb, || {
                    // SAFETY: the caller's.
                    let (object, context) = unsafe { Self::from_c(c) }?;
                    if !context.is_inherited() {
                        end(object, context)?;
                        // SAFETY: the creating verb made the object by `into_raw`; the program does
                        // not use it again.
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
        // SAFETY: the test alone has the pointer.
        drop(unsafe { from_raw(made) });
        assert!(check(made).is_err());
    }
}

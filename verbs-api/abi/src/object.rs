//! The objects behind the structures that programs hold pointers to.

/// Says that `$object` is what stands behind a `*mut $c`, its first field, and makes the function
/// that finds it.
macro_rules! object {
    ($visibility:vis $object:ty, $c:ty, $name:literal) => {
        const _: () = assert!(std::mem::offset_of!($object, c) == 0, "what C sees stands in front");

        impl $object {
            #[doc = concat!("The object that a program means by its `", stringify!($c), "`, and its context. What is not there (any more) is")]
            /// refused.
            ///
            /// # Safety
            /// The ABI's contract: the pointer is NULL, or from the verb that makes such objects
            /// and not destroyed while the result is used.
            $visibility unsafe fn from_c<'a>(
                c: *mut $c,
            ) -> Result<(&'a Self, &'a $crate::context::Context), $crate::error::VerbError> {
                if !c.is_null() {
                    $crate::live::check(c.cast::<Self>())?;
                    // SAFETY: it is there, and its context is the first field of it.
                    $crate::live::check($crate::context::Context::around(unsafe { (*c).context }))?;
                }
                // SAFETY: the caller's.
                unsafe { Self::hot_c(c) }
            }

            /// The same where each nanosecond counts: nothing is refused but NULL.
            ///
            /// # Safety
            /// As [`from_c`](Self::from_c).
            $visibility unsafe fn hot_c<'a>(
                c: *mut $c,
            ) -> Result<(&'a Self, &'a $crate::context::Context), $crate::error::VerbError> {
                // SAFETY: by the contract it is the first field of such an object, whose Rust
                // fields are shared and whose context is open. The field is read in place: the
                // program may write others of its structure meanwhile.
                unsafe {
                    let object = c.cast::<Self>().as_ref().ok_or($crate::error::VerbError::Null($name))?;
                    Ok((object, $crate::context::Context::of_object((*c).context)))
                }
            }
        }
    };
}

pub(crate) use object;

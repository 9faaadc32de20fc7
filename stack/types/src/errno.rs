//! Errors that know the `errno` of the C libraries: one place a variant for message and number.

/// The numbers that variants of [`errors!`](crate::errors) can name.
pub mod numbers {
    pub use libc::{
        EACCES, EADDRINUSE, EADDRNOTAVAIL, EAFNOSUPPORT, EAGAIN, EBADF, EBUSY, ECONNABORTED,
        ECONNREFUSED, EDEADLK, EFAULT, EINVAL, EIO, EMFILE, ENFILE, ENOBUFS, ENODATA, ENODEV,
        ENOENT, ENOMEM, EOPNOTSUPP, EOVERFLOW, EPERM, ETIMEDOUT,
    };
}

/// An error that [`errors!`](crate::errors) defined.
pub trait ErrorNumber: std::error::Error {
    /// Returns the `errno` that the C libraries give for this, or else the nearest.
    fn errno(&self) -> i32;
}

/// Defines error enums whose variants state message and `errno` side by side.
///
/// Everything but the numbers goes to `thiserror`. The enum derives it itself, because the derived
/// code has to have the hygiene of the attributes. The enum gets a method `errno`. What follows a
/// variant decides its number:
///
/// - `= EINVAL`: an expression over [`numbers`](crate::errno::numbers) and the variant's named
///   fields, which are references.
/// - `=> |error| …`: an expression over the only field of a tuple variant.
/// - Nothing: the number of the error in the tuple variant, by its own `errno`.
///
/// The message is the first line of a variant's documentation, so that a comment adds only what the
/// message does not say. It names the fields, too, which therefore need no comments.
///
/// ```
/// use std::io;
///
/// urxe_types::errors! {
///     /// Why a table did not take an entry.
///     #[derive(Clone, Copy, Debug, thiserror::Error)]
///     pub enum EntryError {
///         #[error("all {max} entries are in use")]
///         Full { max: u32 } = ENOMEM,
///         /// Entry 0 is the device's own.
///         #[error("entry 0 cannot be set")]
///         Reserved = EPERM,
///     }
///
///     /// Why a table was not read.
///     #[derive(Debug, thiserror::Error)]
///     pub enum ReadError {
///         #[error(transparent)]
///         Entry(#[from] EntryError),
///         #[error("cannot read the table: {0}")]
///         File(#[from] io::Error) => |error| error.raw_os_error().unwrap_or(EIO),
///     }
/// }
///
/// assert_eq!(ReadError::from(EntryError::Full { max: 4 }).errno(), libc::ENOMEM);
/// assert_eq!(ReadError::from(io::Error::from_raw_os_error(libc::EISDIR)).errno(), libc::EISDIR);
/// assert_eq!(EntryError::Reserved.to_string(), "entry 0 cannot be set");
/// ```
#[macro_export]
macro_rules! errors {
    (@message transparent) => { "The error inside says it." };
    (@message $message:literal $($argument:tt)*) => { $message };

    (@pattern $error:ident $variant:ident) => { Self::$variant };
    (@pattern $error:ident $variant:ident { $($field:ident)* }) => { Self::$variant { $($field),* } };
    (@pattern $error:ident $variant:ident ($inner:ty)) => { Self::$variant($error) };
    (@pattern $error:ident $variant:ident ($inner:ty) $bound:ident) => { Self::$variant($bound) };

    (@number $error:ident) => { $error.errno() };
    (@number $error:ident $number:expr) => { $number };

    ($(
        $(#[$attribute:meta])*
        $visible:vis enum $name:ident {
            $(
                $(#[doc = $doc:literal])*
                #[error($($error:tt)*)]
                $variant:ident
                $({ $($(#[$named:meta])* $field:ident: $type:ty),* $(,)? })?
                $(($(#[$only:meta])* $inner:ty))?
                $(= $number:expr)?
                $(=> |$bound:ident| $of_bound:expr)?
            ),* $(,)?
        }
    )*) => {$(
        $(#[$attribute])*
        $visible enum $name {
            $(
                #[doc = $crate::errors!(@message $($error)*)]
                #[doc = ""]
                $(#[doc = $doc])*
                #[error($($error)*)]
                #[allow(missing_docs)]
                $variant
                $({ $($(#[$named])* $field: $type),* })?
                $(($(#[$only])* $inner))?,
            )*
        }

        impl $name {
            /// Returns the `errno` that the C libraries give for this, or else the nearest.
            #[must_use]
            #[allow(unused_imports, unused_variables)]
            $visible fn errno(&self) -> i32 {
                use $crate::errno::numbers::*;
                match self {
                    $($crate::errors!(
                        @pattern error $variant $({ $($field)* })? $(($inner))? $($bound)?
                    ) => $crate::errors!(@number error $($number)? $($of_bound)?),)*
                }
            }
        }

        impl $crate::errno::ErrorNumber for $name {
            fn errno(&self) -> i32 {
                Self::errno(self)
            }
        }
    )*};
}

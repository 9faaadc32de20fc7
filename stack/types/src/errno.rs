//! A macro for errors that state a message and an `errno` of the C libraries for each variant.

use std::fmt;
use std::io;

/// The numbers that a variant of [`errors!`](crate::errors) can use.
pub mod numbers {
    pub use libc::{
        EACCES, EADDRINUSE, EADDRNOTAVAIL, EAFNOSUPPORT, EAGAIN, EBADF, EBUSY, ECONNABORTED,
        ECONNREFUSED, EDEADLK, EFAULT, EINVAL, EIO, EMFILE, ENFILE, ENOBUFS, ENODATA, ENODEV,
        ENOENT, ENOMEM, EOPNOTSUPP, EOVERFLOW, EPERM, ETIMEDOUT,
    };
}

/// An error number of the system (`errno`), with the system's text.
///
/// ```
/// use urxe_types::errno::OsError;
///
/// let error = OsError::new(libc::EMFILE);
/// assert_eq!(error.to_string(), "Too many open files (os error 24)");
/// assert_eq!(std::io::Error::from(error).raw_os_error(), Some(libc::EMFILE));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct OsError(i32);

impl OsError {
    /// Returns the error of this number.
    #[must_use]
    pub const fn new(errno: i32) -> Self {
        Self(errno)
    }

    /// Returns the number of `error`, or `EIO` for an error that has none.
    pub fn of(error: impl Into<io::Error>) -> Self {
        Self(error.into().raw_os_error().unwrap_or(libc::EIO))
    }

    /// Returns the number, as [`std::io::Error::raw_os_error`] does.
    #[must_use]
    pub const fn raw_os_error(self) -> i32 {
        self.0
    }
}

impl fmt::Display for OsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        io::Error::from(*self).fmt(f)
    }
}

impl fmt::Debug for OsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OsError({self})")
    }
}

impl std::error::Error for OsError {}

impl From<OsError> for io::Error {
    fn from(error: OsError) -> Self {
        Self::from_raw_os_error(error.0)
    }
}

/// An error that [`errors!`](crate::errors) defined.
pub trait ErrorNumber: std::error::Error {
    /// Returns the `errno` of the C libraries for this error, or the closest one.
    fn errno(&self) -> i32;
}

/// Defines error enums whose variants state their message and their `errno`.
///
/// The macro passes everything except the numbers to `thiserror`. The caller writes the derive,
/// because the derived code needs the hygiene of the attributes. The macro adds a method `errno`.
/// It also adds `#[non_exhaustive]`, because later versions may have more reasons.
/// The text after a variant determines its number:
///
/// - `= EINVAL`: an expression that may use [`numbers`](crate::errno::numbers) and references to
///   the variant's named fields.
/// - `=> |error| …`: an expression that uses the only field of a tuple variant.
/// - Nothing: the `errno` of the error in the tuple variant.
///
/// The message becomes the first line of the variant's documentation. A comment needs to add only
/// facts that the message omits. Fields need no comments, because the message names them.
///
/// ```
/// use std::io;
///
/// urxe_types::errors! {
///     /// The reason why a table rejected an entry.
///     #[derive(Clone, Copy, Debug, thiserror::Error)]
///     pub enum EntryError {
///         #[error("all {max} entries are in use")]
///         Full { max: u32 } = ENOMEM,
///         /// The device uses entry 0.
///         #[error("entry 0 cannot be set")]
///         Reserved = EPERM,
///     }
///
///     /// The reason why a table cannot be read.
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
    (@message transparent) => { "The contained error." };
    (@message $message:literal $($argument:tt)*) => { $message };

    (@pattern $error:ident $variant:ident) => { Self::$variant };
    (@pattern $error:ident $variant:ident { $($field:ident)* }) => {
        Self::$variant { $($field),* }
    };
    (@pattern $error:ident $variant:ident ($inner:ty)) => { Self::$variant($error) };
    (@pattern $error:ident $variant:ident ($inner:ty) $bound:ident) => { Self::$variant($bound) };

    (@number $error:ident) => { $error.errno() };
    (@number $error:ident $number:expr) => { $number };

    ($(
        $(#[$attribute:meta])*
        $visible:vis enum $name:ident {
            $(
                $(#[doc = $doc:literal])*
                $(#[cfg($($only_if:tt)*)])?
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
        #[non_exhaustive]
        $visible enum $name {
            $(
                #[doc = $crate::errors!(@message $($error)*)]
                #[doc = ""]
                $(#[doc = $doc])*
                $(#[cfg($($only_if)*)])?
                #[error($($error)*)]
                #[allow(missing_docs)]
                $variant
                $({ $($(#[$named])* $field: $type),* })?
                $(($(#[$only])* $inner))?,
            )*
        }

        impl $name {
            /// Returns the `errno` of the C libraries for this error, or the closest one.
            #[must_use]
            #[allow(unused_imports, unused_variables)]
            $visible fn errno(&self) -> i32 {
                use $crate::errno::numbers::*;
                match self {
                    $($(#[cfg($($only_if)*)])? $crate::errors!(
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

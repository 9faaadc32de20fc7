//! Names of devices in errors.

use std::fmt;

/// The name of a device in an error, for example `rxe0=127.0.0.1`.
///
/// An error is copied, and posting a work request returns one, so a name is only a reference.
///
/// ```
/// use urxe_types::names::DeviceName;
///
/// let name = DeviceName::new("rxe0=127.0.0.1");
/// assert_eq!(name.as_str(), "rxe0=127.0.0.1");
/// assert_eq!(format!("[{name:>16}]"), "[  rxe0=127.0.0.1]");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeviceName(&'static str);

impl DeviceName {
    /// Returns the name `name`.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self(name)
    }

    /// Returns the name.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        self.0
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0)
    }
}

impl fmt::Debug for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

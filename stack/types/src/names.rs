//! Names of devices in errors.

use std::collections::BTreeSet;
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

    /// Returns the name `name`, and adds it to `all` if it is not there yet. Names stay until the
    /// process ends, because errors refer to them.
    ///
    /// ```
    /// use std::collections::BTreeSet;
    /// use urxe_types::names::DeviceName;
    ///
    /// let mut all = BTreeSet::new();
    /// let name = DeviceName::interned(&mut all, "rxe0");
    /// assert_eq!(DeviceName::interned(&mut all, "rxe0"), name);
    /// assert_eq!(all.len(), 1);
    /// ```
    pub fn interned(all: &mut BTreeSet<&'static str>, name: &str) -> Self {
        let known = all.get(name).copied();
        Self(known.unwrap_or_else(|| {
            let name: &'static str = Box::leak(name.into());
            all.insert(name);
            name
        }))
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

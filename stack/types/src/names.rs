//! Names of devices in errors.

use std::fmt;

/// The number of bytes of the longest name.
const MAX: usize = 47;
/// The end of a name that was cut.
const CUT: &str = "...";

/// The name of a device in an error, for example `rxe0=127.0.0.1`. A longer name than 47 bytes is
/// cut.
///
/// ```
/// use urxe_types::names::DeviceName;
///
/// assert_eq!(DeviceName::new("rxe0=127.0.0.1").to_string(), "rxe0=127.0.0.1");
/// let long = DeviceName::new(&"é".repeat(24));
/// assert_eq!(long.as_str(), "é".repeat(22) + "...");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeviceName {
    bytes: [u8; MAX],
    len: u8,
}

impl DeviceName {
    /// Returns the name `name`.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let mut this = Self { bytes: [0; MAX], len: 0 };
        if name.len() <= MAX {
            this.push(name);
        } else {
            this.push(&name[..name.floor_char_boundary(MAX - CUT.len())]);
            this.push(CUT);
        }
        this
    }

    /// Appends text that fits.
    fn push(&mut self, text: &str) {
        let start = usize::from(self.len);
        self.bytes[start..start + text.len()].copy_from_slice(text.as_bytes());
        self.len += text.len() as u8;
    }

    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or_default()
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

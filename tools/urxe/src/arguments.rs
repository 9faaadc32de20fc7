//! Argument types that several subcommands share.

use std::fmt;
use std::str::FromStr;

use urxe::PathMtu;

/// Parses `--mtu`.
pub fn path_mtu(text: &str) -> Result<PathMtu, &'static str> {
    let mtu = text.parse().ok().and_then(PathMtu::at_most).filter(|mtu| mtu.to_string() == text);
    mtu.ok_or("a path MTU is 256, 512, 1024, 2048 or 4096")
}

/// A number of bytes as a user writes it: `64`, `4K`, `1M`; from 1 to [`Size::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(usize);

impl Size {
    /// The largest size in bytes.
    pub const MAX: usize = 256 << 20;

    /// Returns a size of this many bytes.
    pub const fn from_bytes(bytes: usize) -> Self {
        Self(bytes)
    }

    /// Returns the size in bytes.
    pub const fn bytes(self) -> usize {
        self.0
    }
}

/// A text that is no [`Size`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a size is a number of bytes from 1 to {}, as in 64, 4K or 1M", Size(Size::MAX))]
pub struct NotASize;

impl FromStr for Size {
    type Err = NotASize;

    fn from_str(text: &str) -> Result<Self, NotASize> {
        let (digits, unit) = match text.char_indices().last() {
            Some((at, 'k' | 'K')) => (&text[..at], 1 << 10),
            Some((at, 'm' | 'M')) => (&text[..at], 1 << 20),
            _ => (text, 1),
        };
        let number: usize = digits.parse().map_err(|_| NotASize)?;
        let bytes = number.checked_mul(unit).ok_or(NotASize)?;
        if (1..=Self::MAX).contains(&bytes) { Ok(Self(bytes)) } else { Err(NotASize) }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => {
                write!(f, "{} MiB", bytes >> 20)
            }
            bytes if bytes >= 1 << 10 && bytes.is_multiple_of(1 << 10) => {
                write!(f, "{} KiB", bytes >> 10)
            }
            bytes => write!(f, "{bytes} B"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{NotASize, Size};

    #[test]
    fn sizes_as_people_write_them() {
        for (text, bytes, shown) in [
            ("1", 1, "1 B"),
            ("1500", 1500, "1500 B"),
            ("4096", 4096, "4 KiB"),
            ("64k", 64 << 10, "64 KiB"),
            ("3M", 3 << 20, "3 MiB"),
            ("1025K", 1025 << 10, "1025 KiB"),
        ] {
            let size: Size = text.parse().unwrap();
            assert_eq!((size.bytes(), size.to_string().as_str()), (bytes, shown));
        }
        for wrong in
            ["", "0", "K", "-1", "1G", "257M", "99999999999999999999", "18014398509481985K", "4 K"]
        {
            assert_eq!(wrong.parse::<Size>(), Err(NotASize), "{wrong}");
        }
    }
}

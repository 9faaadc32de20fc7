//! The copies of this library in the processes of an address: their versions and files.
//!
//! A package, a Python wheel and a build may each have a copy, of different versions. A process
//! describes its copy to any process that asks for something that the copy does not know:
//!
//! ```text
//!  0     1         2
//! +-----+---------+-----------------+---+---------------------
//! | 'V' | version | library version | 0 | path of the library
//! |     | of the  |                 |   |
//! |     | protocol|                 |   |
//! +-----+---------+-----------------+---+---------------------
//! ```

use std::fmt;

use urxe_types::escape::Escaped;

/// The version of the protocol between the processes of an address.
pub(crate) const PROTOCOL: u8 = 1;
/// The first byte of a description, and of the request for it.
pub(crate) const LIBRARY: u8 = b'V';
/// The most bytes of a description: the longest path (PATH_MAX) and some more.
pub(crate) const MAX_DESCRIPTION: usize = 4096 + 64;

/// A copy of this library in a process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LibraryCopy {
    /// The version of the protocol between the processes of an address.
    pub protocol: u8,
    /// The version of the library, such as `0.1.0`.
    pub version: String,
    /// The path of the library or of the program that contains it; empty if unknown.
    pub path: String,
}

impl LibraryCopy {
    /// Returns the copy that this function belongs to.
    #[must_use]
    pub fn own() -> Self {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let path = file_of(&maps, Self::own as *const () as usize).unwrap_or_default();
        Self {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            path: path.into(),
        }
    }

    /// Returns a copy that does not describe itself.
    pub(crate) fn unknown() -> Self {
        Self { protocol: 0, version: String::new(), path: String::new() }
    }

    /// Returns the description for another process.
    pub(crate) fn message(&self) -> Vec<u8> {
        let text = format!("{}\0{}", self.version, self.path);
        let mut message = vec![LIBRARY, self.protocol];
        message.extend(text.bytes().take(MAX_DESCRIPTION - message.len()));
        message
    }

    /// Parses a description; `None` if it is another message.
    pub(crate) fn parse(message: &[u8]) -> Option<Self> {
        let ([LIBRARY, protocol], text) = message.split_first_chunk()? else { return None };
        let text = String::from_utf8_lossy(text);
        let (version, path) = text.split_once('\0')?;
        Some(Self { protocol: *protocol, version: version.to_owned(), path: path.to_owned() })
    }
}

impl fmt::Display for LibraryCopy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = |text: &str| match text {
            "" => "unknown".to_owned(),
            text => Escaped(text).to_string(),
        };
        let (version, path) = (known(&self.version), known(&self.path));
        write!(f, "version {version} (protocol {}) of {path}", self.protocol)
    }
}

/// Returns the file of the mapping with this address, from `/proc/self/maps` (proc(5)).
fn file_of(maps: &str, address: usize) -> Option<&str> {
    let has_it = |line: &&str| {
        let range = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
        let number = |text| usize::from_str_radix(text, 16).ok();
        let range = range.and_then(|(start, end)| Some(number(start)?..number(end)?));
        range.is_some_and(|range| range.contains(&address))
    };
    let line = maps.lines().find(has_it)?;
    line.find('/').map(|at| &line[at..])
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_parsed_as_it_was_made() {
        let own = LibraryCopy::own();
        assert_eq!(own.path, std::env::current_exe().unwrap().to_str().unwrap());
        assert_eq!(LibraryCopy::parse(&own.message()), Some(own.clone()));
        let long = LibraryCopy { path: "/x".repeat(10_000), ..own };
        assert_eq!(long.message().len(), MAX_DESCRIPTION);
        assert!(long.path.starts_with(&LibraryCopy::parse(&long.message()).unwrap().path));
        for wrong in [&b""[..], b"V", b"V\x01", b"V\x010.1.0", b"W\x010.1.0\0/x"] {
            assert_eq!(LibraryCopy::parse(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn the_text_of_another_process_is_escaped() {
        let copy = LibraryCopy::parse(b"V\x02\x1b[31m\0/tmp/\x07lib.so").unwrap();
        let text = "version \\u001b[31m (protocol 2) of /tmp/\\u0007lib.so";
        assert_eq!(copy.to_string(), text);
        let unknown = "version unknown (protocol 0) of unknown";
        assert_eq!(LibraryCopy::unknown().to_string(), unknown);
    }

    #[test]
    fn the_file_of_an_address_is_found_in_the_list_of_mappings() {
        let maps = "00400000-00452000 r-xp 00000000 08:02 173521      /usr/bin/with space\n\
                    7f00-8000 rw-p 00000000 00:00 0 \n";
        assert_eq!(file_of(maps, 0x40_0000), Some("/usr/bin/with space"));
        assert_eq!(file_of(maps, 0x45_2000), None);
        assert_eq!(file_of(maps, 0x7f00), None, "no file");
        assert_eq!(file_of("", 1), None);
    }
}

//! Formats of programs that the administrator added to the kernel, for emulators for example.
//!
//! Each file of the folder describes a format by a file name extension, or by the first bytes of a
//! file. Source: Linux, `Documentation/admin-guide/binfmt-misc.rst`.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

const FOLDER: &str = "/proc/sys/fs/binfmt_misc";
/// The kernel compares no later bytes (`BINPRM_BUF_SIZE`).
const START_LEN: usize = 256;

/// Returns whether the kernel has an interpreter for a file of another format.
pub fn has_handler(file: &File, path: &Path) -> bool {
    let Ok(entries) = fs::read_dir(FOLDER) else { return false };
    let mut start = [0; START_LEN];
    let len = file.read_at(&mut start, 0).unwrap_or(0);
    let extension = path.extension();
    entries
        .flatten()
        .filter_map(|entry| fs::read_to_string(entry.path()).ok())
        .any(|text| matches(&text, &start[..len], extension))
}

/// Returns whether the description of a format fits a file.
fn matches(text: &str, start: &[u8], extension: Option<&OsStr>) -> bool {
    if text.lines().next() != Some("enabled") {
        return false;
    }
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
    if let Some(wanted) = value("extension .") {
        return extension == Some(OsStr::new(wanted));
    }
    let Some(magic) = value("magic ").and_then(bytes) else { return false };
    let offset = value("offset ").and_then(|offset| offset.parse::<usize>().ok()).unwrap_or(0);
    let mask = value("mask ").and_then(bytes).unwrap_or_default();
    let Some(found) = start.get(offset..).and_then(|found| found.get(..magic.len())) else {
        return false;
    };
    (0..magic.len()).all(|at| {
        let mask = mask.get(at).copied().unwrap_or(0xff);
        (found[at] ^ magic[at]) & mask == 0
    })
}

/// Returns the bytes of hexadecimal digits.
fn bytes(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2).map(|pair| str::from_utf8(pair).ok());
    pairs.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RISCV: &str = "enabled\ninterpreter /usr/bin/qemu-riscv64-static\nflags: OCF\noffset 0\n\
                         magic 7f454c46020101\nmask ffffffffff00ff\n";

    #[test]
    fn a_format_is_known_by_its_first_bytes_or_by_its_extension() {
        let start = b"\x7fELF\x02\x01\x01";
        assert!(matches(RISCV, start, None));
        assert!(matches(RISCV, b"\x7fELF\x02\xee\x01 and more", None), "masked");
        assert!(!matches(RISCV, b"\x7fELF\x01\x01\x01", None));
        assert!(!matches(RISCV, b"\x7fELF", None), "too short");
        assert!(!matches(&RISCV.replace("enabled", "disabled"), start, None));
        assert!(matches(&RISCV.replace("offset 0", "offset 2"), b"..\x7fELF\x02\x01\x01", None));
        let jar = "enabled\ninterpreter /usr/bin/jexec\nflags:\nextension .jar\n";
        assert!(matches(jar, b"PK", Some(OsStr::new("jar"))));
        assert!(!matches(jar, b"PK", Some(OsStr::new("zip"))) && !matches(jar, b"PK", None));
        assert!(!matches("enabled\n", start, None), "the file status");
    }
}

//! Notes for `urxe run` that this process called the library, and that it opened a device.
//!
//! `urxe run` creates a file and names it in `URXE_REPORT`. Each process of the run appends a byte
//! for each fact, and keeps no descriptor. At the end of the run, `liburxe_sysfs.so` reads the file
//! (`verbs-api/sysfs/src/report.rs`). A file that cannot be written, for example by another user,
//! only makes the note at the end wrong.

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Mode, OFlags, open};
use urxe_stack::sys::environment::value;

/// Names the file.
const VARIABLE: &str = "URXE_REPORT";

/// A fact that is noted once for a process and its forked children.
pub struct Fact {
    byte: u8,
    is_noted: AtomicBool,
}

/// The process listed devices.
pub static LOADED: Fact = Fact::new(b'l');
/// The process opened a device.
pub static OPENED: Fact = Fact::new(b'd');

impl Fact {
    const fn new(byte: u8) -> Self {
        Self { byte, is_noted: AtomicBool::new(false) }
    }

    /// Appends the byte to the file, unless that was done before.
    pub fn note(&self) {
        if self.is_noted.swap(true, Ordering::Relaxed) {
            return;
        }
        let Some(path) = value(VARIABLE) else { return };
        // After the end of the run, there is no file.
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        if let Ok(file) = open(path, flags, Mode::empty()) {
            let _another_fact_may_be_missing = rustix::io::write(file, &[self.byte]);
        }
    }
}

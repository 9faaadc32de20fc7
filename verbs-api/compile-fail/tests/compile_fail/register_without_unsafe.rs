//! Registering memory of the program is unsafe.
use std::ptr::NonNull;

use urxe::{Access, ProtectionDomain};

fn register(pd: &ProtectionDomain, bytes: &mut [u8]) {
    let addr = NonNull::from(&mut bytes[0]);
    let _ = pd.register(addr, bytes.len(), 0, Access::LOCAL_WRITE);
}

fn main() {}

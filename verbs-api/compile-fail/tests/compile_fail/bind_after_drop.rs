//! A window cannot be bound to a slice of a dropped region.
use urxe::{Access, MemoryWindow, ProtectionDomain, SendRequest};

fn bind(pd: &ProtectionDomain, window: &mut MemoryWindow) {
    let region = pd.allocate(4096, Access::LOCAL_WRITE | Access::MW_BIND).unwrap();
    let part = region.slice(..64).unwrap();
    drop(region);
    let _ = SendRequest::bind(window, part, Access::REMOTE_READ);
}

fn main() {}

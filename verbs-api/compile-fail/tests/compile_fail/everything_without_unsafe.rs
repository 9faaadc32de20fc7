//! A slice of the whole address space is unsafe.
use std::ptr::NonNull;
use urxe::{ProtectionDomain, SendRequest};

fn send(pd: &ProtectionDomain, addr: NonNull<u8>) {
    let everything = pd.local_dma_key().unwrap();
    let _ = SendRequest::send(everything.slice(addr, 8));
}

fn main() {}

//! A slice of the whole address space is unsafe.
use std::ptr::NonNull;
use urxe::{AddressSpace, SendRequest};

fn send(everything: &AddressSpace, addr: NonNull<u8>) {
    let _ = SendRequest::send(everything.slice(addr, 8));
}

fn main() {}

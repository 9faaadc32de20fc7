//! The addresses of interfaces as libfabric gets them.
//!
//! libfabric connects only over addresses that getifaddrs(3) lists without `IFF_LOOPBACK`
//! (`vrb_getifaddrs` in `prov/verbs/src/verbs_info.c`, versions 1.17 to 2.6). The default device is
//! on 127.0.0.1, so libfabric would offer it for datagrams only. Nothing that `liburxe.so` returns
//! changes this: libfabric first takes the addresses, then asks librdmacm for the device of each.
//!
//! ```text
//!   libfabric ── getifaddrs ──> libc: lo 127.0.0.1 LOOPBACK, eth0 10.0.0.1
//!                               + lo 127.0.0.1 (without the flag), for each device on loopback
//!   every other caller ───────> libc's list, unchanged
//! ```
//!
//! The additional entries stand at the end, so that providers of libfabric that prefer the first
//! address (tcp) choose as before.

use std::arch::naked_asm;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::OnceLock;

use libc::{ifaddrs, sockaddr, sockaddr_in, sockaddr_in6};

use crate::calls::next;
use crate::view;

/// Replaces the function of the C library. The function passes its return address on, by which
/// [`list_for`] finds the caller's library.
///
/// # Safety
/// As getifaddrs(3).
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn getifaddrs(list: *mut *mut ifaddrs) -> c_int {
    naked_asm!("mov rsi, [rsp]", "jmp {}", sym list_for)
}

/// As above.
///
/// # Safety
/// As getifaddrs(3).
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn getifaddrs(list: *mut *mut ifaddrs) -> c_int {
    naked_asm!("mov x1, x30", "b {}", sym list_for)
}

/// Calls the C library's getifaddrs(3), and adds the devices on loopback if the return address
/// `caller` is in libfabric.
///
/// # Safety
/// As getifaddrs(3).
unsafe extern "C" fn list_for(list: *mut *mut ifaddrs, caller: *const c_void) -> c_int {
    let result = next!(getifaddrs(list: *mut *mut ifaddrs) -> c_int);
    // SAFETY: the address is the caller's.
    if result != 0 || !unsafe { is_in_libfabric(caller) } {
        return result;
    }
    let Some(added) = added() else { return result };
    // SAFETY: the call succeeded, so `list` holds a list that is the caller's, or NULL.
    unsafe {
        let mut last = *list;
        // The caller frees the list, whose first entry must be the C library's.
        if last.is_null() {
            return result;
        }
        while !(*last).ifa_next.is_null() {
            last = (*last).ifa_next;
        }
        // freeifaddrs(3) of glibc frees the block of the first entry, which holds all of its
        // entries. The added entries are never freed.
        (*last).ifa_next = added;
    }
    result
}

/// Returns whether the code at `address` is libfabric's or that of a provider that libfabric loads.
///
/// # Safety
/// None: the function looks the address up and does not read there.
unsafe fn is_in_libfabric(address: *const c_void) -> bool {
    let mut found = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the place is as large as the structure.
    if unsafe { libc::dladdr(address, found.as_mut_ptr()) } == 0 {
        return false;
    }
    // SAFETY: all zeros are valid, and the call has filled the structure.
    let file = unsafe { found.assume_init() }.dli_fname;
    if file.is_null() {
        return false;
    }
    // SAFETY: the name ends with a zero and stays as long as the caller's library.
    is_libfabric(unsafe { CStr::from_ptr(file) }.to_bytes())
}

/// Returns whether a file is libfabric or one of its providers (`libverbs-fi.so`). Packages of
/// Python add a checksum to the name.
fn is_libfabric(file: &[u8]) -> bool {
    let name = Path::new(OsStr::from_bytes(file)).file_name().unwrap_or_default().as_bytes();
    name.starts_with(b"libfabric") || name.ends_with(b"-fi.so")
}

/// The first of the added entries.
struct Added(*mut ifaddrs);

// SAFETY: the entries are never freed and never changed.
unsafe impl Send for Added {}
// SAFETY: as above.
unsafe impl Sync for Added {}

/// Returns the entries for the devices' addresses on loopback, if there are any.
fn added() -> Option<*mut ifaddrs> {
    static ADDED: OnceLock<Option<Added>> = OnceLock::new();
    let added = ADDED.get_or_init(|| {
        let mut addresses: Vec<(IpAddr, String)> = Vec::new();
        for device in view::names() {
            for (address, interface) in view::addresses(&device) {
                if address.is_loopback() && addresses.iter().all(|(other, _)| *other != address) {
                    addresses.push((address, interface));
                }
            }
        }
        let mut first = ptr::null_mut();
        for (address, interface) in addresses.into_iter().rev() {
            first = entry(address, CString::new(interface).ok()?, first);
        }
        (!first.is_null()).then_some(Added(first))
    });
    added.as_ref().map(|added| added.0)
}

/// Allocates an entry before `next`.
fn entry(address: IpAddr, interface: CString, next: *mut ifaddrs) -> *mut ifaddrs {
    let entry = ifaddrs {
        ifa_next: next,
        ifa_name: interface.into_raw().cast::<c_char>(),
        ifa_flags: (libc::IFF_UP | libc::IFF_RUNNING).cast_unsigned(),
        ifa_addr: socket_address(address),
        ifa_netmask: socket_address(match address {
            IpAddr::V4(_) => [255, 0, 0, 0].into(),
            IpAddr::V6(_) => [255; 16].into(),
        }),
        ifa_ifu: ptr::null_mut(),
        ifa_data: ptr::null_mut(),
    };
    Box::into_raw(Box::new(entry))
}

/// Allocates a socket address.
fn socket_address(address: IpAddr) -> *mut sockaddr {
    match address {
        IpAddr::V4(address) => {
            // SAFETY: all zeros are valid.
            let mut v4: sockaddr_in = unsafe { MaybeUninit::zeroed().assume_init() };
            v4.sin_family = libc::AF_INET as libc::sa_family_t;
            v4.sin_addr.s_addr = u32::from_ne_bytes(address.octets());
            Box::into_raw(Box::new(v4)).cast()
        }
        IpAddr::V6(address) => {
            // SAFETY: all zeros are valid.
            let mut v6: sockaddr_in6 = unsafe { MaybeUninit::zeroed().assume_init() };
            v6.sin6_family = libc::AF_INET6 as libc::sa_family_t;
            v6.sin6_addr.s6_addr = address.octets();
            Box::into_raw(Box::new(v6)).cast()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_libfabric() {
        for (file, expected) in [
            ("/usr/lib/x86_64-linux-gnu/libfabric.so.1", true),
            ("/x/mpich.libs/libfabric-0a1b2c3d.so.1.28.0", true),
            ("/opt/libfabric/libverbs-1.1-fi.so", true),
            ("/opt/libfabric/bin/program", false),
            ("/usr/lib/x86_64-linux-gnu/libucs.so.0", false),
            ("", false),
        ] {
            assert_eq!(is_libfabric(file.as_bytes()), expected, "{file}");
        }
    }

    #[test]
    fn an_entry_has_no_loopback_flag() {
        let made = entry("127.0.0.2".parse().unwrap(), c"lo".to_owned(), ptr::null_mut());
        // SAFETY: made above, of which nothing is freed.
        let made = unsafe { &*made };
        let up = libc::IFF_UP | libc::IFF_RUNNING;
        assert_eq!(made.ifa_flags.cast_signed() & (up | libc::IFF_LOOPBACK), up);
        // SAFETY: the entry has an IPv4 address.
        let address = unsafe { made.ifa_addr.cast::<sockaddr_in>().read() };
        assert_eq!(address.sin_addr.s_addr.to_ne_bytes(), [127, 0, 0, 2]);
    }
}

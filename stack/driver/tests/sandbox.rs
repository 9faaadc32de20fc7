//! In a sandbox that refuses netlink, a device works without changes of its interface. If listing
//! interfaces is refused too, the error says so.
//!
//! The sandbox is a seccomp filter of the thread, which the threads that it starts inherit:
//! seccomp(2).
#![allow(unsafe_code, reason = "a filter is installed by prctl")]

use std::net::Ipv4Addr;
use std::thread;

use urxe_stack::driver::{Engine, EngineConfig, OpenEngineError};
use urxe_stack::link::{LinkError, LinkSpec};

/// Makes socket(2) fail with EACCES on this thread for each netlink socket whose type has one of
/// these bits.
fn refuse_netlink(types: u32) {
    const NR: u32 = 0;
    const FIRST_ARGUMENT: u32 = 16;
    const SECOND_ARGUMENT: u32 = 24;
    let load = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    let equal = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    let any_of = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
    let answer = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, k, jt, jf| libc::sock_filter { code, jt, jf, k };
    let mut filter = [
        step(load, NR, 0, 0),
        step(equal, libc::SYS_socket as u32, 0, 5),
        step(load, FIRST_ARGUMENT, 0, 0),
        step(equal, libc::AF_NETLINK as u32, 0, 3),
        step(load, SECOND_ARGUMENT, 0, 0),
        step(any_of, types, 0, 1),
        step(answer, libc::SECCOMP_RET_ERRNO | libc::EACCES as u32, 0, 0),
        step(answer, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the flag takes no pointer; the unused arguments must be zero.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    let mode = libc::SECCOMP_MODE_FILTER;
    // SAFETY: the program and its filter live beyond the call, which copies them.
    let installed = unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) };
    assert_eq!(installed, 0, "{}", std::io::Error::last_os_error());
}

fn open(address: Ipv4Addr) -> Result<Engine, OpenEngineError> {
    let spec: LinkSpec = format!("rxe0={address}").parse().unwrap();
    Engine::open(&spec, EngineConfig::default())
}

/// Runs `test` in its own sandbox.
fn sandboxed(types: u32, test: fn()) {
    let sandbox = thread::spawn(move || {
        refuse_netlink(types);
        test();
    });
    sandbox.join().unwrap();
}

#[test]
fn without_news_of_interfaces_a_device_works() {
    // The sockets for changes are non-blocking; those for listing are not.
    sandboxed(libc::SOCK_NONBLOCK as u32, || {
        let engine = open(Ipv4Addr::new(127, 77, 3, 1)).unwrap();
        assert!(engine.device().is_port_active());
        assert!(engine.gids().iter().all(|entry| entry.assigned));
        assert_eq!(engine.device().events().next_event(), None);
        // The thread of the engine runs and ends.
        engine.progress();
        drop(engine);
    });
}

#[test]
fn without_netlink_at_all_opening_says_what_is_refused() {
    sandboxed(u32::MAX, || {
        let error = open(Ipv4Addr::new(127, 77, 3, 2)).unwrap_err();
        assert!(matches!(error, OpenEngineError::Link(LinkError::Interfaces(_))), "{error:?}");
        assert!(error.to_string().contains("Permission denied"), "{error}");
        assert_eq!(error.errno(), libc::ENODEV);
    });
}

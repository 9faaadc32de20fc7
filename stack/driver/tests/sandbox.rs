//! In a sandbox that refuses netlink, a device works without changes of its interface. If listing
//! interfaces is refused too, the error says so. In one without IP_RECVERR, a device knows no ICMP
//! errors.
//!
//! The sandbox is a seccomp filter of the thread, which the threads that it starts inherit:
//! seccomp(2).
#![allow(unsafe_code, reason = "a filter is installed by prctl")]

use std::net::Ipv4Addr;
use std::thread;
use std::time::{Duration, Instant};

use urxe_stack::driver::{Engine, EngineConfig, OpenEngineError};
use urxe_stack::link::{LinkError, LinkSpec};
use urxe_stack::port::udp::PathErrorReason;
use urxe_stack::port::{Run, SendOutcome, Transmit as _};
use urxe_stack::time::Time;

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const ANY_OF: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
const ANSWER: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
/// The offset of the number of a system call, and of its arguments, in `struct seccomp_data`.
const NR: u32 = 0;
const ARGUMENTS: [u32; 3] = [16, 24, 32];

const fn step(code: u16, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

/// Returns the filter that makes socket(2) fail with EACCES for each netlink socket whose type has
/// one of these bits.
fn refuse_netlink(types: u32) -> [libc::sock_filter; 8] {
    [
        step(LOAD, NR, 0, 0),
        step(EQUAL, libc::SYS_socket as u32, 0, 5),
        step(LOAD, ARGUMENTS[0], 0, 0),
        step(EQUAL, libc::AF_NETLINK as u32, 0, 3),
        step(LOAD, ARGUMENTS[1], 0, 0),
        step(ANY_OF, types, 0, 1),
        step(ANSWER, libc::SECCOMP_RET_ERRNO | libc::EACCES as u32, 0, 0),
        step(ANSWER, libc::SECCOMP_RET_ALLOW, 0, 0),
    ]
}

/// Returns the filter that makes setsockopt(2) fail with ENOPROTOOPT for IP_RECVERR.
fn refuse_error_queue() -> [libc::sock_filter; 8] {
    [
        step(LOAD, NR, 0, 0),
        step(EQUAL, libc::SYS_setsockopt as u32, 0, 5),
        step(LOAD, ARGUMENTS[1], 0, 0),
        step(EQUAL, libc::IPPROTO_IP as u32, 0, 3),
        step(LOAD, ARGUMENTS[2], 0, 0),
        step(EQUAL, libc::IP_RECVERR as u32, 0, 1),
        step(ANSWER, libc::SECCOMP_RET_ERRNO | libc::ENOPROTOOPT as u32, 0, 0),
        step(ANSWER, libc::SECCOMP_RET_ALLOW, 0, 0),
    ]
}

/// Installs a filter on this thread.
fn install(mut filter: [libc::sock_filter; 8]) {
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
fn sandboxed(filter: [libc::sock_filter; 8], test: fn()) {
    let sandbox = thread::spawn(move || {
        install(filter);
        test();
    });
    sandbox.join().unwrap();
}

#[test]
fn without_news_of_interfaces_a_device_works() {
    // The sockets for changes are non-blocking; those for listing are not.
    sandboxed(refuse_netlink(libc::SOCK_NONBLOCK as u32), || {
        let engine = open(Ipv4Addr::new(127, 77, 3, 1)).unwrap();
        assert!(engine.device().is_port_active());
        assert!(engine.gids().iter().all(|entry| entry.assigned));
        assert_eq!(engine.device().events().next_event(), None);
        // The thread of the engine runs and ends.
        engine.progress();
        drop(engine);
    });
}

/// Sends a packet to a closed port, and returns the error that its ICMP message causes.
fn refused(address: Ipv4Addr, peer: Ipv4Addr, wait: Duration) -> Option<PathErrorReason> {
    let engine = open(address).unwrap();
    let port = engine.ports().next().unwrap();
    let (from, to) = (address.into(), peer.into());
    let (from_port, bytes) = (4791, &[0; 64][..]);
    let run = Run { from, from_port, to, bytes, segment_size: 64, traffic_class: 0, hop_limit: 0 };
    assert_eq!(port.transmit(&run), SendOutcome::Sent);
    let start = Instant::now();
    loop {
        let error = engine.path_error(to, Time::ZERO);
        if error.is_some() || start.elapsed() > wait {
            return error.map(|error| error.reason);
        }
    }
}

#[test]
fn without_an_error_queue_a_device_works_and_knows_no_icmp_errors() {
    let (there, long) = (Ipv4Addr::new(127, 77, 3, 9), Duration::from_secs(10));
    let known = refused(Ipv4Addr::new(127, 77, 3, 3), there, long);
    assert_eq!(known, Some(PathErrorReason::PortUnreachable));
    sandboxed(refuse_error_queue(), || {
        let (there, short) = (Ipv4Addr::new(127, 77, 3, 9), Duration::from_millis(20));
        assert_eq!(refused(Ipv4Addr::new(127, 77, 3, 4), there, short), None);
    });
}

#[test]
fn without_netlink_at_all_opening_says_what_is_refused() {
    sandboxed(refuse_netlink(u32::MAX), || {
        let error = open(Ipv4Addr::new(127, 77, 3, 2)).unwrap_err();
        assert!(matches!(error, OpenEngineError::Link(LinkError::Interfaces(_))), "{error:?}");
        assert!(error.to_string().contains("Permission denied"), "{error}");
        assert_eq!(error.errno(), libc::ENODEV);
    });
}

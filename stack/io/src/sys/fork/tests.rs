//! Forks of processes that share an address, at every step of their set-up.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use super::*;
use crate::sharing::{PortSet, join, sharers};
use crate::udp::{OpenPortError, UdpConfig};

fn address(of_test: u8) -> IpAddr {
    let [.., high, low] = std::process::id().to_be_bytes();
    IpAddr::V4(Ipv4Addr::new(127, 112 + of_test, high, low.max(1)))
}

fn joined(at: IpAddr) -> Result<PortSet, OpenPortError> {
    let mut claims = u64::from(std::process::id()) << 32;
    join(&[UdpConfig::new(at)], || {
        claims += 1;
        claims
    })
}

/// Runs `body` in a forked child, which exits with its result, or with 99 if it panics.
fn forked(body: impl FnOnce() -> i32) -> Pid {
    // SAFETY: the child runs code that allocates, which glibc supports after a fork. The child
    // takes no lock that another of the test's threads may hold, because they wait for this thread.
    // The child leaves by _exit.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let status = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_or(99);
        let _ = std::io::stderr().flush();
        // SAFETY: ends only this process.
        unsafe { libc::_exit(status) }
    }
    Pid::from_raw(pid).expect("fork failed")
}

fn status_of(pid: Pid) -> Option<i32> {
    waitpid(Some(pid), WaitOptions::empty()).unwrap()?.1.exit_status()
}

fn wait_for_ever() -> ! {
    loop {
        std::thread::park();
    }
}

/// A tracing subscriber that calls a function at every event, that is, at every step of the set-up.
struct AtStep<F>(F);

impl<F: Fn() + 'static> tracing::Subscriber for AtStep<F> {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, _: &tracing::Event<'_>) {
        (self.0)();
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn a_child_has_something_else_in_the_place_of_a_guarded_descriptor() {
    let inode = |fd: RawFd| std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap();
    let many: Vec<CloseOnFork<std::net::UdpSocket>> = (0..5)
        .map(|_| close_on_fork(|| std::net::UdpSocket::bind("127.0.0.1:0")).unwrap())
        .collect();
    let numbers: Vec<RawFd> = many.iter().map(|socket| socket.as_raw_fd()).collect();
    let before: Vec<_> = numbers.iter().map(|&fd| inode(fd)).collect();
    let process = ProcessId::this();
    let child = forked(|| {
        let changed = numbers.iter().zip(&before).all(|(&fd, before)| inode(fd) != *before);
        drop(many);
        // The child had to close the numbers, once each.
        let closed =
            numbers.iter().all(|fd| !std::path::Path::new(&format!("/proc/self/fd/{fd}")).exists());
        i32::from(changed) | i32::from(closed) << 1 | i32::from(process.is_other()) << 2
    });
    assert_eq!(status_of(child), Some(0b111));
    assert!(!process.is_other());
}

/// A descriptor whose closing takes long: another thread forks meanwhile, unless it must wait.
struct SlowToClose {
    socket: std::net::UdpSocket,
    starts: mpsc::Sender<()>,
    forked: mpsc::Receiver<()>,
}

impl AsFd for SlowToClose {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for SlowToClose {
    fn drop(&mut self) {
        self.starts.send(()).unwrap();
        // If the fork waits for the closing, no message arrives.
        let _ = self.forked.recv_timeout(Duration::from_millis(300));
    }
}

#[test]
fn a_fork_during_the_closing_leaves_no_copy_to_the_child() {
    let (starts, closing) = mpsc::channel();
    let (tell, forked_one) = mpsc::channel();
    let closed = close_on_fork(|| {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
        Ok::<_, std::io::Error>(SlowToClose { socket, starts, forked: forked_one })
    });
    let closed = closed.unwrap();
    let number = closed.socket.as_raw_fd();
    let link = move || std::fs::read_link(format!("/proc/self/fd/{number}")).ok();
    let socket = link();
    let forker = std::thread::spawn(move || {
        closing.recv().unwrap();
        let child = forked(|| i32::from(link() == socket));
        let _ = tell.send(());
        status_of(child)
    });
    drop(closed);
    assert_eq!(forker.join().unwrap(), Some(0), "the child has the socket");
}

#[test]
fn a_value_of_the_process_is_made_anew_in_a_child() {
    static COUNTER: PerProcess<AtomicI32> = PerProcess::new(|| AtomicI32::new(0));
    COUNTER.get().fetch_add(7, Ordering::Relaxed);
    assert_eq!(status_of(forked(|| COUNTER.get().load(Ordering::Relaxed))), Some(0));
    assert_eq!(COUNTER.get().load(Ordering::Relaxed), 7);
}

#[test]
fn a_child_opens_a_device_at_once_and_the_parent_goes_on() {
    let at = address(0);
    let parents = joined(at).unwrap();
    let child = forked(|| {
        // On a new address, and on its parent's, where no thread serves it yet: joining succeeds or
        // fails with the owner.
        assert_eq!(joined(address(1)).unwrap().slot, 0);
        i32::from(matches!(joined(at), Err(OpenPortError::AddressInUse { owner: Some(_), .. })))
    });
    assert_eq!(status_of(child), Some(1));
    let parents = Arc::new(parents);
    let done = Arc::new(AtomicBool::new(false));
    let server = std::thread::spawn({
        let (parents, done) = (Arc::clone(&parents), Arc::clone(&done));
        move || {
            while !done.load(Ordering::Relaxed) {
                parents.members[0].serve(&mut Vec::new(), |_| (), |_| (), Vec::new);
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    });
    let child = forked(|| i32::from(joined(at).unwrap().slot));
    assert_eq!(status_of(child), Some(1), "the next slot, on the parent's address");
    done.store(true, Ordering::Relaxed);
    server.join().unwrap();
    assert_eq!(sharers(at, 0).len(), 1, "the child's slot went with it, the parent's stayed");
    drop(parents);
    assert_eq!(sharers(at, 0), []);
}

/// At each step of the set-up the process forks. Then the process is killed, while the child lives
/// on with its copies. Another process must get the address as if nothing had happened.
#[test]
fn a_fork_at_any_step_of_the_set_up_leaves_nothing_behind() {
    let mut steps = 0;
    for step in 0.. {
        let at = address(2);
        let (from_setter, to_test) = UnixDatagram::pair().unwrap();
        from_setter.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let setter = forked(|| {
            let seen = AtomicUsize::new(0);
            let tell = to_test.try_clone().unwrap();
            let at_step = AtStep(move || {
                if seen.fetch_add(1, Ordering::Relaxed) == step {
                    let child = forked(|| wait_for_ever());
                    tell.send(&child.as_raw_nonzero().get().to_ne_bytes()).unwrap();
                }
            });
            let own = tracing::subscriber::with_default(at_step, || joined(at));
            assert_eq!(own.as_ref().map(|own| own.slot), Ok(0), "the parent goes on");
            to_test.send(&0_i32.to_ne_bytes()).unwrap();
            wait_for_ever()
        });
        let next = || {
            let mut bytes = [0; 4];
            assert_eq!(from_setter.recv(&mut bytes).unwrap(), 4);
            Pid::from_raw(i32::from_ne_bytes(bytes))
        };
        let child = next();
        if child.is_some() {
            assert_eq!(next(), None, "step {step}");
        }
        kill_process(setter, Signal::KILL).unwrap();
        waitpid(Some(setter), WaitOptions::empty()).unwrap();
        let own = joined(at).unwrap_or_else(|error| panic!("after a fork at step {step}: {error}"));
        assert_eq!(own.slot, 0, "step {step}");
        drop(own);
        match child {
            Some(child) => kill_process(child, Signal::KILL).unwrap(),
            None => break,
        }
        steps += 1;
    }
    assert!(steps >= 6, "a set-up has more steps than {steps}");
}

#[test]
fn exec_leaks_no_descriptor() {
    let own = joined(address(3)).unwrap();
    own.ports[0].port_towards(0);
    let list = std::process::Command::new("ls").args(["-l", "/proc/self/fd"]).output().unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    assert!(list.contains(" 0 -> "), "{list}");
    for kind in ["socket:", "memfd:", "eventfd"] {
        assert!(!list.contains(kind), "{list}");
    }
}

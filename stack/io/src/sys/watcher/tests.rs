use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::*;

fn start() -> Option<Watcher> {
    let records: &'static Records = Box::leak(Box::default());
    match Watcher::start(records) {
        Ok(watcher) => Some(watcher),
        Err(why) => {
            eprintln!("skipped: {why}");
            None
        }
    }
}

fn folder(watcher: &Watcher) -> PathBuf {
    Path::new("/proc").join(watcher.process.as_raw_nonzero().to_string())
}

/// Repeats a check until it holds, for ten seconds at most.
fn eventually(what: &str, holds: impl Fn() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < Duration::from_secs(10), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn the_watcher_holds_nothing_of_the_process_and_ends_when_stopped() {
    let Some(watcher) = start() else { return };
    let folder = folder(&watcher);
    // The name is set last.
    let name = || fs::read_to_string(folder.join("comm")).unwrap_or_default();
    eventually("the name of the watcher", || name() == "urxe-watcher\n");
    let descriptors: Vec<PathBuf> = fs::read_dir(folder.join("fd"))
        .unwrap()
        .map(|entry| fs::read_link(entry.unwrap().path()).unwrap())
        .collect();
    let of = |kind: &str| {
        descriptors.iter().filter(|target| target.to_string_lossy().contains(kind)).count()
    };
    assert_eq!((descriptors.len(), of("socket:"), of("pidfd")), (2, 1, 1), "{descriptors:?}");
    assert_eq!(fs::read_link(folder.join("cwd")).unwrap(), Path::new("/"));
    let stat = fs::read_to_string(folder.join("stat")).unwrap();
    let session = stat.rsplit_once(')').unwrap().1.split_ascii_whitespace().nth(3).unwrap();
    assert_eq!(session, watcher.process.as_raw_nonzero().to_string(), "a session of its own");
    // A busy machine may take longer than `stop` waits.
    watcher.stop_within(Duration::from_secs(30));
    assert!(!folder.exists(), "the watcher ended and was reaped");
}

#[test]
fn no_call_of_the_program_returns_the_watcher() {
    let Some(watcher) = start() else { return };
    let pid = watcher.process.as_raw_nonzero().get();
    // SAFETY: the status pointer may be null. Other tests of this process have no child with this
    // number.
    let waited = unsafe { libc::waitpid(pid, ptr::null_mut(), libc::WNOHANG) };
    assert_eq!((waited, last_errno()), (-1, Errno::CHILD));
    watcher.stop();
}

#[test]
fn a_watcher_whose_process_closes_its_descriptors_ends() {
    let Some(watcher) = start() else { return };
    let folder = folder(&watcher);
    let Watcher { process, socket, memory } = watcher;
    drop(socket);
    eventually("the end of the watcher", || has_ended(process));
    assert!(!folder.exists());
    drop(memory);
}

#[test]
fn the_end_after_that_of_the_watcher_raises_no_signal() {
    let Some(watcher) = start() else { return };
    let process = watcher.process;
    rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
    eventually("the end of the watcher", || has_ended(process));
    // SIGPIPE would end this process: the test harness ignores it.
    // SAFETY: a disposition without a handler; restored below.
    let before = unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    watcher.release();
    // SAFETY: the disposition before.
    unsafe { libc::signal(libc::SIGPIPE, before) };
}

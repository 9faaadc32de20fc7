//! A network namespace in which one test at a time changes interfaces.

use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Waits until no other test of the process uses the namespace.
///
/// # Panics
/// If this is the host's own namespace, whose interfaces others use.
pub fn own_namespace() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let interfaces = std::fs::read_to_string("/proc/thread-self/net/dev").expect("a list");
    let is_other = |line: &&str| !line.trim_start().starts_with("lo:");
    assert_eq!(
        interfaces.lines().skip(2).filter(is_other).count(),
        0,
        "this is not a network namespace of the test's own: see the head of the test's file"
    );
    alone
}

/// Runs `ip` with the words of `arguments`.
///
/// # Panics
/// If it fails.
pub fn ip(arguments: &str) {
    let output =
        Command::new("ip").args(arguments.split(' ')).output().expect("iproute2 is installed");
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

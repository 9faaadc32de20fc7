//! Threads that wait for completions.

use std::os::fd::AsFd as _;
use std::sync::atomic::AtomicBool;
use std::thread::{self, ThreadId};

use super::*;
use crate::driver::{AfterProgress, Hooks};

/// A hook that fulfils the condition of one thread when this thread calls it. As the hook of the
/// Rust API, it does not signal the descriptor of the calling thread.
struct Fulfils {
    thread: ThreadId,
    is_done: AtomicBool,
}

impl AfterProgress for Fulfils {
    fn is_due(&self) -> bool {
        false
    }

    fn act(&self) {
        if thread::current().id() == self.thread {
            self.is_done.store(true, Ordering::Relaxed);
        }
    }
}

#[test]
fn a_thread_whose_own_hook_fulfils_its_condition_does_not_sleep() {
    for has_leader in [true, false] {
        let hook = Fulfils { thread: thread::current().id(), is_done: AtomicBool::new(false) };
        let hook = Arc::new(hook);
        let after_progress = Some(Arc::clone(&hook) as Arc<dyn AfterProgress>);
        let hooks = Hooks { after_progress, events: None };
        let end = End::new(address(23, 1), EngineConfig { hooks, ..EngineConfig::default() });
        if has_leader {
            assert!(end.engine.shared.leader.try_lead());
        }
        let start = Instant::now();
        let deadline = clock::now().plus_ns(20_000_000_000);
        let is_done = || hook.is_done.load(Ordering::Relaxed);
        assert!(end.engine.wait(end.descriptor.as_fd(), deadline, is_done).unwrap());
        assert!(start.elapsed() < Duration::from_secs(10), "with a leader: {has_leader}");
    }
}

//! An exclusive poll of a completion queue cannot move to another thread.
use urxe::CompletionQueue;

fn poll_elsewhere(cq: &CompletionQueue) {
    let poller = cq.start_poll().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || drop(poller));
    });
}

fn main() {}

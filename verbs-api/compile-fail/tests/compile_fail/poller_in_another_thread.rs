//! A turn at a completion queue is a thread's own.
use urxe::CompletionQueue;

fn poll_elsewhere(cq: &CompletionQueue) {
    let poller = cq.start_poll().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || drop(poller));
    });
}

fn main() {}

//! Who waits for a completion holds the queue.
use urxe::{CompletionQueue, Next};

fn keep(cq: CompletionQueue) -> Next<'static> {
    cq.next()
}

fn main() {}

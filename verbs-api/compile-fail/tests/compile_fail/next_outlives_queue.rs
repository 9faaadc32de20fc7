//! A future for a completion borrows its queue.
use urxe::{CompletionQueue, Next};

fn keep(cq: CompletionQueue) -> Next<'static> {
    cq.next()
}

fn main() {}

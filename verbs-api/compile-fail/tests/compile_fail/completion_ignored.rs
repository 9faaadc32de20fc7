//! An ignored completion may hide a failed request.
#![deny(unused_must_use)]
use urxe::CompletionQueue;

fn poll(cq: &CompletionQueue) {
    cq.poll_one().unwrap().unwrap();
}

fn main() {
    let _: fn(&CompletionQueue) = poll;
}

//! An ignored wait may hide a failed request.
#![deny(unused_must_use)]
use urxe::{Completion, CompletionQueue};

fn wait(cq: &CompletionQueue, polled: Completion) {
    cq.wait_one(None);
    polled.ok();
}

fn main() {
    let _: fn(&CompletionQueue, Completion) = wait;
}

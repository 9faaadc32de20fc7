//! An rsocket with any peer. The input is any bytes as each message, and then a plan of completions
//! and calls for a stream.
//!
//! The peer chooses the private data, the immediate data of each message, and all bytes of the list
//! that it may write. The program sends, takes bytes, maps memory and shuts directions down.
//!
//! Properties: nothing panics. Messages are written and parsed back. The ranges of the send buffer
//! and of the receive buffer are inside the buffers, and pending requests do not share bytes.
//! Posted requests fit the send queue. Bytes go only to memory that the peer has named. Halves of
//! the receive buffer are lent only while no byte of them waits for the program.

mod messages;
mod stream;

use arbitrary::{Arbitrary, Unstructured};

/// Runs one input.
pub fn run(bytes: &[u8]) {
    messages::check(bytes);
    if let Ok(plan) = stream::Plan::arbitrary(&mut Unstructured::new(bytes)) {
        stream::run(&plan);
    }
}

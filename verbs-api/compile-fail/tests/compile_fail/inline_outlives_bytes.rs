//! Inline data is borrowed until it is posted.
use urxe::{Data, SendRequest};

fn keep() -> SendRequest<'static> {
    let bytes = [0; 8];
    SendRequest::send(Data::inline(&bytes))
}

fn main() {}

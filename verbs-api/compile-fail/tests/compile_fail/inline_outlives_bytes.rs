//! A request borrows its inline data until the posting.
use urxe::{Data, SendRequest};

fn keep() -> SendRequest<'static> {
    let bytes = [0; 8];
    SendRequest::send(Data::inline(&bytes))
}

fn main() {}

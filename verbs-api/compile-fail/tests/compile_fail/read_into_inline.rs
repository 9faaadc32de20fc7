//! READ needs a region for its data.
use urxe::{Data, RemoteRegion, SendRequest};

fn read(there: RemoteRegion, bytes: &[u8]) {
    let _ = SendRequest::read(Data::inline(bytes), there);
}

fn main() {}

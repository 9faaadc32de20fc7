//! READ has nowhere to put its data but in a region.
use urxe::{Data, RemoteRegion, SendRequest};

fn read(there: RemoteRegion, bytes: &[u8]) {
    let _ = SendRequest::read(Data::inline(bytes), there);
}

fn main() {}

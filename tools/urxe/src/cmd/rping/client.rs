//! The client: sends its bytes to the server and receives them back.

use std::io::Write;

use urxe::cm::{self, ConnectionEvent};
use urxe_stack::escape::Escaped;

use super::peer::{self, Peer};
use super::{Args, RpingError};
use crate::output;

/// The characters that fill a ping, from `A` to `z`.
const FIRST: u8 = b'A';
const LAST: u8 = b'z';

pub fn run(args: &Args) -> Result<(), RpingError> {
    let mut options = peer::options();
    if let Some(source) = args.source {
        options = options.source_ip(source);
    }
    let peer = Peer::new(cm::prepare(args.server_addr()?, &options)?)?;
    args.debug(|| format!("connected: {:?}", peer.connection));
    let mut out = output::stdout();
    let size = args.size as usize;
    let (source, sink) = (peer.allocate(size)?, peer.allocate(size)?);
    let ended = RpingError::Ended { when: "before the last ping returned" };
    for ping in 0.. {
        if args.count != 0 && ping == args.count {
            break;
        }
        let data = content(ping, size);
        source.write(0, &data)?;
        for memory in [&source, &sink] {
            args.debug(|| format!("ping {ping}: announces {}", memory.remote()));
            peer.announce(memory.remote())?;
            if peer.receive()?.is_none() {
                return Err(ended);
            }
        }
        let back = sink.read_vec(0, size)?;
        if args.validate
            && let Some(at) = back.iter().zip(&data).position(|(back, sent)| back != sent)
        {
            return Err(RpingError::Mismatch { ping, at });
        }
        if args.verbose {
            writeln!(out, "ping data: {}", text(&back))?;
            out.flush()?;
        }
    }
    peer.connection.disconnect();
    // Waits for the server's reply to the disconnect, or for the timeout.
    while peer.connection.events().wait(None)? != ConnectionEvent::Disconnected {}
    Ok(())
}

/// Returns the bytes of a ping: its number, characters that start one further each time, and a
/// zero.
fn content(ping: u32, size: usize) -> Vec<u8> {
    let mut data = format!("rdma-ping-{ping}: ").into_bytes();
    let count = u32::from(LAST - FIRST) + 1;
    let first = ping % count;
    // Each character is the successor of the previous one.
    let fill = (0..).map(|at| FIRST + ((first + at) % count) as u8);
    let missing = size.saturating_sub(data.len());
    data.extend(fill.take(missing));
    data.truncate(size);
    if let Some(last) = data.last_mut() {
        *last = 0;
    }
    data
}

/// Returns the data up to the first zero, as the original prints it, with escapes.
pub fn text(data: &[u8]) -> String {
    let end = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
    Escaped(String::from_utf8_lossy(&data[..end])).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pings_are_those_of_the_original() {
        // From captures of the original: the first character advances by one with each ping, and
        // wraps after z.
        assert_eq!(text(&content(0, 26)), "rdma-ping-0: ABCDEFGHIJKL");
        assert_eq!(text(&content(57, 26)), "rdma-ping-57: zABCDEFGHIJ");
        assert_eq!(content(58, 64).len(), 64);
        assert!(text(&content(58, 64)).starts_with("rdma-ping-58: ABC"));
    }
}

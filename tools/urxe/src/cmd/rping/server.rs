//! The server: reads the memory that clients announce, and writes the bytes back.

use std::io::Write;
use std::thread;

use urxe::cm::{ConnectRequest, Listener};
use urxe::{Access, RemoteRegion, Rkey, SendRequest};

use super::client::text;
use super::peer::{self, Peer};
use super::{Args, MAX_SIZE, RpingError};
use crate::output;

pub fn run(args: &Args) -> Result<(), RpingError> {
    let listener = Listener::bind(args.server_addr()?)?;
    args.debug(|| format!("listens on {}", listener.local_addr()));
    if !args.persistent {
        return serve(args, listener.wait(None)?);
    }
    thread::scope(|threads| {
        for request in listener.incoming() {
            let request = request?;
            let from = request.peer_addr();
            threads.spawn(move || {
                // An error of one client does not end the others.
                if let Err(error) = serve(args, request) {
                    output::note(&format!("{from}: {error}"));
                }
            });
        }
        Ok(())
    })
}

fn serve(args: &Args, request: ConnectRequest) -> Result<(), RpingError> {
    args.debug(|| format!("request of {}", request.peer_addr()));
    let peer = Peer::new(request.prepare(&peer::options())?)?;
    // Only the server reads and writes, so peers get no access rights.
    let buffer = peer.connection.pd().allocate(MAX_SIZE as usize, Access::LOCAL_WRITE)?;
    let go_ahead = RemoteRegion { addr: 0, len: 0, rkey: Rkey(0) };
    while let Some(source) = peer.receive()? {
        args.debug(|| format!("reads {source}"));
        let len = source.len as usize;
        peer.perform("the READ", &SendRequest::read(buffer.slice(..len)?, source))?;
        let data = buffer.read_vec(0, len)?;
        if args.verbose {
            let mut out = output::stdout();
            writeln!(out, "server ping data: {}", text(&data))?;
            out.flush()?;
        }
        peer.announce(go_ahead)?;
        let Some(sink) = peer.receive()? else {
            return Err(RpingError::Ended { when: "during a ping" });
        };
        args.debug(|| format!("writes {sink}"));
        let end = data.iter().position(|byte| *byte == 0).map_or(len, |zero| zero + 1);
        peer.perform("the WRITE", &SendRequest::write(buffer.slice(..end)?, sink))?;
        peer.announce(go_ahead)?;
    }
    args.debug(|| format!("{} has disconnected", peer.connection.peer_addr()));
    Ok(())
}

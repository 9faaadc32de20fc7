//! The exchange and the game of `ibv_rc_pingpong` (rdma-core, libibverbs/examples/rc_pingpong.c), with its option `-c`.
//!
//! ```text
//!   client                                       server
//!     |--- 52 bytes: endpoint, NUL (TCP) --------->|  to RTS
//!     |<-- 52 bytes: endpoint, NUL ----------------|
//!     |--- "done", NUL --------------------------->|
//!  to RTS                                          |
//!     |=== SEND ==================================>|  sends back what it has received
//!     |<=================================== SEND ==|  ... `count` times each way
//! ```
//! The bytes are 0x7b, but for a 0 at the start of each page.

use std::{
    io::{Read as _, Write as _},
    net::{Ipv6Addr, TcpListener, TcpStream, ToSocketAddrs},
};

use urxe_stack::qp::wr::{Payload, SendFlags, SendOp, SendRequest};

use super::{
    Endpoint, PeerConfig, PeerError, Wrong,
    station::{BUFFER_MAX, DEPTH_MAX, Station},
};

/// Length of an endpoint's text with its NUL.
const TEXT_LEN: usize = 52;
const DONE: &[u8; 5] = b"done\0";
const PAGE: usize = 4096;

/// Where messages arrive; they leave from the region's start.
const ARRIVALS: usize = BUFFER_MAX as usize / 2;

/// The largest message.
pub const PINGPONG_MAX: u32 = BUFFER_MAX / 2;

const SEND_ID: u64 = 1 << 32;

/// Plays with `ibv_rc_pingpong -c`: as the client of `host`, or as the server of whoever comes. What was wrong with the
/// messages, if anything.
///
/// # Errors
/// [`PeerError`]: the play could not go on.
pub fn pingpong(
    config: &PeerConfig,
    host: Option<&str>,
    size: u32,
    count: u32,
) -> Result<Result<(), Wrong>, PeerError> {
    let station = Station::open(config, 0)?;
    let expected: Vec<u8> = (0..size as usize).map(|at| if at % PAGE == 0 { 0 } else { 0x7b }).collect();
    station.write(0, &expected)?;
    // As many receives as fit; each that completes is posted anew.
    let receives = count.min(DEPTH_MAX);
    let sges = station.pieces(ARRIVALS, size);
    (0..receives).try_for_each(|message| station.post_recv(message, &sges))?;
    let _exchanged = match host {
        Some(host) => connect(config, &station, host)?,
        None => accept(config, &station)?,
    };

    let (mut sent, mut sends_done, mut received) = (0, 0, 0);
    if host.is_some() {
        send(&station, size)?;
        sent = 1;
    }
    while received < count || sends_done < count {
        let Some(completion) = station.poll()? else { continue };
        if !completion.status.is_success() {
            let message = completion.wr_id & (SEND_ID - 1);
            return Ok(Err(Wrong::Status { status: completion.status, message }));
        }
        if completion.wr_id == SEND_ID {
            sends_done += 1;
        } else {
            if completion.byte_len != size {
                return Ok(Err(Wrong::Completion { field: "byte_len", message: received }));
            }
            let found = station.read(ARRIVALS, size)?;
            if let Some(byte) = found.iter().zip(&expected).position(|(found, wanted)| found != wanted) {
                return Ok(Err(Wrong::Byte { message: received, byte }));
            }
            received += 1;
            if received + receives <= count {
                station.post_recv(received, &sges)?;
            }
        }
        // The client's first message came before all; else one of ours for each of theirs. As there, the next is
        // posted when the last has completed.
        let due = if host.is_some() { received + 1 } else { received };
        if sent < due.min(count) && sends_done == sent {
            send(&station, size)?;
            sent += 1;
        }
    }
    eprintln!("counters: {}", station.counters());
    Ok(Ok(()))
}

fn send(station: &Station, size: u32) -> Result<(), PeerError> {
    let sges = station.pieces(0, size);
    let (op, flags) = (SendOp::Send, SendFlags::SIGNALED);
    station.post_send(0, SendRequest { wr_id: SEND_ID, op, flags, payload: Payload::Sges(&sges) })
}

/// The connection stays open until the end: closing it early is an error to some versions.
fn connect(config: &PeerConfig, station: &Station, host: &str) -> Result<TcpStream, PeerError> {
    let addresses: Vec<_> = (host, config.port).to_socket_addrs()?.collect();
    let mut stream = TcpStream::connect(&addresses[..])?;
    stream.write_all(&text(&station.endpoint))?;
    let peer = read_endpoint(&mut stream)?;
    station.connect(config, &peer, config.mtu, config.rd_atomic)?;
    stream.write_all(DONE)?;
    Ok(stream)
}

fn accept(config: &PeerConfig, station: &Station) -> Result<TcpStream, PeerError> {
    let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, config.port))?;
    println!("listening {}", config.port);
    let mut stream = listener.accept()?.0;
    let peer = read_endpoint(&mut stream)?;
    station.connect(config, &peer, config.mtu, config.rd_atomic)?;
    stream.write_all(&text(&station.endpoint))?;
    let mut done = [0; DONE.len()];
    stream.read_exact(&mut done)?;
    if done == *DONE {
        return Ok(stream);
    }
    Err(PeerError::Protocol { said: String::from_utf8_lossy(&done).into_owned(), wanted: "done" })
}

fn text(endpoint: &Endpoint) -> [u8; TEXT_LEN] {
    let mut bytes = [0; TEXT_LEN];
    let text = endpoint.to_string();
    bytes[..text.len()].copy_from_slice(text.as_bytes());
    bytes
}

fn read_endpoint(stream: &mut TcpStream) -> Result<Endpoint, PeerError> {
    let mut bytes = [0; TEXT_LEN];
    stream.read_exact(&mut bytes)?;
    let said = String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned();
    said.parse().map_err(|_| PeerError::Protocol { said, wanted: "an endpoint" })
}

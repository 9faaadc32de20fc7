//! The packets of the capture files in `wire/testdata`.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pcap_parser::{LegacyPcapReader, PcapBlockOwned, PcapError, traits::PcapReaderIterator};
use urxe_wire::{Frame, ROCE_PORT};

use crate::wire::PacketRun;

/// Returns the datagrams to the RoCE port of a capture, each as a run of one packet. Hop limits and
/// traffic classes are left out.
///
/// # Panics
/// If the capture cannot be read.
#[must_use]
pub fn packets(name: &str) -> Vec<PacketRun> {
    let mut packets = Vec::new();
    frames(name, |data| {
        if let Ok(frame) = Frame::parse(data)
            && frame.repr.dst.port() == ROCE_PORT
        {
            let (from, to): (IpAddr, IpAddr) = (frame.repr.src.ip(), frame.repr.dst.ip());
            let bytes = frame.udp_payload.to_vec();
            let segment_size = bytes.len();
            let from_port = frame.repr.src.port();
            packets.push(PacketRun { from_port, ..PacketRun::new(from, to, bytes, segment_size) });
        }
    });
    packets
}

/// Passes every frame of a capture to `take`.
///
/// # Panics
/// If the capture cannot be read.
pub fn frames(name: &str, mut take: impl FnMut(&[u8])) {
    timed_frames(&folder().join(name), |_, frame| take(frame));
}

/// Passes every frame of a capture file to `take`, with its time since 1970.
///
/// # Panics
/// If the file cannot be read.
pub fn timed_frames(path: &Path, mut take: impl FnMut(Duration, &[u8])) {
    let file = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    blocks(LegacyPcapReader::new(1 << 20, &file[..]).expect("a capture"), |block| {
        if let PcapBlockOwned::Legacy(block) = block {
            let time = Duration::new(block.ts_sec.into(), block.ts_usec * 1_000);
            take(time, block.data);
        }
    });
}

/// Passes every block of a capture to `take`.
///
/// # Panics
/// If the capture cannot be read.
pub fn blocks(mut reader: impl PcapReaderIterator, mut take: impl FnMut(PcapBlockOwned<'_>)) {
    loop {
        match reader.next() {
            Ok((used, block)) => {
                take(block);
                reader.consume(used);
            }
            Err(PcapError::Eof) => return,
            Err(PcapError::Incomplete(_)) => reader.refill().expect("it is in memory"),
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// Returns the names of all captures, in order.
///
/// # Panics
/// If the folder cannot be read.
#[must_use]
pub fn names() -> Vec<String> {
    let entries = std::fs::read_dir(folder()).expect("the folder of the captures");
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| name.ends_with(".pcap")).collect();
    names.sort();
    names
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wire/testdata")
}

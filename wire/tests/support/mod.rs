//! Captures of real kernels, shared by several tests.
#![allow(dead_code)] // each test has its own copy and uses a part

use std::collections::BTreeMap;
use std::path::Path;

use pcap_parser::{
    LegacyPcapReader, Linktype, PcapBlockOwned, PcapError, traits::PcapReaderIterator,
};
use urxe_wire::mad::MAD_LEN;
use urxe_wire::{Frame, PacketView, Qpn};

/// Returns the frames of a capture.
fn frames(path: &Path) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(path).unwrap();
    let mut reader = LegacyPcapReader::new(1 << 20, &bytes[..]).unwrap();
    let mut frames = Vec::new();
    loop {
        match reader.next() {
            Ok((used, block)) => {
                match block {
                    PcapBlockOwned::LegacyHeader(h) => assert_eq!(h.network, Linktype::ETHERNET),
                    PcapBlockOwned::Legacy(b) => {
                        assert_eq!(b.caplen, b.origlen, "a cut packet proves nothing");
                        frames.push(b.data.to_vec());
                    }
                    PcapBlockOwned::NG(_) => panic!("pcapng"),
                }
                reader.consume(used);
            }
            Err(PcapError::Eof) => return frames,
            Err(PcapError::Incomplete(_)) => reader.refill().unwrap(),
            Err(e) => panic!("{}: {e:?}", path.display()),
        }
    }
}

/// Returns the frames of every capture, by name.
pub fn captures() -> BTreeMap<String, Vec<Vec<u8>>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "pcap"))
        .map(|path| (path.file_stem().unwrap().to_string_lossy().into_owned(), frames(&path)))
        .collect()
}

/// Returns every MAD of every capture, with the name of the capture and the number of the frame.
pub fn captured_mads() -> Vec<(String, [u8; MAD_LEN])> {
    let mut mads = Vec::new();
    for (name, frames) in captures() {
        for (i, frame) in frames.iter().enumerate() {
            let Ok(frame) = Frame::parse(frame) else { continue };
            let Ok(packet) = PacketView::parse(frame.udp_payload) else { continue };
            if packet.bth().dest_qp == Qpn::QP1 {
                let at = format!("{name} frame {}", i + 1);
                mads.push((at, packet.payload().try_into().unwrap()));
            }
        }
    }
    mads
}

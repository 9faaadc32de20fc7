//! The captures of real kernels, for more than one test.

use std::path::Path;

use pcap_parser::{LegacyPcapReader, PcapBlockOwned, PcapError, traits::PcapReaderIterator};
use urxe_wire::mad::MAD_LEN;
use urxe_wire::{Frame, PacketView, Qpn};

/// The frames of a capture.
pub fn frames(path: &Path) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(path).unwrap();
    let mut reader = LegacyPcapReader::new(1 << 20, &bytes[..]).unwrap();
    let mut frames = Vec::new();
    loop {
        match reader.next() {
            Ok((used, block)) => {
                if let PcapBlockOwned::Legacy(block) = block {
                    frames.push(block.data.to_vec());
                }
                reader.consume(used);
            }
            Err(PcapError::Eof) => return frames,
            Err(PcapError::Incomplete(_)) => reader.refill().unwrap(),
            Err(e) => panic!("{}: {e:?}", path.display()),
        }
    }
}

/// Every MAD of every capture, with the capture's name and the frame's number.
pub fn captured_mads() -> Vec<(String, [u8; MAD_LEN])> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let mut mads = Vec::new();
    for path in paths.iter().filter(|path| path.extension().is_some_and(|e| e == "pcap")) {
        for (i, frame) in frames(path).iter().enumerate() {
            let Ok(frame) = Frame::parse(frame) else { continue };
            let Ok(packet) = PacketView::parse(frame.udp_payload) else { continue };
            if packet.bth().dest_qp == Qpn::QP1 {
                let name = path.file_stem().unwrap().to_string_lossy();
                let at = format!("{name} frame {}", i + 1);
                mads.push((at, packet.payload().try_into().unwrap()));
            }
        }
    }
    mads
}

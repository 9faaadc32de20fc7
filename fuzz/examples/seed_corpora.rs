//! Puts one packet of every kind in the captures into the corpora of the packet targets, as a UDP
//! payload and as a frame.

use std::collections::BTreeSet;
use std::path::Path;

use urxe_test_support::capture;
use urxe_wire::mad::Mad;
use urxe_wire::{Frame, PacketView, ROCE_PORT};

fn main() -> std::io::Result<()> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut seen, mut kept) = (BTreeSet::new(), Ok(()));
    for name in capture::names() {
        capture::frames(&name, |frame| {
            if kept.is_ok() {
                kept = keep(here, frame, &mut seen);
            }
        });
    }
    println!("{} kinds of packet", seen.len());
    kept
}

fn keep(here: &Path, bytes: &[u8], seen: &mut BTreeSet<String>) -> std::io::Result<()> {
    let Ok(frame) = Frame::parse(bytes) else { return Ok(()) };
    let Ok(packet) = PacketView::parse(frame.udp_payload) else { return Ok(()) };
    keep_mad(here, &packet, seen)?;
    let syndrome = packet.aeth().map_or(0, |aeth| aeth.syndrome.byte() >> 5);
    let name = format!(
        "{}_{}_{syndrome}",
        packet.info().name.replace(' ', "_").to_lowercase(),
        packet.payload_len() > 0
    );
    let is_v6 = frame.repr.dst.is_ipv6();
    if frame.repr.dst.port() != ROCE_PORT
        || packet.bytes().len() > 400
        || !seen.insert(format!("{name}_{is_v6}"))
    {
        return Ok(());
    }
    let corpus = here.join("corpus/packet_parse");
    std::fs::create_dir_all(&corpus)?;
    std::fs::write(corpus.join(format!("{name}_{is_v6}.payload")), packet.bytes())?;
    std::fs::write(corpus.join(format!("{name}_{is_v6}.frame")), bytes)
}

/// Keeps one MAD of every kind.
fn keep_mad(
    here: &Path,
    packet: &PacketView<'_>,
    seen: &mut BTreeSet<String>,
) -> std::io::Result<()> {
    let Ok(mad) = Mad::parse(packet.payload()) else { return Ok(()) };
    // A second MAD of each kind may carry private data.
    let name = mad.message.attribute().name().to_lowercase();
    let Some(name) = [name.clone(), format!("{name}_2")]
        .into_iter()
        .find(|name| seen.insert(format!("mad_{name}")))
    else {
        return Ok(());
    };
    let corpus = here.join("corpus/mad");
    std::fs::create_dir_all(&corpus)?;
    std::fs::write(corpus.join(name), packet.payload())
}

//! `urxe decode` over captures of real kernels: golden text, every file, damage, pipes.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use std::path::Path;

use crate::common::{Finish as _, Run, capture, run, urxe};

/// Decodes a capture of a real kernel.
fn decode(options: &str, name: &str) -> Run {
    decode_file(options, &capture(name))
}

fn decode_file(options: &str, path: &Path) -> Run {
    run(&format!("decode {options} {}", path.display()))
}

#[test]
fn compare_and_swap() {
    insta::assert_snapshot!(decode("", "atomic_cs.pcap").ok());
}

#[test]
fn datagrams_with_every_field() {
    let text = decode("--verbose", "udaddy.pcap").ok();
    let first_four: Vec<&str> =
        text.lines().take_while(|line| !line.starts_with("    5")).collect();
    insta::assert_snapshot!(first_four.join("\n"));
}

#[test]
fn every_capture_of_a_kernel_holds_good_packets_only() {
    let mut files = 0;
    for entry in std::fs::read_dir(capture("")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "pcap") {
            continue;
        }
        files += 1;
        let run = decode_file("", &path);
        let packets = run.stdout.lines().count();
        let good = run.stdout.lines().filter(|line| line.ends_with("ICRC ok")).count();
        assert_eq!(good, packets, "{}: {}", path.display(), run.stdout);
        assert!(run.stderr.contains(&format!("{packets} packets: {packets} RoCEv2")), "{run:?}");
    }
    assert!(files >= 19, "{files} captures");
}

#[test]
fn json_is_an_object_a_line() {
    let text = decode("--json", "rnr.pcap").ok();
    let mut rnr_naks = 0;
    for (index, line) in text.lines().enumerate() {
        let packet: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(packet["number"], index as u64 + 1);
        assert_eq!(packet["kind"], "roce");
        assert_eq!(packet["icrc"]["ok"], true);
        rnr_naks += usize::from(
            packet["aeth"]["meaning"].as_str().is_some_and(|text| text.starts_with("RNR")),
        );
    }
    assert!(rnr_naks > 0, "the capture has RNR NAKs");
}

#[test]
fn damage_is_reported_after_the_packets_before() {
    let whole = std::fs::read(capture("atomic_cs.pcap")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.pcap");
    std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    let run = decode_file("", &path);
    assert_eq!(run.stdout.lines().count(), 9, "{run:?}");
    assert!(run.fails(1).contains("the capture is cut short: the block at byte "));
}

#[test]
fn standard_input_is_a_capture_too() {
    let mut child = urxe("decode -").stdin(Stdio::piped()).spawn().unwrap();
    let capture = std::fs::read(capture("atomic_cs.pcap")).unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&capture).unwrap();
    drop(stdin);
    assert_eq!(child.finish().ok(), decode("", "atomic_cs.pcap").ok());
}

#[test]
fn a_reader_that_stops_is_no_error() {
    // The file exceeds all buffers, so the writer notices the closed pipe.
    let whole = std::fs::read(capture("read_bw.pcap")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long.pcap");
    std::fs::write(&path, [&whole[..24], &whole[24..].repeat(40)].concat()).unwrap();
    let mut child = urxe(&format!("decode --verbose {}", path.display())).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.starts_with("    1"), "{first}");
    let run = child.finish();
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
}

#[test]
fn comments_of_the_capture_are_shown() {
    use urxe_wire::pcapng::{self, LinkType, PacketRecord};
    let mut file = Vec::new();
    pcapng::section_header(&mut file, "test");
    pcapng::interface_description(&mut file, LinkType::Raw, "rxe0");
    let data: &[u8] = &[0x45, 0, 0];
    for comment in ["why it\nwas \u{9b}31mdropped", ""] {
        let record = PacketRecord {
            interface: 0,
            timestamp_ns: 1,
            data,
            snap_len: pcapng::SNAP_LEN,
            direction: None,
            comment,
        };
        pcapng::enhanced_packet(&mut file, &record);
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("comments.pcapng");
    std::fs::write(&path, file).unwrap();
    let text = decode_file("", &path).ok();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(lines[0].ends_with(
        "damaged frame: the frame ends within its IPv4 header: 3 bytes of 20  \
         # why it\\u000awas \\u009b31mdropped"
    ));
    assert!(lines[1].ends_with("3 bytes of 20"), "{text}");
}

#[test]
fn unreadable_files_are_named() {
    assert!(decode("", "no-such-file.pcap").fails(1).contains("cannot open "));
    assert!(decode("", "../Cargo.toml").fails(1).contains("not a capture"));
    assert!(decode("--json --verbose", "rnr.pcap").fails(2).contains("cannot be used with"));
}

//! Captures of programs: `urxe run --capture`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::install::{compile, install, ok, text_of};
use crate::pair::run_on_two_addresses;

/// Messages in each direction.
const MESSAGES: usize = 40;

/// Creates an empty folder of this name in the ordinary user's home.
fn folder(name: &str) -> PathBuf {
    let folder = install().path("home").join(name);
    ok(install().user("mkdir").arg(&folder));
    folder
}

/// Returns the packets that `urxe decode` finds in a file.
#[track_caller]
fn decoded(file: &Path) -> Vec<Value> {
    let mut decode = install().user(install().path("bin/urxe"));
    let lines = ok(decode.args(["decode", "--json"]).arg(file));
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Counts the packets with this opcode between these hosts, and checks that all their ICRCs are
/// correct.
#[track_caller]
fn count(packets: &[Value], opcode: &str, src: &str, dst: &str) -> usize {
    let of = |packet: &&Value| {
        packet["bth"]["name"] == opcode && packet["src"] == src && packet["dst"] == dst
    };
    let found: Vec<&Value> = packets.iter().filter(of).collect();
    for packet in &found {
        assert_eq!(packet["icrc"]["ok"], true, "{packet}");
    }
    found.len()
}

/// Checks that tshark and tcpdump, which read pcapng on their own, count the same packets.
#[track_caller]
fn others_read_as_many(file: &Path, packets: usize) {
    for (program, options) in [("tshark", "-n -Y infiniband -r"), ("tcpdump", "-n --count -r")] {
        let mut reader = Command::new(program);
        let reader = reader.args(options.split(' ')).arg(file).stdin(Stdio::null()).output();
        let output = reader
            .unwrap_or_else(|error| panic!("{program}: {error}; install the package of this name"));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let read = match program {
            "tshark" => text.lines().count(),
            _ => text
                .lines()
                .filter_map(|line| line.strip_suffix(" packets"))
                .fold(0, |_, count| count.parse().unwrap()),
        };
        assert!(
            output.status.success() && read == packets,
            "{packets} packets; {}",
            text_of(&output)
        );
    }
}

#[test]
fn each_process_records_all_its_packets_in_a_file_of_its_own() {
    let folder = folder("captures");
    // The path is relative to the folder in which `urxe run` starts, not to the program's folder.
    run_on_two_addresses(
        "--capture captures/it's-%p.pcapng",
        &format!("env -C / ibv_rc_pingpong -g 0 -s 256 -n {MESSAGES}"),
    );
    let mut files: Vec<PathBuf> =
        fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert_eq!(files.len(), 2, "{files:?}");
    let both = ["127.78.0.1", "127.78.0.2"];
    for file in files {
        let name = file.file_name().unwrap().to_str().unwrap();
        let number = name.strip_prefix("it's-").and_then(|name| name.strip_suffix(".pcapng"));
        assert!(number.is_some_and(|number| number.parse::<u32>().is_ok()), "{name}");
        let packets = decoded(&file);
        for (src, dst) in [(both[0], both[1]), (both[1], both[0])] {
            let sent = count(&packets, "RC SEND_ONLY", src, dst);
            assert!(sent >= MESSAGES, "{src} to {dst}: {sent} messages of {}", packets.len());
        }
        others_read_as_many(&file, packets.len());
    }
}

#[test]
fn a_capture_of_headers_has_no_payload_and_the_original_lengths() {
    /// Ethernet, IPv4, UDP, BTH, and the longest extension headers of these packets: RETH.
    const HEADERS: usize = 14 + 20 + 8 + 12 + 16;
    const SIZE: usize = 700;
    let folder = folder("captures-of-headers");
    run_on_two_addresses(
        "--capture captures-of-headers/%p.pcapng --capture-headers",
        &format!("ibv_rc_pingpong -g 0 -s {SIZE} -n {MESSAGES}"),
    );
    for file in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
        let packets = decoded(&file);
        let sends: Vec<_> =
            packets.iter().filter(|packet| packet["bth"]["name"] == "RC SEND_ONLY").collect();
        assert!(sends.len() >= 2 * MESSAGES, "{} of {}", sends.len(), packets.len());
        for packet in &sends {
            let found = (&packet["payload_len"], &packet["icrc"]["ok"]);
            assert_eq!(found, (&SIZE.into(), &Value::Null));
        }
        let mut tshark = Command::new("tshark");
        tshark.args("-n -T fields -e frame.len -e frame.cap_len -r".split(' ')).arg(&file);
        let text = ok(tshark.stdin(Stdio::null()));
        let lengths = text.lines().map(|line| {
            let mut numbers = line.split('\t').map(|number| number.parse::<usize>().unwrap());
            (numbers.next().unwrap(), numbers.next().unwrap())
        });
        let (mut count, mut whole) = (0, 0);
        for (original, captured) in lengths {
            assert!(captured <= HEADERS && captured < original, "{captured} of {original} bytes");
            count += 1;
            whole += usize::from(original == 14 + 20 + 8 + 12 + SIZE + 4);
        }
        assert_eq!((count, whole), (packets.len(), sends.len()));
    }
}

#[test]
fn a_capture_that_cannot_be_written_is_reported_and_the_device_does_not_open() {
    for (file, why) in [
        (
            "/nowhere/packets.pcapng",
            "cannot write /nowhere/packets.pcapng: No such file or directory",
        ),
        ("/packets-%p.pcapng", "Permission denied"),
        ("/tmp", "cannot write /tmp: Is a directory"),
    ] {
        let output = install().run(&format!("--capture {file} -- ibv_devinfo")).output().unwrap();
        let text = text_of(&output);
        assert_ne!(output.status.code(), Some(0), "{text}");
        assert!(text.contains("URXE_CAPTURE: cannot write /") && text.contains(why), "{text}");
    }
}

#[test]
fn a_capture_that_cannot_be_written_is_reported_whatever_modules_are_logged() {
    let capture = folder("full").join("a.pcapng");
    let run = |capture: &Path| {
        let program = compile("completions");
        let mut urxe = install().user(install().path("bin/urxe"));
        urxe.args(["run", "--link", "rxe0=127.79.0.47", "--", "sh", "-c"]);
        // The file may not grow, as on a full disk.
        urxe.arg(format!("trap '' XFSZ; ulimit -f 0; exec timeout 60 {}", program.display()));
        urxe.env("URXE_LOG", "urxe_device=error").env("URXE_CAPTURE", capture);
        text_of(&urxe.output().unwrap())
    };
    let text = run(&capture);
    assert!(text.contains("exit status: 0") && text.contains("the capture ends"), "{text}");
    let text = run(&capture.join("in-a-file"));
    assert!(text.contains("cannot open rxe0=127.79.0.47: URXE_CAPTURE: "), "{text}");
}

//! Any bytes as a capture file, as `urxe decode` reads and prints it.
//!
//! Properties: nothing panics. The number of bytes that a read returns changes no record. Records
//! have no more bytes than the file. An error names a position in the file. The three formats print
//! the same packets, without special characters, and the size of their output is limited by that of
//! the file. Each line of JSON is an object.

use std::io::{self, Read};

use urxe_stack::escape::Escaped;
use urxe_tools::untrusted::{CaptureError, Format, Reader, decode, parse_frame};

/// Bytes of the output for a packet, without its comment. Messages with 92 to 192 bytes of private
/// data have the longest output.
const PACKET: usize = 8192;
/// Bytes of the output for each byte of the file, when each is escaped.
const ESCAPED: usize = 6;

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let (count, error) = read(bytes, bytes);
    // The last byte also determines the length of reads.
    let few = usize::from(bytes.last().copied().unwrap_or(1) % 61) + 1;
    let again = read(Few { rest: bytes, most: few }, bytes);
    assert_eq!((count, &error), (again.0, &again.1), "{few} bytes a read");
    for format in [Format::Lines, Format::Verbose, Format::Json] {
        check_output(bytes, format, count, error.as_deref());
    }
}

/// Reads all records. Returns their number, and the error behind them.
fn read(source: impl Read, file: &[u8]) -> (u64, Option<String>) {
    let mut reader = match Reader::new(source) {
        Ok(reader) => reader,
        Err(error) => return (0, Some(text(&error, file))),
    };
    let (mut count, mut total) = (0, 0);
    loop {
        match reader.next_record() {
            Ok(None) => return (count, None),
            Ok(Some(record)) => {
                count += 1;
                total += record.bytes.len();
                assert!(total <= file.len());
                if let Ok(frame) = parse_frame(record.link_type, record.bytes) {
                    assert!(frame.udp_payload.len() <= record.bytes.len());
                }
            }
            Err(error) => return (count, Some(text(&error, file))),
        }
    }
}

/// Returns the text of an error, after a check of its position.
fn text(error: &CaptureError, file: &[u8]) -> String {
    match *error {
        CaptureError::Empty => assert!(file.is_empty()),
        CaptureError::Truncated { offset, have } => {
            assert_eq!(offset + have as u64, file.len() as u64);
        }
        CaptureError::TooLong { offset }
        | CaptureError::Malformed { offset }
        | CaptureError::NoInterface { offset, .. } => assert!(offset < file.len() as u64),
        CaptureError::NotACapture { .. } => {}
        CaptureError::Open(_) | CaptureError::Read { .. } => panic!("{error}"),
    }
    error.to_string()
}

fn check_output(file: &[u8], format: Format, count: u64, error: Option<&str>) {
    let (printed, result) = decode(file, format);
    match (result, error) {
        (Ok(packets), None) => assert_eq!(packets, count),
        (Err(found), Some(error)) => assert_eq!(found.to_string(), error),
        (result, error) => panic!("{result:?} and {error:?}"),
    }
    assert!(printed.len() <= count as usize * PACKET + file.len() * ESCAPED);
    let printed = String::from_utf8(printed).expect("the output is UTF-8");
    let is_special = |c: char| !c.is_ascii() && Escaped(c).to_string() != c.to_string();
    let is_control = |c: char| c.is_ascii_control() && c != '\n';
    assert!(!printed.contains(|c| is_control(c) || is_special(c)), "{printed:?}");
    let packets = printed.lines().filter(|line| !line.starts_with("      ")).count() as u64;
    match format {
        Format::Lines | Format::Json => assert_eq!(printed.lines().count() as u64, count),
        // The line of the first 99,999 packets begins with a space at most four times.
        Format::Verbose => assert_eq!(packets, count),
    }
    if format == Format::Json {
        for line in printed.lines() {
            let value: serde_json::Value = serde_json::from_str(line).expect("JSON");
            assert!(value.is_object());
        }
    }
}

/// A source whose reads return few bytes, as those of a pipe.
struct Few<'a> {
    rest: &'a [u8],
    most: usize,
}

impl Read for Few<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.most.min(buffer.len());
        self.rest.read(&mut buffer[..len])
    }
}

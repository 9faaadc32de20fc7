//! `urxe decode`: one line for each packet of a capture file.

mod dissect;
mod json;
mod line;
mod verbose;

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::capture::{CaptureError, Reader};
use crate::cmd::{CmdError, Outcome};
use crate::output;

use dissect::{Content, Icrc, Packet};

/// Arguments of `urxe decode`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// The capture, pcap or pcapng; "-" reads standard input
    #[arg(value_name = "FILE.pcap[ng]")]
    file: PathBuf,
    /// Print every header field below each line
    #[arg(short, long, conflicts_with = "json")]
    verbose: bool,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

const AFTER_HELP: &str = "\
A line has: number, seconds since the first packet, addresses, opcode and headers, payload, ICRC.

The ICRC is computed with the captured IP header: \"ICRC ok\", \"ICRC WRONG\", or \"ICRC not \
captured\" for a truncated packet. Other protocols are named, and malformed packets have a reason.

To capture:
  tcpdump -i any -w FILE.pcap udp port 4791";

impl Args {
    /// Decodes the file up to its end, or up to the first damage.
    pub fn run(self) -> Result<Outcome, CmdError> {
        let mut out = output::stdout();
        let file = open(&self.file).map_err(|error| self.failed(error));
        let result = file.and_then(|file| self.decode(file, &mut out));
        out.flush()?;
        let tally = result?;
        if !self.json {
            output::note(&tally.to_string());
        }
        Ok(Outcome::Done)
    }

    /// Decodes and prints the records. Packets before a damaged record are printed.
    fn decode(&self, file: impl Read, out: &mut dyn Write) -> Result<Tally, CmdError> {
        let failed = |error| self.failed(error);
        let mut reader = Reader::new(file).map_err(failed)?;
        let mut tally = Tally::default();
        let mut first_ns = None;
        while let Some(record) = reader.next_record().map_err(failed)? {
            tally.packets += 1;
            let bytes = dissect::as_on_the_wire(&record);
            let packet = Packet::new(tally.packets, &record, &bytes);
            tally.count(&packet);
            first_ns = first_ns.or(record.time_ns);
            if self.json {
                output::json_line(out, &json::object(&packet))?;
                continue;
            }
            line::print(out, &packet, first_ns.unwrap_or(0))?;
            if self.verbose {
                verbose::print(out, &packet)?;
            }
        }
        Ok(tally)
    }

    fn failed(&self, error: CaptureError) -> CmdError {
        let is_stdin = self.file == Path::new("-");
        let name = if is_stdin { "standard input".into() } else { self.file.to_string_lossy() };
        CmdError::Capture { file: name.into_owned(), error }
    }
}

/// Decodes and prints the records of a file up to its end. Returns the number of packets.
pub fn print_all(
    file: impl Read,
    verbose: bool,
    json: bool,
    out: &mut dyn Write,
) -> Result<u64, CmdError> {
    let args = Args { file: PathBuf::new(), verbose, json };
    args.decode(file, out).map(|tally| tally.packets)
}

fn open(path: &Path) -> Result<Box<dyn Read>, CaptureError> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdin().lock()));
    }
    match File::open(path) {
        Ok(file) => Ok(Box::new(file)),
        Err(error) => Err(CaptureError::Open(error)),
    }
}

/// The numbers of packets by kind.
#[derive(Debug, Default)]
struct Tally {
    packets: u64,
    roce: u64,
    malformed: u64,
    icrc_ok: u64,
    icrc_wrong: u64,
}

impl Tally {
    fn count(&mut self, packet: &Packet<'_>) {
        let icrc = match &packet.content {
            Content::Roce { icrc, .. } => {
                self.roce += 1;
                *icrc
            }
            Content::Malformed { icrc, .. } => {
                self.malformed += 1;
                *icrc
            }
            _ => return,
        };
        match icrc {
            Icrc::Ok => self.icrc_ok += 1,
            Icrc::Wrong { .. } => self.icrc_wrong += 1,
            Icrc::NotCaptured => {}
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { packets, roce, malformed, icrc_ok, icrc_wrong } = self;
        let other = packets - roce - malformed;
        write!(f, "{packets} packets: {roce} RoCEv2, {malformed} malformed, {other} other; ")?;
        write!(f, "ICRC {icrc_ok} ok, {icrc_wrong} wrong")
    }
}

#[cfg(test)]
mod tests {
    //! Damaged captures of real kernels. For all bytes, decoding ends with text or with an error
    //! that names a position.

    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::*;

    const CAPTURES: [&[u8]; 4] = [
        include_bytes!("../../../../../wire/testdata/atomic_fa.pcap"),
        include_bytes!("../../../../../wire/testdata/reject.pcap"),
        include_bytes!("../../../../../wire/testdata/rc_pingpong_ipv6.pcap"),
        include_bytes!("../../../../../wire/testdata/udaddy.pcap"),
    ];

    /// Returns the output and the result.
    fn decoded(file: &[u8], verbose: bool, json: bool) -> (String, Result<Tally, CmdError>) {
        let args = Args { file: PathBuf::new(), verbose, json };
        let mut out = Vec::new();
        let result = args.decode(file, &mut out);
        (String::from_utf8(out).unwrap(), result)
    }

    proptest! {
        #[test]
        fn damaged_captures(
            which in any::<Index>(),
            damage in proptest::collection::vec((any::<Index>(), any::<u8>()), 0..40),
            kept in any::<Index>(),
            cut in any::<bool>(),
        ) {
            let mut file = which.get(&CAPTURES).to_vec();
            for (at, value) in damage {
                let at = at.index(file.len());
                file[at] = value;
            }
            if cut {
                file.truncate(kept.index(file.len()));
            }
            let (lines, result) = decoded(&file, false, false);
            if let Ok(tally) = &result {
                prop_assert_eq!(tally.packets, lines.lines().count() as u64);
            } else {
                let is_capture_error = matches!(result, Err(CmdError::Capture { .. }));
                prop_assert!(is_capture_error);
            }
            let (fields, _) = decoded(&file, true, false);
            let numbered = fields.lines().filter(|line| !line.starts_with("      ")).count();
            prop_assert!(numbered >= lines.lines().count().min(1));
            let (objects, _) = decoded(&file, false, true);
            prop_assert_eq!(objects.lines().count(), lines.lines().count());
            for object in objects.lines() {
                prop_assert!(serde_json::from_str::<serde_json::Value>(object).is_ok());
            }
        }
    }
}

//! The parsers of untrusted bytes, with the printing of their results, for the fuzz targets.
//!
//! Captures come from anywhere. Listings come from other processes of the user. All output passes
//! the writer that standard output has.

use std::io::{Read, Write};

use urxe_stack::escape::EscapingWriter;
use urxe_stack::listing::Listing;

pub use crate::capture::link_layer::parse as parse_frame;
pub use crate::capture::{CaptureError, Reader, Record};
use crate::cmd::CmdError;
use crate::cmd::{decode, link};
use crate::output;

/// The output formats of `urxe decode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One line for each packet.
    Lines,
    /// A line for each packet, with its fields below.
    Verbose,
    /// One JSON object for each packet.
    Json,
}

/// Decodes a capture file as `urxe decode` does. Returns the output, and the number of packets or
/// the error after the last packet.
pub fn decode(file: impl Read, format: Format) -> (Vec<u8>, Result<u64, CaptureError>) {
    let (verbose, json) = (format == Format::Verbose, format == Format::Json);
    let mut printed = Vec::new();
    let out = &mut EscapingWriter::new(&mut printed);
    let result = decode::print_all(file, verbose, json, out).map_err(|error| match error {
        CmdError::Capture { error, .. } => error,
        other => unreachable!("decoding to memory fails only for a damaged capture: {other}"),
    });
    (printed, result)
}

/// Prints a listing as `urxe link show --connections` does, as lines or as JSON.
pub fn print_listing(listing: &Listing, as_json: bool) -> Vec<u8> {
    let mut printed = Vec::new();
    let out: &mut dyn Write = &mut EscapingWriter::new(&mut printed);
    let result = match as_json {
        true => output::json_line(out, listing).map_err(CmdError::from),
        false => link::print_listing(out, listing),
    };
    if let Err(error) = result {
        unreachable!("writing to memory cannot fail: {error}");
    }
    printed
}

//! Capture files, classic pcap and pcapng, read one packet at a time.
//!
//! ```text
//! file ──reader──> Record (time, link type, bytes) ──link_layer──> IP packet
//! ```
//!
//! A file may hold any bytes. A violation of the format is a [`CaptureError`] that names the
//! position. The reader returns the packets before that position first.

pub mod link_layer;
pub mod reader;

pub use reader::{CaptureError, Reader, Record};

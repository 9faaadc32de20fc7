//! Capture files: classic pcap and pcapng, read a packet at a time.
//!
//! ```text
//! file ──reader──> Record (time, link type, bytes) ──link_layer──> IP packet
//! ```
//!
//! Any bytes may stand in a file: whatever does not follow the format is a [`CaptureError`] that
//! names the place, and the packets before it have been given out.

pub mod link_layer;
pub mod reader;

pub use reader::{CaptureError, Reader, Record};

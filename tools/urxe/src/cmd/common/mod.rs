//! What subcommands with two ends share.
//!
//! | file | subject |
//! |---|---|
//! | `choose` | which device, and which address the peer process takes |
//! | `connection_error` | why a connection by `rdma_cm` did not work |
//! | `peer` | the other end: a process of this program, or whoever has connected |
//! | `lines` | lines of JSON between the two |
//! | `size` | numbers of bytes, as people write them |
//! | `verb_error` | why a verb did not work, whichever |

pub mod choose;
pub mod connection_error;
pub mod lines;
pub mod peer;
pub mod size;
pub mod verb_error;

use indicatif::{ProgressBar, ProgressStyle};
use urxe::PathMtu;

/// A bar on standard error, if that is a terminal.
pub fn progress_bar(steps: usize) -> ProgressBar {
    let bar = ProgressBar::new(steps as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}") {
        bar.set_style(style);
    }
    bar.tick();
    bar
}

/// `--mtu`.
pub fn path_mtu(text: &str) -> Result<PathMtu, &'static str> {
    let mtu = text.parse().ok().and_then(PathMtu::at_most).filter(|mtu| mtu.to_string() == text);
    mtu.ok_or("a path MTU is 256, 512, 1024, 2048 or 4096")
}

/// An error with its causes.
pub fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let more = inner.to_string();
        if !text.ends_with(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = inner.source();
    }
    text
}

//! The ping-pong programs of `ibverbs-utils`.

use super::{Expects, Pair};

/// A program with its options.
#[derive(Clone, Debug)]
pub struct Pingpong {
    program: &'static str,
    options: Vec<String>,
}

impl Pingpong {
    /// Creates a run without options.
    #[must_use]
    pub fn new(program: &'static str) -> Self {
        Self { program, options: Vec::new() }
    }

    /// Adds options.
    #[must_use]
    pub fn with(mut self, options: &str) -> Self {
        self.options.extend(options.split_whitespace().map(str::to_owned));
        self
    }

    /// Returns the pair.
    #[must_use]
    pub fn pair(self) -> Pair {
        let expects = if self.program == "ibv_xsrq_pingpong" {
            Expects::Line("success")
        } else {
            Expects::Figures
        };
        Pair { program: self.program, options: self.options.join(" "), expects }
    }
}

/// The features and sizes of each program, and the features that work together.
const FEATURES: [(&str, &[&str]); 5] = [
    (
        "ibv_rc_pingpong",
        &[
            "", "-o", "-o -O", "-o -P", "-t", "-j", "-N", "-t -N", "-j -N", "-o -N", "-s 1",
            "-s 4097", "-r 2",
        ],
    ),
    ("ibv_uc_pingpong", &["", "-s 1", "-s 20001"]),
    ("ibv_ud_pingpong", &["", "-s 1", "-s 4096"]),
    ("ibv_srq_pingpong", &["-q 16", "-q 1", "-q 16 -o", "-q 5 -s 20001", "-q 16 -r 32"]),
    ("ibv_xsrq_pingpong", &["", "-o", "-s 1"]),
];

/// Returns each program with every feature and path MTU, with and without `-e`, without `-g` and
/// with each GID index, and with and without validation.
#[must_use]
pub fn all() -> Vec<Pair> {
    let mut pairs = Vec::new();
    for (program, features) in FEATURES {
        let is_xrc = program == "ibv_xsrq_pingpong";
        let checks: &[&str] = if is_xrc { &[""] } else { &["", "-c"] };
        for events in ["", "-e"] {
            // An address handle of RoCE needs a GID, according to rdma-core's own tests.
            let gids: &[&str] = if program == "ibv_ud_pingpong" {
                &["-g 0", "-g 1"]
            } else {
                &["", "-g 0", "-g 1"]
            };
            for gid in gids {
                let usual = || {
                    let some = Pingpong::new(program).with(events).with(gid);
                    if is_xrc { some } else { some.with("-n 100") }
                };
                for feature in features {
                    pairs.extend(
                        checks.iter().map(|check| usual().with(feature).with(check).pair()),
                    );
                }
                // Datagrams have no path MTU option.
                let mtus: &[u32] =
                    if program == "ibv_ud_pingpong" { &[] } else { &[256, 512, 1024, 2048, 4096] };
                let checked = checks[checks.len() - 1];
                pairs.extend(
                    mtus.iter().map(|mtu| {
                        usual().with(checked).with(&format!("-m {mtu} -s 30001")).pair()
                    }),
                );
            }
        }
    }
    pairs
}

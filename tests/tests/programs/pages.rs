//! The commands of README.md and of `docs`, in the order in which the pages have them.
//!
//! Each page gets a fresh home directory, and a shell runs its `sh` blocks as one script. Two kinds
//! of lines differ from the page:
//!
//! - Lines that begin with `cargo` do not run: the installation of the tests stands for `cargo
//!   xtask install`, and cargo's own tests run the examples.
//! - `sleep 1` waits until the server in the background listens. `wait` returns the exit status of
//!   that server.

use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::path::Path;

use tempfile::TempDir;

use crate::install::{NOBODY, install, is_root, ok};
use crate::pair::exclusive;

const PAGES: [&str; 5] =
    ["README.md", "docs/devices.md", "docs/c-programs.md", "docs/captures.md", "docs/manual.md"];

/// The shell functions that stand for `sleep` and `wait`. A server listens on TCP port 18515
/// (0x4853, the ping-pongs), or by `rdma_cm`.
const FUNCTIONS: &str = r#"
sleep() {
    for attempt in $(seq 300); do
        command sleep 0.1
        if grep -qi ':4853 .* 0A ' /proc/net/tcp /proc/net/tcp6; then return; fi
        if urxe link show --connections | grep -q LISTEN; then return; fi
    done
    echo "no server listens" >&2
    return 1
}
wait() {
    command wait "$!"
}
"#;

/// Returns the lines of the page's `sh` blocks.
fn commands(page: &str) -> String {
    let (mut lines, mut is_shell) = (String::new(), false);
    for line in page.lines() {
        if line.starts_with("```") {
            is_shell = line == "```sh";
        } else if is_shell && !line.starts_with("cargo ") {
            lines.push_str(line);
            lines.push('\n');
        }
    }
    lines
}

#[test]
fn the_commands_of_each_page_run_in_their_order() {
    let _exclusive = exclusive();
    for name in PAGES {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
        let commands = commands(&fs::read_to_string(page).unwrap());
        assert!(commands.contains("urxe "), "{name} has commands");
        let home = TempDir::with_prefix("urxe-page-").unwrap();
        symlink(install().path(""), home.path().join(".local")).unwrap();
        if is_root() {
            chown(home.path(), Some(NOBODY.0), Some(NOBODY.1)).unwrap();
        }
        let mut shell = install().user("sh");
        shell.env("HOME", home.path()).current_dir(home.path());
        let path = "export PATH=\"$HOME/.local/bin:$PATH\"";
        ok(shell.args(["-euxc", &format!("{path}\n{FUNCTIONS}\n{commands}")]));
    }
}

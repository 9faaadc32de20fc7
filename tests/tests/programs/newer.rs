//! The programs of Debian 13 (rdma-core 56) and of sid (rdma-core 65), with their own C library,
//! and the tests of their rdma-core, chrooted to folders as the user `nobody`.
//!
//! The tests are not part of the ordinary run, because they download packages: `cargo xtask newer`,
//! as root. `tests/programs/newer` prepares the folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::thread;
use std::time::Duration;

use crate::install::{install, ok, text_of};
use crate::suite::check;
use crate::symbols::unknown_in;

/// An address other than the default, which other processes of this machine may use.
const LINK: &str = "--link rxe0=127.79.0.13";

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/newer").join(name)
}

/// A Debian suite, unpacked.
struct Debian {
    root: PathBuf,
}

static TRIXIE: LazyLock<Debian> = LazyLock::new(|| Debian::with_urxe("trixie"));
static SID: LazyLock<Debian> = LazyLock::new(|| Debian::with_urxe("sid"));

impl Debian {
    /// Finds the folder of the unpacked suite, and copies this build of urxe into it.
    fn with_urxe(suite: &str) -> Self {
        let root = ok(Command::new(script("setup.sh")).args(["--root", suite]));
        let root = PathBuf::from(root.trim());
        assert!(
            root.join("opt/suite").is_dir(),
            "{} is not set up: run cargo xtask newer",
            root.display()
        );
        let urxe = root.join("opt/urxe");
        for file in ["bin/urxe", "lib/liburxe.so", "lib/liburxe_sysfs.so"] {
            let to = urxe.join(file);
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            // An earlier program may still run the old file, so a new file replaces it.
            let _none_is_there = fs::remove_file(&to);
            fs::copy(install().path(file), &to).unwrap();
        }
        fs::copy(script("../suite/run.py"), root.join("opt/suite/run.py")).unwrap();
        Self { root }
    }

    /// Returns a command of `urxe run` with these words in the folder.
    fn run(&self, words: &str) -> Command {
        let mut command = Command::new(script("inside.sh"));
        command.arg(&self.root).args(["urxe", "run"]).args(words.split_whitespace());
        command
    }

    /// Runs rdma-core's tests, of which those of the list must pass.
    #[track_caller]
    fn check_suite(&self, passed_before: &str) {
        // The default device, because the tests of librdmacm get the interface's address from `ip`.
        let words = "-- timeout 300 python3 -B /opt/suite/run.py /opt/suite";
        check(&self.run(words).output().unwrap(), passed_before);
    }

    /// Runs pairs of programs, whose TCP ports begin at `port`.
    #[track_caller]
    fn check_programs(&self, port: u16) {
        assert!(ok(&mut self.run(&format!("{LINK} -- ibv_devices"))).contains("rxe0"));
        let devinfo = ok(&mut self.run(&format!("{LINK} -- ibv_devinfo -v")));
        assert!(devinfo.contains("GID[  1]:\t\t::ffff:127.79.0.13, RoCE v2"));
        for (port, words) in (port..).zip([
            "ibv_rc_pingpong -g 0 -c -p",
            "ibv_ud_pingpong -g 0 -c -p",
            "ibv_srq_pingpong -g 0 -e -p",
            "ib_write_bw -x 0 -F -n 100 -p",
            "ib_send_lat -x 0 -F -n 100 -p",
        ]) {
            let mut server = self.run(&format!("{LINK} -- timeout 60 {words} {port}"));
            let server = server.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            thread::sleep(Duration::from_secs(1));
            let client = self.run(&format!("{LINK} -- timeout 60 {words} {port} localhost"));
            let client = { client }.output().unwrap();
            let server = server.wait_with_output().unwrap();
            let fine = client.status.success() && server.status.success();
            assert!(fine, "{words}\nserver: {}\nclient: {}", text_of(&server), text_of(&client));
        }
    }

    /// Checks that this library has each symbol of the suite's libraries.
    #[track_caller]
    fn check_symbols(&self) {
        let folder = self.root.join(format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH));
        for (library, list) in
            [("libibverbs.so.1", "libibverbs-44.txt"), ("librdmacm.so.1", "librdmacm-44.txt")]
        {
            let unknown = unknown_in(&folder.join(library), list);
            assert!(unknown.is_empty(), "{library}: {unknown:?}");
        }
    }
}

#[test]
#[ignore = "fetches Debian 13's packages: cargo xtask newer"]
fn debian_13s_programs_play_over_urxe() {
    TRIXIE.check_programs(21_500);
}

#[test]
#[ignore = "fetches sid's packages: cargo xtask newer"]
fn sids_programs_play_over_urxe() {
    SID.check_programs(21_510);
}

#[test]
#[ignore = "fetches Debian 13's packages: cargo xtask newer"]
fn the_tests_of_rdma_core_56_pass() {
    TRIXIE.check_suite("passed-56.txt");
}

#[test]
#[ignore = "fetches sid's packages: cargo xtask newer"]
fn the_tests_of_rdma_core_65_pass() {
    SID.check_suite("passed-65.txt");
}

#[test]
#[ignore = "fetches the packages of Debian 13 and sid: cargo xtask newer"]
fn newer_libraries_have_no_symbol_that_is_not_kept() {
    TRIXIE.check_symbols();
    SID.check_symbols();
}

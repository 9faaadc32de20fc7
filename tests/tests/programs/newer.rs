//! Debian 13's programs (rdma-core 56, with their own C library) and its tests, chrooted to a
//! folder as the user `nobody`.
//!
//! The tests are not part of the ordinary run, because they download packages: `cargo xtask newer`,
//! as root. `tests/programs/newer` prepares the folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use crate::install::{install, ok, text_of};
use crate::suite::check;

/// An address other than the default, which other processes of this machine may use.
const LINK: &str = "--link rxe0=127.79.0.13";

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/newer").join(name)
}

/// Returns the folder of the unpacked Debian 13, with this build of urxe in it.
fn root() -> &'static PathBuf {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        let root = PathBuf::from(ok(Command::new(script("setup.sh")).arg("--root")).trim());
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
        root
    })
}

/// Returns a command of `urxe run` with these words in that folder.
fn run(words: &str) -> Command {
    let mut command = Command::new(script("inside.sh"));
    command.arg(root()).args(["urxe", "run"]).args(words.split_whitespace());
    command
}

#[test]
#[ignore = "fetches Debian 13's packages: cargo xtask newer"]
fn debian_13s_programs_play_over_urxe() {
    assert!(ok(&mut run(&format!("{LINK} -- ibv_devices"))).contains("rxe0"));
    assert!(
        ok(&mut run(&format!("{LINK} -- ibv_devinfo -v")))
            .contains("GID[  1]:\t\t::ffff:127.79.0.13, RoCE v2")
    );
    for (port, words) in [
        (21_500, "ibv_rc_pingpong -g 0 -c -p"),
        (21_501, "ibv_ud_pingpong -g 0 -c -p"),
        (21_502, "ibv_srq_pingpong -g 0 -e -p"),
        (21_503, "ib_write_bw -x 0 -F -n 100 -p"),
        (21_504, "ib_send_lat -x 0 -F -n 100 -p"),
    ] {
        let mut server = run(&format!("{LINK} -- timeout 60 {words} {port}"));
        let server = server.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        thread::sleep(Duration::from_secs(1));
        let client =
            run(&format!("{LINK} -- timeout 60 {words} {port} localhost")).output().unwrap();
        let server = server.wait_with_output().unwrap();
        let fine = client.status.success() && server.status.success();
        assert!(fine, "{words}\nserver: {}\nclient: {}", text_of(&server), text_of(&client));
    }
}

#[test]
#[ignore = "fetches Debian 13's packages: cargo xtask newer"]
fn the_tests_of_rdma_core_56_pass() {
    // The default device, because the tests of librdmacm get the interface's address from `ip`.
    let words = "-- timeout 300 python3 -B /opt/suite/run.py /opt/suite";
    check(&run(words).output().unwrap(), "passed-56.txt");
}

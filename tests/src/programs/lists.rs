//! The lists of pairs in CI: one pair of each kind, so that a broken service, option or way of
//! waiting shows within seconds. The long tests run [`pingpong::all`](super::pingpong::all) and
//! [`perftest::all`](super::perftest::all).

use super::perftest::{Perftest, SERVICES};
use super::pingpong::Pingpong;
use super::{Expects, Pair};

fn pingpongs(of: &[(&'static str, &str)]) -> Vec<Pair> {
    of.iter().map(|(program, options)| Pingpong::new(program).with(options).pair()).collect()
}

/// Returns pairs between two processes on the default device.
#[must_use]
pub fn on_one_address() -> Vec<Pair> {
    let mut pairs = pingpongs(&[
        ("ibv_rc_pingpong", "-c"),
        ("ibv_rc_pingpong", "-g 0 -e -c -n 300"),
        ("ibv_rc_pingpong", "-g 1 -m 256 -c -s 100000 -n 100"),
        ("ibv_rc_pingpong", "-g 0 -m 4096 -c -s 1048576 -n 20"),
        ("ibv_rc_pingpong", "-g 0 -e -t -c -n 300"),
        ("ibv_rc_pingpong", "-g 0 -N -o -c -n 100"),
        ("ibv_rc_pingpong", "-g 0 -N -j -c -n 100"),
        ("ibv_uc_pingpong", "-g 0 -c -n 300"),
        ("ibv_ud_pingpong", "-g 1 -c -n 300"),
        ("ibv_ud_pingpong", "-g 0 -e -c -s 4096 -n 300"),
        ("ibv_srq_pingpong", "-g 0 -q 16 -c -n 300"),
        ("ibv_srq_pingpong", "-g 1 -e -n 300"),
        ("ibv_xsrq_pingpong", "-g 0"),
        ("ibv_xsrq_pingpong", "-g 1 -e"),
    ]);
    let new = |program, service| Perftest::new(program, service);
    pairs.extend([
        new("ib_write_bw", "RC").all_sizes().pair(),
        new("ib_write_bw", "UC").qps(4).with("-b -l 8").pair(),
        new("ib_write_bw", "XRC").with("-I 64").size(64).pair(),
        new("ib_read_bw", "RC").size(1_000_001).with("-b -e").pair(),
        new("ib_read_bw", "XRC").qps(2).pair(),
        new("ib_send_bw", "RC").qps(4).size(64).with("-b -e -I 64").pair(),
        new("ib_send_bw", "UC").size(65_536).pair(),
        new("ib_send_bw", "UD").with("-l 8 -x 0").pair(),
        new("ib_send_bw", "XRC").with("-b").pair(),
        new("ib_send_bw", "RC").qps(2).with("--use-srq -r 64 -e").pair(),
        new("ib_atomic_bw", "RC").with("-A CMP_AND_SWAP").pair(),
        new("ib_atomic_bw", "XRC").pair(),
        new("ib_write_lat", "RC").size(1).pair(),
        new("ib_write_lat", "UC").with("-x 1").pair(),
        new("ib_write_lat", "XRC").pair(),
        new("ib_read_lat", "RC").size(65_536).pair(),
        new("ib_send_lat", "RC").with("-e").pair(),
        new("ib_send_lat", "UD").size(64).pair(),
        new("ib_send_lat", "XRC").pair(),
        new("ib_atomic_lat", "RC").with("-A FETCH_AND_ADD").pair(),
    ]);
    pairs
}

/// Returns pairs between two processes, each on an address of its own.
#[must_use]
pub fn on_two_addresses() -> Vec<Pair> {
    let mut pairs = pingpongs(&[
        ("ibv_rc_pingpong", "-g 0 -e -c -n 300"),
        ("ibv_ud_pingpong", "-g 1 -c -n 300"),
    ]);
    pairs.extend([
        Perftest::new("ib_send_bw", "UC").size(65_536).with("-x 0").pair(),
        Perftest::new("ib_write_bw", "RC").qps(4).size(65_536).with("-b -x 0").pair(),
    ]);
    pairs
}

/// Returns pairs of the program `tests/programs/exchange.c`, compiled against Debian's headers: a
/// SEND, a READ and a WRITE.
#[must_use]
pub fn exchanges() -> Vec<Pair> {
    let expects = Expects::Line("all as expected");
    let exchange = |options: &str| Pair {
        program: "exchange",
        options: options.to_owned(),
        expects: expects.clone(),
    };
    ["-s 1", "-s 4096", "-m 4096 -s 1000001"].map(exchange).into()
}

/// Returns pairs between urxe and a kernel in both roles. The list is short because emulated
/// machines are slow.
#[must_use]
pub fn with_kernels() -> Vec<Pair> {
    let mut pairs = pingpongs(&[
        ("ibv_rc_pingpong", "-c -s 20001 -n 20"),
        ("ibv_uc_pingpong", "-e -c -n 20"),
        ("ibv_ud_pingpong", "-c -n 20"),
        ("ibv_srq_pingpong", "-q 16 -c -n 20"),
    ]);
    pairs.extend([
        few("ib_write_bw", "RC").qps(2).with("-b").pair(),
        few("ib_send_bw", "UD").with("-e").pair(),
        few("ib_read_lat", "RC").size(5000).pair(),
        few("ib_atomic_bw", "RC").pair(),
    ]);
    pairs.extend(exchanges().pop());
    pairs
}

/// Returns pairs whose regions at both ends are on demand (`IBV_ACCESS_ON_DEMAND`).
///
/// Linux 7.3.4 stores wrong data if a message of five pages arrives in packets of 1024 bytes, also
/// from another kernel. So the pair with checked pages has the path MTU 4096.
#[must_use]
pub fn on_demand() -> Vec<Pair> {
    let mut pairs = pingpongs(&[
        ("ibv_rc_pingpong", "-o -c -m 4096 -s 20001 -n 20"),
        ("ibv_srq_pingpong", "-o -q 16 -c -n 20"),
    ]);
    pairs.extend([
        few("ib_send_bw", "RC").size(20_000).with("--odp").pair(),
        few("ib_send_lat", "UD").with("--odp").pair(),
        few("ib_write_bw", "RC").size(20_000).with("--odp").pair(),
        few("ib_read_lat", "RC").size(20_000).with("--odp").pair(),
    ]);
    pairs
}

/// Returns pairs of SENDs, WRITEs, READs and atomics over reliable connections.
#[must_use]
pub fn with_each_operation() -> Vec<Pair> {
    let mut pairs = pingpongs(&[("ibv_rc_pingpong", "-c -s 20001 -n 20")]);
    pairs.extend([
        few("ib_write_bw", "RC").size(20_000).pair(),
        few("ib_read_bw", "RC").size(20_000).pair(),
        few("ib_atomic_bw", "RC").pair(),
    ]);
    pairs
}

fn few(program: &'static str, service: &'static str) -> Perftest {
    Perftest::new(program, service).messages(16)
}

/// Returns pairs with all programs, services and options that a kernel supports.
#[must_use]
pub fn all_with_kernels() -> Vec<Pair> {
    let mut pairs = Vec::new();
    for program in ["ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_srq_pingpong", "ibv_ud_pingpong"] {
        let usual = |options: &str| Pingpong::new(program).with("-c -n 20").with(options);
        for events in ["", "-e"] {
            // Datagrams have no path MTU option.
            let each: &[&str] = match program {
                "ibv_ud_pingpong" => &["-s 1", "-s 4096"],
                _ => &[
                    "-s 1",
                    "-m 256 -s 20001",
                    "-m 512 -s 20001",
                    "-m 1024 -s 20001",
                    "-m 2048 -s 20001",
                    "-m 4096",
                ],
            };
            pairs.extend(each.iter().map(|options| usual(options).with(events).pair()));
        }
    }
    pairs.extend(
        ["-q 1", "-q 16"]
            .map(|qps| Pingpong::new("ibv_srq_pingpong").with("-c -n 20").with(qps).pair()),
    );
    for (program, services) in SERVICES {
        for service in services.iter().filter(|service| **service != "XRC") {
            let new = || few(program, service);
            let is_bw = program.ends_with("_bw");
            let (writes, sends) = (program.contains("write"), program.contains("send"));
            let options = [
                ("", true),
                ("-e", !writes),
                ("-b", is_bw),
                ("-b -e", is_bw && !writes),
                ("-l 4", is_bw),
                ("-I 64", writes || sends),
                ("--use-srq -r 512", sends && *service != "UC"),
                ("-m 256", true),
            ];
            for (option, _) in options.iter().filter(|(_, has)| *has) {
                let size = if option.contains("-I") { 64 } else { 2048 };
                // Datagrams fit the path MTU.
                let size = if *service == "UD" && option.contains("-m") { 256 } else { size };
                pairs.push(new().size(size).with(option).pair());
            }
            if is_bw {
                pairs.push(new().qps(4).with("-b").pair());
            }
            if !program.contains("atomic") {
                pairs.push(new().messages(8).all_sizes().pair());
            }
        }
    }
    pairs.extend(
        ["CMP_AND_SWAP", "FETCH_AND_ADD"]
            .map(|kind| few("ib_atomic_lat", "RC").with("-A").with(kind).pair()),
    );
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::{perftest, pingpong};

    #[test]
    fn the_lists_are_short_and_the_longer_ones_are_without_repetition() {
        assert!(on_one_address().len() + on_two_addresses().len() <= 40);
        let mut all: Vec<String> =
            pingpong::all().iter().chain(&perftest::all()).map(ToString::to_string).collect();
        let count = all.len();
        assert!(count > 800, "{count}");
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}

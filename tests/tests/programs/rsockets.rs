//! The programs of `rdmacm-utils` that use rsockets, and Debian's preload library, which replaces a
//! program's own sockets by rsockets: two processes on one device.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::connections::{ADDRESS, client, command, end, piped, run_pair};
use crate::install::{compile_as, install, text_of};
use crate::pair::exclusive;

/// The length of the copied file, in bytes.
const FILE: usize = 100_000_000;
/// The UDP port of udpong, as `/proc/net/udp` prints it.
const UDPONG: &str = ":1C06";
/// A port that differs from the default of the package's programs.
const PORT: &str = "-p 18471";
const PRELOAD: &str = "/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so";
/// The address of the program of the Rust API.
const RUST_ADDRESS: &str = "127.79.0.9";
/// The time limit for a server to listen: far more than needed.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Runs a program that is server without `-s` and client with `-s`, and checks the row that both
/// print.
#[track_caller]
fn stream(program: &str, options: &str, line: &str) {
    let words = format!("{program} {PORT} -b {ADDRESS} {options}");
    for end in run_pair(&words, &format!("{program} {PORT} {options} -s {ADDRESS}")) {
        assert!(end.contains(line), "{words}\n{end}");
    }
}

#[test]
fn rstream_in_every_mode() {
    for mode in ["", "-T a", "-T b", "-T n", "-T r", "-T v"] {
        stream("rstream", &format!("-S 3000 -C 60 -I 3 {mode}"), "custom    2.9k");
    }
    stream("rstream", "-T v -S 1000000 -C 10 -I 2", "custom    976k");
    // Small buffers, no inline data, keepalives.
    stream("rstream", "-T v -S 50000 -C 10 -I 2 -B 8192 -i 0 -k 1", "custom    48");
}

/// Starts `urxe-stream`, an `RdmaStream` of the Rust API, on an address of its own.
fn rust_stream(options: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_urxe-stream"));
    command.env("URXE_DEVICES", format!("rxe0={RUST_ADDRESS}")).args(options.split(' '));
    piped(command)
}

/// Runs a program of rdma-core and `urxe-stream`, each as server of the other. Both verify every
/// byte.
#[track_caller]
fn serve_each_other(program: &str, option: &str) {
    let _exclusive = exclusive();
    // Building the library takes longer than a server waits.
    install();
    for (sizes, row) in
        [("-S 1000000 -C 10 -I 2", "custom    976k"), ("-S 50 -C 2000 -I 1", "custom    50")]
    {
        let options = format!("{sizes}{option}");
        let mut serving =
            rust_stream(&format!("-b {RUST_ADDRESS}:18472 {options}")).spawn().unwrap();
        let mut lines = BufReader::new(serving.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "listening");
        let client = client(&format!("{program} -p 18472 -T v {sizes} -s {RUST_ADDRESS}"));
        assert!(client.contains(row), "{client}");
        assert_eq!(lines.next().unwrap().unwrap(), "every byte is as expected");
        assert!(serving.wait().unwrap().success());

        let serving = command(&format!("{program} {PORT} -b {ADDRESS} -T v {sizes}")).spawn();
        // A client waits four seconds for a host without a device, and 50 ms for a listener.
        let ip = u32::from_ne_bytes(ADDRESS.parse::<Ipv4Addr>().unwrap().octets());
        wait_for_udp(&format!("{ip:08X}:12B7"));
        let client = rust_stream(&format!("-s {ADDRESS}:18471 {options}")).output().unwrap();
        assert!(client.status.success(), "{}", text_of(&client));
        let served = serving.unwrap().wait_with_output().unwrap();
        assert!(served.status.success(), "{}", text_of(&served));
        assert!(text_of(&served).contains(row), "{}", text_of(&served));
    }
}

#[test]
fn rstream_and_a_stream_of_the_rust_api_serve_each_other() {
    serve_each_other("rstream", "");
}

#[test]
fn riostream_and_a_stream_of_the_rust_api_write_memory_of_each_other() {
    serve_each_other("riostream", " --mapped");
}

#[test]
fn riostream_writes_mapped_memory() {
    for mode in ["-T v", "-T a", "-T b", "-T n"] {
        stream("riostream", &format!("-S 3000 -C 60 -I 3 {mode}"), "custom    2.9k");
    }
    stream("riostream", "-T v -S 1000000 -C 10 -I 2", "custom    976k");
}

#[test]
fn rcopy_copies_a_file() {
    let _exclusive = exclusive();
    let home = install().path("home");
    let (from, to) = (home.join("rcopy-from"), home.join("rcopy-to"));
    // No two words of the file are equal.
    let bytes: Vec<u8> = (0..FILE as u32 / 4)
        .flat_map(|word| word.wrapping_mul(0x9e37_79b1).to_le_bytes())
        .collect();
    fs::write(&from, &bytes).unwrap();
    let server = command("rcopy").spawn().unwrap();
    client(&format!("rcopy {} {ADDRESS}:{}", from.display(), to.display()));
    assert!(fs::read(&to).unwrap() == bytes, "the copy differs");
    end(server);
    fs::remove_file(from).unwrap();
    fs::remove_file(to).unwrap();
}

/// Waits until a socket has this UDP port.
fn wait_for_udp(port: &str) {
    let started = Instant::now();
    while !fs::read_to_string("/proc/net/udp").unwrap().contains(port) {
        assert!(started.elapsed() < TIMEOUT, "no server listens");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn udpong_sends_datagrams_in_every_mode() {
    let _exclusive = exclusive();
    for mode in ["", "-T a", "-T b", "-T n", "-T e"] {
        let server = command(&format!("udpong -b {ADDRESS} {mode}")).spawn().unwrap();
        wait_for_udp(UDPONG);
        let table = client(&format!("udpong -s {ADDRESS} -S 1000 -C 50 {mode}"));
        assert!(table.contains("custom    1000"), "{mode}\n{table}");
        end(server);
    }
}

/// iperf3 has no support for RDMA. It waits by `select`, and sets options of TCP.
#[test]
fn the_preload_library_makes_rsockets_of_sockets() {
    let preloaded = format!("env LD_PRELOAD={PRELOAD} iperf3");
    let [server, client] = run_pair(
        &format!("{preloaded} -s -1 -B {ADDRESS}"),
        &format!("{preloaded} -c {ADDRESS} -n 20M -J"),
    );
    assert!(
        server.contains("connected to") && client.contains("\"sum_received\""),
        "{server}\n{client}"
    );
    let result: serde_json::Value =
        serde_json::from_str(&client[client.find('{').unwrap()..]).unwrap();
    let received = result["end"]["sum_received"]["bytes"].as_f64().unwrap();
    assert!(received >= 20e6, "{client}");
}

/// Returns the preload library together with `accept4`, which Debian 12's library lacks.
fn preloads() -> String {
    let accept4 = compile_as("accept4", "lib/accept4.so", &["-shared", "-fPIC"]);
    format!("env LD_PRELOAD={}:{PRELOAD}", accept4.display())
}

/// Python's HTTP server polls, and has a thread for each client.
#[test]
fn pythons_http_server_serves_clients() {
    let _exclusive = exclusive();
    let (preload, home) = (preloads(), install().path("home"));
    // More than buffers hold, and no two lines are equal.
    let page: String = (0..200_000).map(|word: u32| format!("{word:x}\n")).collect();
    fs::write(home.join("page.txt"), &page).unwrap();
    let fetch = format!(
        "import urllib.request\n\
         reply = urllib.request.urlopen('http://{ADDRESS}:18480/page.txt', timeout=20)\n\
         print(reply.read().decode())"
    );
    fs::write(home.join("fetch.py"), fetch).unwrap();
    let words = format!("{preload} /usr/bin/python3 -u -m http.server --bind {ADDRESS} 18480");
    let server = command(&words).spawn().unwrap();
    for _ in 0..3 {
        let text =
            client(&format!("{preload} /usr/bin/python3 {}", home.join("fetch.py").display()));
        assert!(text.contains(&page), "{} bytes, not {}", text.len(), page.len());
    }
    let text = end(server);
    assert_eq!(text.matches("\"GET /page.txt HTTP/1.1\" 200").count(), 3, "{text}");
}

/// netcat shuts its side down when its input ends, and continues to read.
#[test]
fn netcat_copies_to_a_listening_netcat() {
    let _exclusive = exclusive();
    let (preload, home) = (preloads(), install().path("home"));
    let bytes: Vec<u8> =
        (0..75_000_u32).flat_map(|word| word.wrapping_mul(0x9e37_79b1).to_le_bytes()).collect();
    let [from, to] = ["netcat-from", "netcat-to"].map(|name| home.join(name));
    fs::write(&from, &bytes).unwrap();
    // The output goes into a file, because no process reads a pipe while the client runs.
    let server = format!("{preload} nc.openbsd -N -l {ADDRESS} 18481");
    let mut server = command(&server).stdout(fs::File::create(&to).unwrap()).spawn().unwrap();
    let mut tries = 0;
    while !command(&format!("{preload} nc.openbsd -N {ADDRESS} 18481"))
        .stdin(fs::File::open(&from).unwrap())
        .status()
        .unwrap()
        .success()
    {
        tries += 1;
        assert!(tries < 20, "no server listens");
        thread::sleep(Duration::from_millis(200));
    }
    assert!(server.wait().unwrap().success());
    let copied = fs::read(&to).unwrap();
    assert!(copied == bytes, "{} bytes", copied.len());
}

//! `urxe pingpong --listen` and `--connect` against a substitute for Debian's `ibv_rc_pingpong`.
//! The substitute behaves as that program:
//!
//! - The exchange uses the same `read` and `write` calls.
//! - The order of work requests is the same.
//! - One buffer serves both directions. Its initial value is 0x7b; with `-c` the first byte of each
//!   page is 0.
//!
//! Facts: rdma-core, `libibverbs/examples/rc_pingpong.c`. The tests with kernels run the program
//! itself.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use urxe::{
    Access, ConnectOptions, Device, Gid, MemoryRegion, PathMtu, Psn, QpEndpoint, Qpn, QueuePair,
    RecvRequest, SendRequest,
};

use crate::common::{Listening, Run, run};

const PORT: u16 = 18515;
const PAGE: usize = 4096;
const RECV_WRID: u64 = 1;
const SEND_WRID: u64 = 2;

/// The options of the substitute.
#[derive(Clone, Copy)]
struct Options {
    size: usize,
    iters: u32,
    mtu: PathMtu,
    rx_depth: u32,
    /// `-c`
    chk: bool,
    /// `-g`
    gid: bool,
    /// A fault of the substitute: in this iteration, it changes this byte of the received data.
    flips: Option<(u32, usize)>,
    /// Time limit for a completion. The program itself has no limit.
    timeout: Duration,
}

impl Options {
    fn new(size: usize, iters: u32) -> Self {
        Self {
            size,
            iters,
            mtu: PathMtu::Mtu1024,
            rx_depth: 500,
            chk: true,
            gid: true,
            flips: None,
            timeout: Duration::from_secs(30),
        }
    }

    fn arguments(&self) -> String {
        format!("-s {} -n {} -m {}", self.size, self.iters, self.mtu)
    }
}

/// The program's context.
struct Ibv {
    options: Options,
    qp: QueuePair,
    buf: MemoryRegion,
    connect: ConnectOptions,
    pending: u64,
}

impl Ibv {
    fn new(address: &str, options: Options) -> Self {
        let device = Device::open_address(address.parse::<std::net::Ipv4Addr>().unwrap()).unwrap();
        let pd = device.alloc_pd().unwrap();
        let buf = pd.allocate(options.size, Access::LOCAL_WRITE).unwrap();
        buf.write(0, &vec![0x7b; options.size]).unwrap();
        let cq = device.create_cq(options.rx_depth + 1).unwrap();
        let qp = pd.queue_pair(&cq).max_send_wr(1).max_recv_wr(options.rx_depth).create().unwrap();
        let connect = ConnectOptions::new()
            .path_mtu(options.mtu)
            .max_rd_atomic(1)
            .max_dest_rd_atomic(1)
            .access(Access::empty())
            .hop_limit(1);
        qp.init(&connect).unwrap();
        let ibv = Self { options, qp, buf, connect, pending: RECV_WRID };
        ibv.post_recv(options.rx_depth);
        ibv
    }

    fn post_recv(&self, count: u32) {
        for _ in 0..count {
            let into = self.buf.slice(..).unwrap();
            self.qp.post_recv(&RecvRequest::new(into).wr_id(RECV_WRID)).unwrap();
        }
    }

    fn post_send(&self) {
        let data = self.buf.slice(..).unwrap();
        self.qp.post_send(&SendRequest::send(data).wr_id(SEND_WRID).signaled()).unwrap();
    }

    /// Returns the address as 52 bytes.
    fn message(&self) -> Vec<u8> {
        let QpEndpoint { gid, qpn, psn } = self.qp.endpoint();
        let gid = if self.options.gid { gid } else { Gid::ZERO };
        let mut text = format!("{:04x}:{:06x}:{:06x}:", 0, qpn.value(), psn.value());
        gid.0.iter().for_each(|byte| text.push_str(&format!("{byte:02x}")));
        text.push('\0');
        text.into_bytes()
    }

    fn join(&self, message: &[u8]) {
        let text = std::str::from_utf8(message).unwrap().trim_end_matches('\0');
        let fields: Vec<_> = text.split(':').collect();
        let number = |field: &str| u32::from_str_radix(field, 16).unwrap();
        let [lid, qpn, psn, gid] = fields[..] else { panic!("{text}") };
        assert_eq!((lid.len(), qpn.len(), psn.len(), gid.len()), (4, 6, 6, 32));
        let gid = Gid(u128::from_str_radix(gid, 16).unwrap().to_be_bytes());
        let peer =
            QpEndpoint { gid, qpn: Qpn::new(number(qpn)).unwrap(), psn: Psn::new(number(psn)) };
        self.qp.connect(&peer, &self.connect).unwrap();
    }

    fn serve(self, listener: &TcpListener) -> Result<(), String> {
        let (mut stream, _) = listener.accept().unwrap();
        let message = read_once(&mut stream);
        assert_eq!(message.len(), 52);
        self.join(&message);
        stream.write_all(&self.message()).unwrap();
        assert_eq!(read_once(&mut stream).len(), 5);
        drop(stream);
        self.play(false)
    }

    fn connect(mut self, host: &str) -> Result<(), String> {
        let mut stream = TcpStream::connect((host, PORT)).unwrap();
        stream.write_all(&self.message()).unwrap();
        let message = read_once(&mut stream);
        assert_eq!(message.len(), 52);
        stream.write_all(b"done\0").unwrap();
        drop(stream);
        self.join(&message);
        if self.options.chk {
            for page in (0..self.options.size).step_by(PAGE) {
                self.buf.write(page, &[0]).unwrap();
            }
        }
        self.post_send();
        self.pending |= SEND_WRID;
        self.play(true)
    }

    /// Runs the message loop. Fails with the first error.
    fn play(mut self, is_client: bool) -> Result<(), String> {
        let iters = self.options.iters;
        let (mut sent, mut received, mut posted) = (0, 0, self.options.rx_depth);
        let mut last = Instant::now();
        while received < iters || sent < iters {
            let Some(completion) = self.qp.send_cq().poll_one().unwrap() else {
                if last.elapsed() > self.options.timeout {
                    return Err("no completion".to_owned());
                }
                continue;
            };
            last = Instant::now();
            if !completion.status.is_success() {
                return Err(format!("Failed status {}", completion.status));
            }
            if completion.wr_id == RECV_WRID {
                posted -= 1;
                if posted <= 1 {
                    self.post_recv(self.options.rx_depth - posted);
                    posted = self.options.rx_depth;
                }
                if let Some((_, at)) =
                    self.options.flips.filter(|(iteration, _)| *iteration == received)
                {
                    let byte = self.buf.load_u8(at).unwrap();
                    self.buf.write(at, &[byte ^ 1]).unwrap();
                }
                received += 1;
            } else {
                sent += 1;
            }
            self.pending &= !completion.wr_id;
            if sent < iters && self.pending == 0 {
                self.post_send();
                self.pending = RECV_WRID | SEND_WRID;
            }
        }
        if self.options.chk && !is_client {
            for page in (0..self.options.size).step_by(PAGE) {
                if self.buf.load_u8(page).unwrap() != 0 {
                    return Err(format!("invalid data in page {}", page / PAGE));
                }
            }
        }
        Ok(())
    }
}

/// Serializes the tests. Each pair has four polling threads, and more pairs than processors time
/// out.
fn exclusive() -> MutexGuard<'static, ()> {
    static EXCLUSIVE: Mutex<()> = Mutex::new(());
    EXCLUSIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls `read` once with the program's buffer size.
fn read_once(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = [0; 52];
    let len = stream.read(&mut bytes).unwrap();
    bytes[..len].to_vec()
}

fn address(net: u8, host: u8) -> String {
    format!("127.66.{net}.{host}")
}

/// Runs `urxe pingpong --connect` with the substitute as server.
fn against_server(net: u8, options: Options, more: &str) -> (Run, Result<(), String>) {
    let _exclusive = exclusive();
    let ibv = Ibv::new(&address(net, 1), options);
    let listener = TcpListener::bind((address(net, 1), PORT)).unwrap();
    let server = thread::spawn(move || ibv.serve(&listener));
    let (here, there) = (address(net, 2), address(net, 1));
    let arguments = options.arguments();
    let run = run(&format!("pingpong --connect {there} -d {here} {arguments} {more}"));
    (run, server.join().unwrap())
}

/// Runs `urxe pingpong --listen` with the substitute as client.
fn against_client(net: u8, options: Options, more: &str) -> (Run, Result<(), String>) {
    let _exclusive = exclusive();
    let (here, arguments) = (address(net, 1), options.arguments());
    let listening = Listening::start(&format!("pingpong --listen -d {here} {arguments} {more}"));
    let result = Ibv::new(&address(net, 2), options).connect(&here);
    (listening.finish(), result)
}

#[track_caller]
fn verified((run, ibv): (Run, Result<(), String>), iters: u32) {
    let text = run.ok();
    assert!(text.contains(&format!("\n{iters} messages received and verified")), "{text}");
    assert_eq!(ibv, Ok(()));
}

#[track_caller]
fn refused((run, _): (Run, Result<(), String>), why: &str) {
    let stderr = run.fails(1);
    assert!(stderr.contains(why), "{stderr}");
}

#[test]
fn as_client() {
    let sizes = [(1, 20), (2, 20), (4096, 1000), (5000, 100), (1 << 20, 5)];
    for ((size, iters), net) in sizes.into_iter().zip(1..) {
        verified(against_server(net, Options::new(size, iters), ""), iters);
    }
    let options = Options { mtu: PathMtu::Mtu4096, rx_depth: 2, ..Options::new(70_000, 30) };
    verified(against_server(9, options, "-e -r 3"), 30);
}

#[test]
fn as_server() {
    let sizes = [(1, 20), (2, 20), (4096, 1000), (5000, 100), (1 << 20, 5)];
    for ((size, iters), net) in sizes.into_iter().zip(11..) {
        verified(against_client(net, Options::new(size, iters), "-c"), iters);
        // Without -c at either end, the buffer is plain.
        let plain = Options { chk: false, ..Options::new(size, iters) };
        verified(against_client(net + 10, plain, ""), iters);
    }
    let options = Options { mtu: PathMtu::Mtu256, rx_depth: 2, ..Options::new(70_000, 30) };
    verified(against_client(30, options, "-e -r 3"), 30);
}

#[test]
fn a_peer_without_a_gid_is_at_its_tcp_address() {
    let options = Options { gid: false, ..Options::new(100, 10) };
    verified(against_server(31, options, ""), 10);
}

#[test]
fn wrong_bytes_are_found() {
    let timeout = Duration::from_secs(1);
    let options =
        |iteration, at| Options { flips: Some((iteration, at)), timeout, ..Options::new(5000, 10) };
    refused(against_server(33, options(3, 4999), ""), "wrong data: byte 4999 of message 3");
    refused(against_client(34, options(4, 17), ""), "wrong data: byte 17 of message 5");
    let plain = Options { chk: false, timeout, ..Options::new(5000, 10) };
    refused(
        against_client(35, plain, "-c"),
        "wrong data: byte 0 of message 0 is 0x7b and should be 0x00",
    );
}

#[test]
fn different_sizes_are_reported() {
    let ibv = Options { timeout: Duration::from_secs(1), ..Options::new(1000, 10) };
    let _exclusive = exclusive();
    // The substitute sends 1000 bytes, and urxe expects 2000.
    let here = address(37, 1);
    let listening = Listening::start(&format!("pingpong --listen -d {here} -s 2000 -n 10"));
    let _ended = Ibv::new(&address(37, 2), ibv).connect(&here);
    refused((listening.finish(), Ok(())), "message 0 has 1000 bytes instead of 2000");
}

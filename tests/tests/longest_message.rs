//! Messages of the maximum length, 2^31 bytes, through scatter-gather lists of the maximum length,
//! 32 entries. With a path MTU of 256, a message takes 2^23 packets, half of all PSNs.
//!
//! All entries but the last refer to the same memory, so that 256 MiB are enough. The last entry
//! shows that no byte is displaced.

use std::net::Ipv4Addr;
use std::time::Duration;

use urxe::{
    Access, CompletionQueue, ConnectOptions, Device, MemoryRegion, PathMtu, ProtectionDomain,
    QueuePair, RecvRequest, SendRequest,
};

const PIECES: usize = 32;
const PIECE: usize = (1 << 31) / PIECES;
const TIMEOUT: Option<Duration> = Some(Duration::from_secs(120));

struct End {
    qp: QueuePair,
    cq: CompletionQueue,
    /// The region of all pieces but the last, and the region of the last.
    regions: [MemoryRegion; 2],
    _pd: ProtectionDomain,
}

impl End {
    fn new(host: u8, fill: impl Fn(usize, usize) -> u8) -> Self {
        let device = Device::open_address(Ipv4Addr::new(127, 52, 1, host)).unwrap();
        let pd = device.alloc_pd().unwrap();
        let cq = device.create_cq(4).unwrap();
        let qp = pd
            .queue_pair(&cq)
            .max_send_sge(PIECES as u32)
            .max_recv_sge(PIECES as u32)
            .create()
            .unwrap();
        let regions = [0, 1].map(|region| {
            let memory = pd.allocate(PIECE, Access::LOCAL_WRITE).unwrap();
            let bytes: Vec<u8> = (0..PIECE).map(|at| fill(region, at)).collect();
            memory.write(0, &bytes).unwrap();
            memory
        });
        Self { qp, cq, regions, _pd: pd }
    }

    fn pieces(&self) -> [urxe::RegionSlice<'_>; PIECES] {
        std::array::from_fn(|piece| {
            self.regions[usize::from(piece == PIECES - 1)].slice(..).unwrap()
        })
    }
}

/// Returns bytes whose period is no power of two, so that a misplaced packet shows.
fn pattern(region: usize, at: usize) -> u8 {
    (at % 251 + at / 65_537 + region * 101) as u8
}

fn moves_the_longest_message(path_mtu: PathMtu, hosts: [u8; 2]) {
    let (from, to) = (End::new(hosts[0], pattern), End::new(hosts[1], |_, _| 0));
    let options = ConnectOptions::new().path_mtu(path_mtu);
    from.qp.connect(&to.qp.endpoint(), &options).unwrap();
    to.qp.connect(&from.qp.endpoint(), &options).unwrap();

    to.qp.post_recv(&RecvRequest::new(to.pieces())).unwrap();
    from.qp.post_send(&SendRequest::send(from.pieces()).signaled()).unwrap();
    let received = to.cq.wait_one(TIMEOUT).unwrap();
    assert_eq!(received.byte_len, 1 << 31);
    let _sent = from.cq.wait_one(TIMEOUT).unwrap();
    for region in [0, 1] {
        let bytes = to.regions[region].read_vec(0, PIECE).unwrap();
        let wrong = bytes.iter().enumerate().position(|(at, byte)| *byte != pattern(region, at));
        assert_eq!(wrong, None, "in region {region}");
    }
}

#[test]
fn with_the_largest_path_mtu() {
    moves_the_longest_message(PathMtu::Mtu4096, [1, 2]);
}

#[test]
fn with_the_smallest_path_mtu() {
    moves_the_longest_message(PathMtu::Mtu256, [3, 4]);
}

//! A device over UDP with one region between guards and one RC queue pair, moved by one thread.

use std::{
    cell::Cell,
    hash::{BuildHasher as _, RandomState},
    os::fd::AsFd as _,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use urxe_stack::{
    cq::{Completion, Cq},
    device::{Device, DeviceConfig, QpHandle, ReceiveScratch},
    memory::{Access, Buffer, Mr},
    port::{
        Transmit as _,
        udp::{ReceiveBuffers, UdpConfig, UdpPort},
    },
    qp::{
        QpInit,
        attr::{AddressVector, PathMtu, QpAttr, QpAttrMask, QpCap, QpState, QpType},
        wr::{RecvRequest, SendRequest, Sge},
    },
    sys::clock,
};
use urxe_wire::{Gid, Lkey};

use super::{
    Endpoint, PeerConfig, PeerError, Wrong,
    wire::{FILL, pattern},
};

/// Largest message, and all slots together.
pub(super) const BUFFER_MAX: u32 = 8 << 20;

/// Sends outstanding and receives posted.
pub(super) const DEPTH_MAX: u32 = 64;

/// Longer than any retransmission of a test takes, shorter than its time limit.
const STALL_LIMIT: Duration = Duration::from_secs(20);

const GUARD: usize = 4096;

/// The mover looks at the deadlines at least so often: posting may bring an earlier one while it sleeps.
const NAP: Duration = Duration::from_millis(1);

/// See the module.
pub(super) struct Station {
    pub device: Arc<Device>,
    pub cq: Arc<Cq>,
    pub qp: QpHandle,
    pub mr: Mr,
    pub endpoint: Endpoint,
    buffer: Buffer,
    sges: u32,
    port: Arc<UdpPort>,
    last_completion: Cell<Instant>,
    stop: Arc<AtomicBool>,
    mover: Option<JoinHandle<()>>,
}

impl Station {
    /// Opens the port, makes everything, brings the queue pair to INIT. `inline`: bytes that a send may carry inline.
    pub(super) fn open(config: &PeerConfig, inline: u32) -> Result<Self, PeerError> {
        let port = Arc::new(UdpPort::open(UdpConfig::new(config.address))?);
        let gid = Gid::from_ip(config.address);
        let device = Arc::new(Device::new(DeviceConfig {
            max_run_segments: port.max_run_segments(),
            // The kernel accounts a packet's memory, not its length: about twice, and as much again for other peers.
            read_budget: (port.receive_buffer() / 4) as u64,
            ..DeviceConfig::new(vec![gid, gid], RandomState::new().hash_one(0))
        }));
        let pd = device.alloc_pd().ok_or(PeerError::NoPd)?;
        let buffer = Buffer::new(BUFFER_MAX as usize + 2 * GUARD)?;
        let start = buffer.addr().wrapping_add(GUARD);
        let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        let (memory, iova) = (device.memory(), start as u64);
        // SAFETY: the mapping holds GUARD bytes more on both sides, is the buffer's, which hands out no reference,
        // and outlives the registration: Drop deregisters it first.
        #[expect(unsafe_code, reason = "the stack's registration says what its caller must keep")]
        let mr = unsafe { memory.register(pd, start, BUFFER_MAX as usize, iova, access) }?;
        let cq = device.create_cq(4 * DEPTH_MAX, None, 0)?;
        let qp = device.create_qp(&QpInit {
            qp_type: QpType::Rc,
            pd,
            send_cq: Arc::clone(&cq),
            recv_cq: Arc::clone(&cq),
            cap: QpCap {
                max_send_wr: DEPTH_MAX,
                max_recv_wr: DEPTH_MAX,
                max_send_sge: config.sges,
                max_recv_sge: config.sges,
                max_inline_data: inline,
            },
            sq_sig_all: true,
        })?;
        let attr = QpAttr {
            qp_state: QpState::Init,
            port_num: 1,
            access_flags: Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC,
            ..QpAttr::default()
        };
        let mask = QpAttrMask::STATE | QpAttrMask::PKEY_INDEX | QpAttrMask::PORT | QpAttrMask::ACCESS_FLAGS;
        device.modify_qp(clock::now(), qp, &attr, mask)?;
        let endpoint = Endpoint { lid: 0, qpn: qp.qpn(), psn: device.random_psn(), gid };
        let stop = Arc::new(AtomicBool::new(false));
        let mover = {
            let (device, port, stop) = (Arc::clone(&device), Arc::clone(&port), Arc::clone(&stop));
            std::thread::spawn(move || move_packets(&device, &port, &stop))
        };
        let last_completion = Cell::new(Instant::now());
        Ok(Self {
            last_completion,
            device,
            cq,
            qp,
            mr,
            endpoint,
            buffer,
            sges: config.sges,
            port,
            stop,
            mover: Some(mover),
        })
    }

    /// Brings the queue pair to RTS.
    pub(super) fn connect(
        &self,
        config: &PeerConfig,
        peer: &Endpoint,
        path_mtu: PathMtu,
        rd_atomic: u8,
    ) -> Result<(), PeerError> {
        let to_rtr = QpAttr {
            qp_state: QpState::Rtr,
            ah: AddressVector {
                dgid: peer.gid,
                sgid_index: 1,
                hop_limit: 64,
                port_num: 1,
                is_global: true,
                ..AddressVector::default()
            },
            path_mtu,
            dest_qp_num: peer.qpn,
            rq_psn: peer.psn,
            max_dest_rd_atomic: rd_atomic,
            min_rnr_timer: config.min_rnr_timer,
            ..QpAttr::default()
        };
        let mask = QpAttrMask::STATE
            | QpAttrMask::AV
            | QpAttrMask::PATH_MTU
            | QpAttrMask::DEST_QPN
            | QpAttrMask::RQ_PSN
            | QpAttrMask::MAX_DEST_RD_ATOMIC
            | QpAttrMask::MIN_RNR_TIMER;
        self.device.modify_qp(clock::now(), self.qp, &to_rtr, mask)?;
        let to_rts = QpAttr {
            qp_state: QpState::Rts,
            sq_psn: self.endpoint.psn,
            max_rd_atomic: rd_atomic,
            timeout: config.timeout,
            retry_cnt: config.retry_cnt,
            rnr_retry: config.rnr_retry,
            ..QpAttr::default()
        };
        let mask = QpAttrMask::STATE
            | QpAttrMask::SQ_PSN
            | QpAttrMask::MAX_QP_RD_ATOMIC
            | QpAttrMask::TIMEOUT
            | QpAttrMask::RETRY_CNT
            | QpAttrMask::RNR_RETRY;
        Ok(self.device.modify_qp(clock::now(), self.qp, &to_rts, mask)?)
    }

    /// The region's first address, as the peer names it.
    pub(super) fn addr(&self) -> u64 {
        self.mr.iova
    }

    /// `size` bytes at `offset` of the region, in as many pieces as configured, the last being the largest.
    pub(super) fn pieces(&self, offset: usize, size: u32) -> Vec<Sge> {
        let count = if size < self.sges { size.min(1) } else { self.sges };
        let each = size.checked_div(count).unwrap_or(0);
        (0..count)
            .map(|piece| Sge {
                addr: self.mr.iova + offset as u64 + u64::from(piece * each),
                length: if piece + 1 < count { each } else { size - piece * each },
                lkey: Lkey(self.mr.lkey.value()),
            })
            .collect()
    }

    pub(super) fn post_send(&self, message: u32, request: SendRequest<'_>) -> Result<(), PeerError> {
        if message == 0 {
            self.last_completion.set(Instant::now());
        }
        let now = clock::now();
        let posted = self.device.post_send(now, self.qp, &[request]);
        self.device.transmit_pending(now, &*self.port);
        posted.map_err(|(_, source)| PeerError::Post { message, source })
    }

    pub(super) fn post_recv(&self, message: u32, sges: &[Sge]) -> Result<(), PeerError> {
        let request = RecvRequest { wr_id: u64::from(message), sges };
        let posted = self.device.post_recv(clock::now(), self.qp, &[request]);
        posted.map_err(|(_, source)| PeerError::Post { message, source })
    }

    /// The next completion, if there is one.
    ///
    /// # Errors
    /// [`PeerError::Stalled`] when none has come for [`STALL_LIMIT`].
    pub(super) fn poll(&self) -> Result<Option<Completion>, PeerError> {
        let mut one = [Completion::default()];
        if self.cq.poll(&mut one)? == 1 {
            self.last_completion.set(Instant::now());
            return Ok(Some(one[0]));
        }
        if self.last_completion.get().elapsed() > STALL_LIMIT {
            return Err(PeerError::Stalled { limit: STALL_LIMIT, counters: self.counters() });
        }
        // The mover needs the processor more than this loop does.
        std::thread::yield_now();
        Ok(None)
    }

    /// Fills the whole region as before an operation, and begins to wait for its completions.
    pub(super) fn clear(&self) -> Result<(), PeerError> {
        self.last_completion.set(Instant::now());
        Ok(self.buffer.write(0, &vec![FILL; self.buffer.len()])?)
    }

    /// Writes a message at `offset` of the region.
    pub(super) fn fill(&self, offset: usize, message: u32, size: u32) -> Result<(), PeerError> {
        let bytes: Vec<u8> = (0..size as usize).map(|byte| pattern(message, byte)).collect();
        Ok(self.buffer.write(GUARD + offset, &bytes)?)
    }

    pub(super) fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), PeerError> {
        Ok(self.buffer.write(GUARD + offset, bytes)?)
    }

    pub(super) fn read(&self, offset: usize, size: u32) -> Result<Vec<u8>, PeerError> {
        let mut bytes = vec![0; size as usize];
        self.buffer.read(GUARD + offset, &mut bytes)?;
        Ok(bytes)
    }

    /// The eight bytes at the region's start.
    pub(super) fn counter(&self) -> Result<u64, PeerError> {
        Ok(self.buffer.load_u64(GUARD)?)
    }

    /// Whether `message` stands at `offset`.
    pub(super) fn verify(
        &self,
        offset: usize,
        message: u32,
        size: u32,
    ) -> Result<Result<(), Wrong>, PeerError> {
        let bytes = self.read(offset, size)?;
        let wrong = bytes.iter().enumerate().position(|(byte, &value)| value != pattern(message, byte));
        Ok(wrong.map_or(Ok(()), |byte| Err(Wrong::Byte { message, byte })))
    }

    /// Whether nothing but the first `used` bytes of the region has changed since it was cleared.
    pub(super) fn verify_outside(&self, used: usize) -> Result<Result<(), Wrong>, PeerError> {
        for (from, to) in [(0, GUARD), (GUARD + used, self.buffer.len())] {
            let mut bytes = vec![0; to - from];
            self.buffer.read(from, &mut bytes)?;
            if let Some(at) = bytes.iter().position(|&byte| byte != FILL) {
                return Ok(Err(Wrong::Outside { offset: (from + at) as i64 - GUARD as i64 }));
            }
        }
        Ok(Ok(()))
    }

    /// The device's counters that have moved.
    pub(super) fn counters(&self) -> String {
        let moved = self.device.counters().snapshot().filter(|(_, value)| *value > 0);
        moved.map(|(counter, value)| format!("{} {value}", counter.name())).collect::<Vec<_>>().join(" ")
    }
}

impl Drop for Station {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(mover) = self.mover.take() {
            // It panicked or it did not: either way nothing moves the device any more.
            let _ = mover.join();
        }
        let _ = self.device.forget_qp(clock::now(), self.qp);
        let _ = self.device.memory().deregister(self.mr.lkey);
    }
}

/// Receives, keeps deadlines and sends what they cause, until told to stop.
fn move_packets(device: &Device, port: &UdpPort, stop: &AtomicBool) {
    let mut buffers = ReceiveBuffers::default();
    let mut scratch = ReceiveScratch::default();
    while !stop.load(Ordering::Relaxed) {
        let received = port.receive(&mut buffers).unwrap_or(0);
        let now = clock::now();
        for datagrams in buffers.iter().take(received) {
            device.receive(now, &datagrams, &mut scratch);
        }
        device.handle_timeouts(now);
        device.transmit_pending(now, port);
        if port.errors_pending() {
            port.drain_errors(|_| {});
        }
        if received == 0 {
            let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(NAP.subsec_nanos()) };
            let mut waited = [PollFd::from_borrowed_fd(port.as_fd(), PollFlags::IN)];
            // Interrupted, it looks again a little earlier.
            let _ = poll(&mut waited, Some(&timeout));
        }
    }
}

//! A device over UDP with one region and one RC queue pair.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

use urxe::{
    Access, AckTimeout, Completion, CompletionQueue, ConnectOptions, Device, MemoryRegion,
    MemoryWindow, MwType, PathMtu, ProtectionDomain, QueuePair, RecvRequest, RegionSlice, Rkey,
    RnrTimer, SendRequest,
};

use super::super::Counters;
use super::{
    Mismatch, PeerConfig, PeerError,
    wire::{Endpoint, FILL, pattern},
};

/// The largest message, and the length of all slots, in bytes.
pub(super) const BUFFER_MAX: u32 = 8 << 20;

/// The maximum number of outstanding sends and of posted receives.
pub(super) const DEPTH_MAX: u32 = 64;

/// Longer than any retransmission of a test, shorter than the time limit of a test.
const STALL_LIMIT: Duration = Duration::from_secs(20);

/// The guard bytes before and behind the slots, which the peer must not write.
const GUARD: usize = 4096;

/// The region's first address for peers, with bits above the 32nd, as in real programs.
const IOVA: u64 = 0x7fed_cba0_0000;

/// A device with one region and one queue pair.
pub(super) struct Resources {
    device: Device,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    qp: QueuePair,
    region: MemoryRegion,
    sges: u32,
    last_completion: Cell<Instant>,
}

impl Resources {
    /// Opens the device, creates all objects, and brings the queue pair to INIT. A send may carry
    /// `inline` bytes inline.
    pub(super) fn open(config: &PeerConfig, inline: u32) -> Result<Self, PeerError> {
        let mut builder = Device::builder();
        if config.patient {
            builder = builder.early_timeout_min(Duration::MAX);
        }
        let device = builder.open_address(config.address)?;
        let pd = device.alloc_pd()?;
        let remote = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        let access = Access::LOCAL_WRITE | remote | Access::FLUSH_GLOBAL | Access::MW_BIND;
        let region = pd.allocate_at(BUFFER_MAX as usize + 2 * GUARD, IOVA, access)?;
        let cq = device.create_cq(4 * DEPTH_MAX)?;
        let qp = pd
            .queue_pair(&cq)
            .max_send_wr(2 * DEPTH_MAX)
            .max_recv_wr(DEPTH_MAX)
            .max_send_sge(config.sges)
            .max_recv_sge(config.sges)
            .max_inline_data(inline)
            .signal_all(true)
            .create()?;
        qp.init(&ConnectOptions::default())?;
        let last_completion = Cell::new(Instant::now());
        Ok(Self { device, pd, cq, qp, region, sges: config.sges, last_completion })
    }

    /// Returns the values that the peer needs to connect.
    pub(super) fn endpoint(&self) -> Endpoint {
        Endpoint(self.qp.endpoint())
    }

    /// Brings the queue pair to RTS.
    pub(super) fn connect(
        &self,
        config: &PeerConfig,
        peer: &Endpoint,
        path_mtu: PathMtu,
        rd_atomic: u8,
    ) -> Result<(), PeerError> {
        let options = ConnectOptions::new()
            .path_mtu(path_mtu)
            .timeout(AckTimeout::new(config.timeout).expect("a code of five bits"))
            .retry_cnt(config.retry_cnt)
            .rnr_retry(config.rnr_retry)
            .min_rnr_timer(RnrTimer::new(config.min_rnr_timer).expect("a code of five bits"))
            .max_rd_atomic(rd_atomic)
            .max_dest_rd_atomic(rd_atomic);
        Ok(self.qp.connect(&peer.0, &options)?)
    }

    /// Returns the address of the first slot for the peer.
    pub(super) fn addr(&self) -> u64 {
        self.region.iova() + GUARD as u64
    }

    /// Returns the region's remote key.
    pub(super) fn rkey(&self) -> Rkey {
        self.region.rkey()
    }

    /// Returns `size` bytes at `offset` of the slots, in the configured number of pieces, of which
    /// the last is the largest.
    pub(super) fn pieces(
        &self,
        offset: usize,
        size: u32,
    ) -> Result<Vec<RegionSlice<'_>>, PeerError> {
        let (size, most) = (size as usize, self.sges as usize);
        let count = if size < most { size.min(1) } else { most };
        let each = size.checked_div(count).unwrap_or(0);
        let start = GUARD + offset;
        (0..count)
            .map(|piece| {
                let end = if piece + 1 < count { (piece + 1) * each } else { size };
                Ok(self.region.slice(start + piece * each..start + end)?)
            })
            .collect()
    }

    /// Binds a window over `size` bytes at `offset` of the slots.
    pub(super) fn bind_window(
        &self,
        kind: MwType,
        offset: usize,
        size: u32,
        access: Access,
    ) -> Result<MemoryWindow, PeerError> {
        let mut window = self.pd.alloc_window_of_type(kind)?;
        let part = self.region.slice(GUARD + offset..GUARD + offset + size as usize)?;
        self.post_send(0, &SendRequest::bind(&mut window, part, access))?;
        loop {
            match self.poll()? {
                Some(completion) if completion.status.is_success() => return Ok(window),
                Some(Completion { status, .. }) => return Err(PeerError::Bind { status }),
                None => {}
            }
        }
    }

    pub(super) fn post_send(
        &self,
        message: u32,
        request: &SendRequest<'_>,
    ) -> Result<(), PeerError> {
        if message == 0 {
            self.last_completion.set(Instant::now());
        }
        self.qp.post_send(request).map_err(|source| PeerError::Post { message, source })
    }

    pub(super) fn post_recv(
        &self,
        message: u32,
        pieces: &[RegionSlice<'_>],
    ) -> Result<(), PeerError> {
        let request = RecvRequest::new(pieces).wr_id(u64::from(message));
        self.qp.post_recv(&request).map_err(|source| PeerError::Post { message, source })
    }

    /// Polls the next completion.
    ///
    /// # Errors
    /// [`PeerError::Stalled`] if none has come for [`STALL_LIMIT`].
    pub(super) fn poll(&self) -> Result<Option<Completion>, PeerError> {
        if let Some(completion) = self.cq.poll_one()? {
            self.last_completion.set(Instant::now());
            return Ok(Some(completion));
        }
        if self.last_completion.get().elapsed() > STALL_LIMIT {
            return Err(PeerError::Stalled { limit: STALL_LIMIT, counters: self.counters() });
        }
        // The guests need the processor more than this loop.
        std::thread::yield_now();
        Ok(None)
    }

    /// Fills the whole region with the initial value, and restarts the time limit for completions.
    pub(super) fn clear(&self) -> Result<(), PeerError> {
        self.last_completion.set(Instant::now());
        Ok(self.region.write(0, &vec![FILL; self.region.len()])?)
    }

    /// Writes a message at `offset` of the slots.
    pub(super) fn fill(&self, offset: usize, message: u32, size: u32) -> Result<(), PeerError> {
        let bytes: Vec<u8> = (0..size as usize).map(|byte| pattern(message, byte)).collect();
        Ok(self.region.write(GUARD + offset, &bytes)?)
    }

    pub(super) fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), PeerError> {
        Ok(self.region.write(GUARD + offset, bytes)?)
    }

    pub(super) fn read(&self, offset: usize, size: u32) -> Result<Vec<u8>, PeerError> {
        let mut bytes = vec![0; size as usize];
        self.region.read(GUARD + offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Returns the first eight bytes of the slots.
    pub(super) fn counter(&self) -> Result<u64, PeerError> {
        Ok(self.region.load_u64(GUARD)?)
    }

    /// Returns whether `message` is at `offset`.
    pub(super) fn verify(
        &self,
        offset: usize,
        message: u32,
        size: u32,
    ) -> Result<Result<(), Mismatch>, PeerError> {
        let bytes = self.read(offset, size)?;
        let wrong =
            bytes.iter().enumerate().position(|(byte, &value)| value != pattern(message, byte));
        Ok(wrong.map_or(Ok(()), |byte| Err(Mismatch::Byte { message, byte })))
    }

    /// Returns whether nothing but the first `used` bytes of the slots has changed.
    pub(super) fn verify_outside(&self, used: usize) -> Result<Result<(), Mismatch>, PeerError> {
        for (from, to) in [(0, GUARD), (GUARD + used, self.region.len())] {
            let mut bytes = vec![0; to - from];
            self.region.read(from, &mut bytes)?;
            if let Some(at) = bytes.iter().position(|&byte| byte != FILL) {
                return Ok(Err(Mismatch::Outside { offset: (from + at) as i64 - GUARD as i64 }));
            }
        }
        Ok(Ok(()))
    }

    /// Returns all counters of the device, each name followed by the value.
    pub(super) fn counters(&self) -> String {
        Counters::line_of(&self.device)
    }
}

//! One end: a device with one region, one completion queue and one queue pair.

use std::time::Duration;

use urxe::{
    AckTimeout, Completion, CompletionQueue, ConnectOptions, Device, MemoryRegion, PathMtu,
    QpEndpoint, QueuePair, RecvRequest, RegionSlice, SendRequest,
};

use super::datagrams::{Datagrams, QKEY};
use super::exchange::Address;
use super::protocol::End;
use super::transport::Transport;
use super::{PingpongError, Wrong};
use crate::traffic::error::TrafficError;
use crate::traffic::{ALL_ACCESS, Wait, pattern};

/// Completions taken at a time.
const TAKEN_MAX: usize = 32;

/// The local ACK timeout without `--patient`: 67 ms.
pub const USUAL_TIMEOUT: AckTimeout = AckTimeout::at_least(4096 << 14);

/// The configuration of an endpoint.
#[derive(Clone, Copy, Debug)]
pub struct EndpointConfig {
    /// The service.
    pub transport: Transport,
    /// Bytes of the region.
    pub region_bytes: usize,
    /// Outstanding sends.
    pub depth: u32,
    /// Outstanding receives.
    pub receives: u32,
    /// Outstanding READs and atomics in each direction.
    pub rd_atomic: u8,
    /// The index of the source GID in the device's GID table.
    pub gid_index: u8,
    /// Local ACK timeout.
    pub timeout: AckTimeout,
    /// How the endpoint waits for completions.
    pub wait: Wait,
}

/// One end.
#[derive(Debug)]
pub struct Endpoint {
    qp: QueuePair,
    cq: CompletionQueue,
    region: MemoryRegion,
    datagrams: Option<Datagrams>,
    device: Device,
    config: EndpointConfig,
    /// Completions that [`next`](Self::next) has not returned: `taken[next..count]`.
    taken: [Completion; TAKEN_MAX],
    next: usize,
    count: usize,
    scratch: Vec<u8>,
}

impl Endpoint {
    /// Returns an end where receives can be posted: a connection in INIT, datagrams in RTS.
    ///
    /// # Errors
    /// [`TrafficError`].
    pub fn new(device: Device, config: EndpointConfig) -> Result<Self, TrafficError> {
        let pd = device.alloc_pd()?;
        let region = pd.allocate(config.region_bytes, ALL_ACCESS)?;
        let cq = device.create_cq(config.depth.saturating_add(config.receives))?;
        let qp = pd
            .queue_pair(&cq)
            .qp_type(config.transport.properties().qp_type)
            .max_send_wr(config.depth)
            .max_recv_wr(config.receives)
            .max_send_sge(1)
            .max_recv_sge(2)
            .max_inline_data(0)
            .signal_all(true)
            .sgid_index(config.gid_index)
            .create()?;
        let mut datagrams = None;
        if config.transport == Transport::Ud {
            qp.start_datagrams(QKEY)?;
            datagrams = Some(Datagrams::new(&pd, config.receives, qp.endpoint().gid.to_ip())?);
        } else {
            qp.init(&ConnectOptions::default())?;
        }
        Ok(Self {
            qp,
            cq,
            region,
            datagrams,
            device,
            config,
            taken: [Completion::default(); TAKEN_MAX],
            next: 0,
            count: 0,
            scratch: Vec::new(),
        })
    }

    /// Returns the address that the other end connects to.
    pub fn address(&self) -> Address {
        let QpEndpoint { gid, qpn, psn } = self.qp.endpoint();
        Address { lid: 0, qpn, psn, gid }
    }

    /// Returns the address and region of this end as texts.
    pub fn end(&self) -> End {
        End { address: self.address().to_string(), region: self.region.remote().to_string() }
    }

    /// Returns the memory of its messages.
    pub fn region(&self) -> &MemoryRegion {
        &self.region
    }

    /// Returns the device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Connects to the peer; creates an address handle for datagrams.
    ///
    /// # Errors
    /// [`TrafficError::Connect`] or [`TrafficError::Address`]: the values do not fit the device, or
    /// the two addresses do not fit each other.
    pub fn connect(&mut self, peer: &Address, mtu: PathMtu) -> Result<(), TrafficError> {
        if let Some(datagrams) = &mut self.datagrams {
            return datagrams.connect(self.qp.pd(), peer, self.config.gid_index);
        }
        let options = ConnectOptions::new()
            .path_mtu(mtu)
            .timeout(self.config.timeout)
            .max_rd_atomic(self.config.rd_atomic)
            .max_dest_rd_atomic(self.config.rd_atomic);
        let peer = QpEndpoint { gid: peer.gid, qpn: peer.qpn, psn: peer.psn };
        Ok(self.qp.connect(&peer, &options)?)
    }

    /// Posts a receive of up to `len` bytes at `offset`.
    ///
    /// # Errors
    /// [`TrafficError`].
    pub fn post_recv(&self, wr_id: u64, offset: usize, len: usize) -> Result<(), TrafficError> {
        let into = self.slice(offset, len)?;
        let request = match &self.datagrams {
            Some(datagrams) => RecvRequest::new([datagrams.header(wr_id)?, into]),
            None => RecvRequest::new(into),
        };
        Ok(self.qp.post_recv(&request.wr_id(wr_id))?)
    }

    /// Returns the bytes of a received message, after a check that the peer sent the message.
    ///
    /// # Errors
    /// [`Wrong::Sender`], [`Wrong::Header`]: another sender's datagram.
    pub fn received(&self, completion: &Completion) -> Result<usize, PingpongError> {
        if let Some(datagrams) = &self.datagrams {
            datagrams.check(completion)?;
        }
        let header_len = self.config.transport.properties().header_len;
        Ok((completion.byte_len as usize).saturating_sub(header_len))
    }

    /// Returns the `len` bytes at `offset`, for a work request.
    ///
    /// # Errors
    /// [`TrafficError`].
    pub fn slice(&self, offset: usize, len: usize) -> Result<RegionSlice<'_>, TrafficError> {
        Ok(self.region.slice(offset..offset + len)?)
    }

    /// Posts one work request; a datagram is addressed to the peer.
    ///
    /// # Errors
    /// [`TrafficError`].
    pub fn post(&self, wr_id: u64, request: SendRequest<'_>) -> Result<(), TrafficError> {
        let request = match &self.datagrams {
            Some(datagrams) => datagrams.to_peer(request),
            None => request,
        };
        Ok(self.qp.post_send(&request.wr_id(wr_id))?)
    }

    /// Posts several work requests of a connection.
    ///
    /// # Errors
    /// [`TrafficError`].
    pub fn post_batch(&self, requests: &[SendRequest<'_>]) -> Result<(), TrafficError> {
        Ok(self.qp.post_send_batch(requests)?)
    }

    /// Returns the next completion of any status, or `None` after `limit`.
    ///
    /// # Errors
    /// [`TrafficError`].
    pub fn next(&mut self, limit: Duration) -> Result<Option<Completion>, TrafficError> {
        if self.next == self.count {
            self.next = 0;
            self.count = self.config.wait.take(&self.cq, &mut self.taken, limit)?;
            if self.count == 0 {
                return Ok(None);
            }
        }
        self.next += 1;
        Ok(Some(self.taken[self.next - 1]))
    }

    /// Lets the device receive and reply, without waiting. [`next`](Self::next) returns the
    /// completions.
    ///
    /// # Errors
    /// [`TrafficError`].
    pub fn progress(&mut self) -> Result<(), TrafficError> {
        if self.next == self.count {
            self.next = 0;
            self.count = self.cq.poll(&mut self.taken)?;
        } else {
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Writes message `message` of `size` bytes at `offset`.
    ///
    /// # Errors
    /// [`TrafficError`].
    pub fn fill(&mut self, offset: usize, message: u64, size: usize) -> Result<(), TrafficError> {
        self.scratch.resize(size, 0);
        pattern::fill(message, &mut self.scratch);
        Ok(self.region.write(offset, &self.scratch)?)
    }

    /// Compares the `size` bytes at `offset` with message `message`.
    ///
    /// # Errors
    /// [`PingpongError::Wrong`].
    pub fn check(&mut self, offset: usize, message: u64, size: usize) -> Result<(), PingpongError> {
        self.scratch.resize(size, 0);
        self.region.read(offset, &mut self.scratch)?;
        Ok(pattern::check(message, &self.scratch).map_err(Wrong::from)?)
    }
}

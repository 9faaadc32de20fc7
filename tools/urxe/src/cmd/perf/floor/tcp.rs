//! A TCP stream.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::cmd::perf::error::{PerfError, floor};
use crate::cmd::perf::statistics::Sample;
use crate::traffic::error::unexpected;

/// Bytes of each write and read, as in `iperf3`.
const CHUNK: usize = 128 << 10;
/// Time limit for the connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// One end of the stream.
#[derive(Debug, Default)]
pub struct End {
    listener: Option<TcpListener>,
    stream: Option<TcpStream>,
    buffer: Vec<u8>,
}

impl End {
    /// Listens for the other end.
    pub fn listen(address: IpAddr) -> Result<Self, PerfError> {
        let listener = TcpListener::bind((address, 0)).map_err(floor("cannot listen"))?;
        Ok(Self { listener: Some(listener), ..Self::default() })
    }

    /// Returns the listening address.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// Connects to the end that listens.
    pub fn connect(&mut self, address: SocketAddr) -> Result<(), PerfError> {
        let stream = TcpStream::connect_timeout(&address, CONNECT_LIMIT)
            .map_err(floor("cannot connect a TCP stream"))?;
        stream.set_write_timeout(Some(CONNECT_LIMIT)).map_err(floor("cannot limit a write"))?;
        self.stream = Some(stream);
        self.buffer = vec![0x5a; CHUNK];
        Ok(())
    }

    /// Accepts the stream of the other end, which has connected.
    pub fn accept(&mut self) -> Result<(), PerfError> {
        let Some(listener) = &self.listener else {
            return Err(unexpected("nothing to accept").into());
        };
        let (stream, _) = listener.accept().map_err(floor("cannot accept a TCP stream"))?;
        stream
            .set_read_timeout(Some(Duration::from_millis(20)))
            .map_err(floor("cannot limit a read"))?;
        self.stream = Some(stream);
        self.buffer = vec![0; CHUNK];
        Ok(())
    }

    fn stream(&mut self) -> Result<(&mut TcpStream, &mut [u8]), PerfError> {
        let stream = self.stream.as_mut().ok_or_else(|| unexpected("no TCP stream"))?;
        Ok((stream, &mut self.buffer))
    }

    /// Sends for `time`.
    pub fn send(&mut self, time: Duration) -> Result<Sample, PerfError> {
        let (stream, buffer) = self.stream()?;
        let (start, mut chunks) = (Instant::now(), 0);
        while start.elapsed() < time {
            stream.write_all(buffer).map_err(floor("cannot send by TCP"))?;
            chunks += 1;
        }
        Ok(Sample::moved(chunks, CHUNK, start.elapsed()))
    }

    /// Receives until `is_over` and no more data arrives.
    pub fn receive(&mut self, is_over: &dyn Fn() -> bool) -> Result<Sample, PerfError> {
        let (stream, buffer) = self.stream()?;
        let (mut bytes, mut first, mut last) = (0u64, None, Instant::now());
        loop {
            match stream.read(buffer) {
                Ok(0) => break,
                Ok(len) => {
                    last = Instant::now();
                    first.get_or_insert(last);
                    bytes += len as u64;
                }
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    if is_over() {
                        break;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(floor("cannot receive by TCP")(error)),
            }
        }
        let elapsed = first.map_or(Duration::ZERO, |first| last - first);
        Ok(Sample { messages: bytes / CHUNK as u64, ..Sample::moved(bytes, 1, elapsed) })
    }
}

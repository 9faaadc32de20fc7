//! Two hosts: the listening host executes the commands of the other, over a TCP connection that
//! carries the same lines as the pipes of a peer process.

use std::io::{self, BufReader};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use super::error::PerfError;
use super::protocol::DeviceOptions;
use super::runner::Runner;
use super::{builder, responder};
use crate::output;
use crate::traffic;
use crate::traffic::device::{Choice, address_of};
use crate::traffic::peer::Peer;
use crate::traffic::responder::AtEnd;

/// Time limit for the connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

fn failed(doing: &'static str, at: &impl ToString) -> impl FnOnce(io::Error) -> PerfError {
    let at = at.to_string();
    move |error| PerfError::Host { doing, at, error, remedy: "" }
}

/// Waits for one host and executes its commands. The TCP port is open to the network only if the
/// device is.
///
/// # Errors
/// [`PerfError`].
pub fn listen(choice: &Choice, port: u16) -> Result<(), PerfError> {
    // Opened briefly, to get the address and to check that the device works.
    let address = address_of(&choice.open(&builder(&DeviceOptions::default())?)?)?;
    let at = SocketAddr::new(address, port);
    let listener = TcpListener::bind(at).map_err(failed("cannot listen on TCP", &at))?;
    let at = listener.local_addr().unwrap_or(at);
    output::line(&format!("listening on TCP {at}"));
    let (stream, from) =
        listener.accept().map_err(failed("cannot accept a connection on TCP", &at))?;
    drop(listener);
    let (reader, mut writer) = halves(stream)?;
    responder::execute(reader, &mut writer, Some(choice), AtEnd::Return)
        .map_err(failed("the connection failed to", &from))
}

/// Connects to the host that listens.
///
/// # Errors
/// [`PerfError`].
pub fn connect(
    choice: &Choice,
    host: &str,
    port: u16,
    options: &DeviceOptions,
) -> Result<(Runner, usize), PerfError> {
    let no = |error| PerfError::Host {
        doing: "cannot connect to",
        at: format!("{host}, TCP port {port}"),
        error,
        remedy: "; start `urxe perf --listen` there",
    };
    let stream = traffic::connect(host, port, CONNECT_LIMIT).map_err(|(_, error)| no(error))?;
    let local = stream.local_addr().map_err(no)?.ip().to_canonical();
    let peer: IpAddr = stream.peer_addr().map_err(no)?.ip().to_canonical();
    if choice.is_built_in() && !local.is_loopback() {
        return Err(PerfError::LoopbackOnly { host: peer, local });
    }
    let (reader, writer) = halves(stream)?;
    let mut runner = Runner::new(Peer::connected(reader, writer));
    let device = choice.open(&builder(options)?)?;
    let devices = runner.pair(device, Vec::new(), options)?;
    Ok((runner, devices))
}

fn halves(stream: TcpStream) -> Result<(BufReader<TcpStream>, TcpStream), PerfError> {
    let this = "this host";
    stream.set_nodelay(true).map_err(failed("cannot set up the connection of", &this))?;
    let reader = stream.try_clone().map_err(failed("cannot set up the connection of", &this))?;
    Ok((BufReader::new(reader), stream))
}

//! Files of this machine into a guest, which has no disk in common with it.

use std::io::Write as _;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use urxe_tests::kernel::{Error, Guest};

use crate::case::Failure;

const PORT: u16 = 9099;
const LIMIT: Duration = Duration::from_secs(180);

/// Copies a file to `folder` in the guest, under its own name.
///
/// # Errors
/// [`Failure`]: it cannot be read here, or not all of it has arrived there.
pub fn bring(guest: &Guest, file: &Path, folder: &str) -> Result<(), Failure> {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let io =
        |source| Error::Io { action: format!("copy {} into the guest", file.display()), source };
    let bytes = std::fs::read(file).map_err(io)?;
    let receiving = guest.start(&format!(
        "mkdir -p {folder} && cd {folder} && nc -l -p {PORT} >{name} && wc -c <{name}"
    ))?;
    guest.wait_listening(PORT)?;
    let mut to_guest = TcpStream::connect(SocketAddr::new(guest.v4(), PORT)).map_err(io)?;
    to_guest.write_all(&bytes).and_then(|()| to_guest.shutdown(Shutdown::Write)).map_err(io)?;
    let output = receiving.finish(LIMIT)?.ok()?;
    if output.trim() == bytes.len().to_string() {
        return Ok(());
    }
    let wanted = format!("{} bytes", bytes.len());
    Err(Failure::Unsaid { command: "nc".to_owned(), output, wanted })
}

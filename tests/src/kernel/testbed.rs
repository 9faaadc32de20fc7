//! The whole of it: requirements, network, guests, and a folder for what they leave behind.

use std::{
    ffi::OsString,
    fs,
    os::unix::fs::{PermissionsExt as _, chown},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU16, Ordering},
    thread,
};

use super::{
    Capture, Error, Guest, HostCommand, Image, Kernel, Network, Requirements, Series,
    error::Context as _, image::OwnPrograms,
};

/// Jumbo frames, so that each path MTU up to 4096 fits.
const MTU: u16 = 9000;

/// Guests on one bridge. Dropping it ends them and removes everything but the captures kept.
#[derive(Debug)]
pub struct Testbed {
    // Dropped in this order: guests leave the network before it goes.
    guests: Vec<Guest>,
    network: Network,
    folder: tempfile::TempDir,
    next_port: AtomicU16,
}

impl Testbed {
    /// Boots a guest of each series, all at once, on one bridge in a new network namespace, which
    /// the calling thread enters. Call it on the main thread, before others start.
    ///
    /// # Errors
    /// [`Error::Missing`] with all that the machine lacks; else the step that failed.
    pub fn open(series: &[Series]) -> Result<Self, Error> {
        let requirements = Requirements::check()?;
        let folder = tempfile::Builder::new()
            .prefix("urxe-k-")
            .tempdir()
            .context(|| "make a folder".to_owned())?;
        // Unprivileged commands run programs from here.
        set_mode(folder.path(), 0o755)?;
        let home = folder.path().join("home");
        fs::create_dir(&home).context(|| format!("make {}", home.display()))?;
        chown(&home, Some(65534), Some(65534)).context(|| format!("chown {}", home.display()))?;

        let own = OwnPrograms::compile(&requirements, folder.path())?;
        let kernels = series
            .iter()
            .map(|&each| Kernel::find(&requirements, each))
            .collect::<Result<Vec<_>, _>>()?;
        let images = thread::scope(|scope| {
            let builders: Vec<_> =
                kernels.iter().map(|kernel| scope.spawn(|| Image::build(kernel, &own))).collect();
            builders
                .into_iter()
                .map(|builder| {
                    builder.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                })
                .collect::<Result<Vec<_>, _>>()
        })?;
        let network = Network::create(u8::try_from(series.len()).unwrap_or(u8::MAX), MTU)?;
        let guests = kernels
            .into_iter()
            .zip(&images)
            .zip(1..)
            .map(|((kernel, image), index)| Guest::boot(kernel, image, index, MTU, folder.path()))
            .collect::<Result<Vec<_>, _>>()?;
        guests.iter().try_for_each(Guest::wait_ready)?;
        Ok(Self { guests, network, folder, next_port: AtomicU16::new(18_600) })
    }

    /// The guests, in the order asked for.
    pub fn guests(&self) -> &[Guest] {
        &self.guests
    }

    /// The guest with a kernel of this series.
    ///
    /// # Panics
    /// When the testbed was opened without it.
    pub fn guest(&self, series: Series) -> &Guest {
        let found = self.guests.iter().find(|guest| guest.kernel().series == series);
        found.expect("the testbed was opened with this series")
    }

    /// Boots anew each guest that has died; for each, what it showed before. A kernel dies with a
    /// test that it is no match for, but the others have nothing to do with that.
    ///
    /// # Errors
    /// [`Error::Guest`] when one does not come up.
    pub fn reboot_failed(&self) -> Result<Vec<String>, Error> {
        self.guests.iter().filter_map(|guest| guest.reboot_failed().transpose()).collect()
    }

    /// Whether a guest has died, so that who talks to it waits in vain.
    pub fn has_lost_a_guest(&self) -> bool {
        self.guests.iter().any(Guest::has_ended)
    }

    /// The network between them.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// A TCP port that no earlier test has used.
    pub fn port(&self) -> u16 {
        self.next_port.fetch_add(1, Ordering::Relaxed)
    }

    /// A command beside the guests, as an unprivileged user. `program` is found in `PATH` or is a
    /// copy made by [`Testbed::install`], named by [`Testbed::installed`].
    pub fn unprivileged(&self, program: impl Into<OsString>) -> HostCommand {
        HostCommand::unprivileged(program.into(), self.folder.path().join("home").as_os_str())
    }

    /// Copies a program to where an unprivileged user can run it.
    ///
    /// # Errors
    /// [`Error::Io`] when it cannot be copied.
    pub fn install(&self, program: &Path) -> Result<(), Error> {
        let copy = self.installed(program);
        fs::copy(program, &copy).context(|| format!("copy {}", program.display()))?;
        set_mode(&copy, 0o755)
    }

    /// Where [`Testbed::install`] has put the program of this file name.
    pub fn installed(&self, program: impl AsRef<Path>) -> PathBuf {
        self.folder.path().join(program.as_ref().file_name().unwrap_or_default())
    }

    /// Starts to capture what goes over the bridge. `URXE_KERNEL_CAPTURES` names the folder of
    /// captures that are kept, else the system's temporary folder.
    ///
    /// # Errors
    /// Those of starting `tcpdump`.
    pub fn capture(&self, name: &str) -> Result<Capture, Error> {
        let folder =
            std::env::var_os("URXE_KERNEL_CAPTURES").map_or_else(std::env::temp_dir, PathBuf::from);
        fs::create_dir_all(&folder).context(|| format!("make {}", folder.display()))?;
        let name: String =
            name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        Capture::start(folder.join(format!("urxe-kernel-{name}.pcap")))
    }
}

fn set_mode(path: &Path, mode: u32) -> Result<(), Error> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .context(|| format!("chmod {}", path.display()))
}

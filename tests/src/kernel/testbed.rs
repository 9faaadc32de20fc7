//! The testbed: requirements, network, guests, and a folder for their files.

use std::{
    ffi::OsString,
    fs,
    os::unix::fs::{PermissionsExt as _, chown},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU16, Ordering},
    thread,
};

use super::{
    Capture, Error, Guest, HostCommand, Image, Kernel, Machine, Network, Requirements, Series,
    error::Context as _, image::OwnPrograms,
};

/// Jumbo frames, so that every path MTU up to 4096 fits.
const MTU: u16 = 9000;

/// Guests on one bridge. Dropping the testbed kills the guests and removes everything except kept
/// captures.
#[derive(Debug)]
pub struct Testbed {
    // Fields are dropped in this order: guests leave the network before it is removed.
    guests: Vec<Guest>,
    network: Network,
    folder: tempfile::TempDir,
    next_port: AtomicU16,
}

impl Testbed {
    /// Boots a guest of each series, all at once, on one bridge in a new network namespace, which
    /// the calling thread enters. Must be called on the main thread before other threads start.
    ///
    /// # Errors
    /// [`Error::Missing`] with all missing requirements, else the error of the failed step.
    pub fn open(series: &[Series]) -> Result<Self, Error> {
        Self::open_with(series, &Machine::default())
    }

    /// As [`open`](Self::open), with guests of another kind.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(series: &[Series], machine: &Machine) -> Result<Self, Error> {
        let requirements = Requirements::check(series)?;
        let folder = tempfile::Builder::new()
            .prefix("urxe-k-")
            .tempdir()
            .context(|| "make a folder".to_owned())?;
        // Unprivileged commands run programs from this folder.
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
            .map(|((kernel, image), index)| {
                Guest::boot(kernel, machine.clone(), image, index, MTU, folder.path())
            })
            .collect::<Result<Vec<_>, _>>()?;
        guests.iter().try_for_each(Guest::wait_ready)?;
        Ok(Self { guests, network, folder, next_port: AtomicU16::new(18_600) })
    }

    /// Returns the guests, in the requested order.
    pub fn guests(&self) -> &[Guest] {
        &self.guests
    }

    /// Returns the guests with the older and the newer kernel.
    ///
    /// # Panics
    /// If the testbed was not opened with two series.
    pub fn old_and_new(&self) -> [&Guest; 2] {
        let [old, new] = self.guests.as_slice() else { panic!("the testbed has two guests") };
        [old, new]
    }

    /// Returns the guest with a kernel of this series.
    ///
    /// # Panics
    /// If the testbed was opened without the series.
    pub fn guest(&self, series: Series) -> &Guest {
        let found = self.guests.iter().find(|guest| guest.kernel().series == series);
        found.expect("the testbed was opened with this series")
    }

    /// Boots each failed guest again. Returns the output of each failed guest. A kernel may die of
    /// one test, and the other tests should still run.
    ///
    /// # Errors
    /// [`Error::Guest`] if a guest does not start.
    pub fn reboot_failed(&self) -> Result<Vec<String>, Error> {
        self.guests.iter().filter_map(|guest| guest.reboot_failed().transpose()).collect()
    }

    /// Returns whether a guest has died, so that waiting for it is useless.
    pub fn has_lost_a_guest(&self) -> bool {
        self.guests.iter().any(Guest::has_ended)
    }

    /// Returns the network of the guests.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// Returns a TCP port that no earlier test has used.
    pub fn port(&self) -> u16 {
        self.next_port.fetch_add(1, Ordering::Relaxed)
    }

    /// Creates a command beside the guests, as an unprivileged user. `program` is in `PATH`, or is
    /// a copy of [`Testbed::install`] with the path of [`Testbed::installed`].
    pub fn unprivileged(&self, program: impl Into<OsString>) -> HostCommand {
        HostCommand::unprivileged(program.into(), self.folder.path().join("home").as_os_str())
    }

    /// Copies a program to a folder where an unprivileged user can run it.
    ///
    /// # Errors
    /// [`Error::Io`] if the program cannot be copied.
    pub fn install(&self, program: &Path) -> Result<(), Error> {
        let copy = self.installed(program);
        fs::copy(program, &copy).context(|| format!("copy {}", program.display()))?;
        set_mode(&copy, 0o755)
    }

    /// Returns the path of an installed program.
    pub fn installed(&self, program: impl AsRef<Path>) -> PathBuf {
        self.folder.path().join(program.as_ref().file_name().unwrap_or_default())
    }

    /// Starts a capture of the bridge. `URXE_KERNEL_CAPTURES` is the folder of kept captures; the
    /// default is the system's temporary folder.
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

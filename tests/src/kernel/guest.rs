//! A guest: an emulated machine with one kernel and its RDMA device. Commands run in it.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use super::{
    Architecture, Counters, Error, Finished, Image, Job, Kernel, error::Context as _,
    network::tap_name,
};

/// A boot takes 7 s on an idle machine of two cores.
const BOOT_LIMIT: Duration = Duration::from_secs(180);
const SHELL_PORT: u16 = 7777;
const SHORT: Duration = Duration::from_secs(30);
/// The port of the guest's device.
const PORT: &str = "/sys/class/infiniband/rxe0/ports/1";

/// The kernel's log line for a program, or the kernel itself, with corrupted registers. The
/// emulator corrupted them for `peer` at a register comparison after a call, which has no operand
/// that can fault: the state restored after an interrupt was wrong.
const CPU_FAULT: &str = "general protection fault";

/// The processor of an x86-64 guest, without CMPXCHG16B: QEMU 7.2 may compute the flags of this
/// instruction from stale operands. Parts of a pointer then enter RFLAGS, and a following interrupt
/// saves and restores them. The results are double faults and general protection faults, most often
/// while the kernel allocates packets. (`-d in_asm,op` shows a helper call without a preceding
/// store to cc_op.)
const X86_64_MODEL: &str = "max,-cx16";

/// The parts of a guest that a test chooses.
#[derive(Debug, Clone)]
pub struct Machine {
    /// The memory in MiB.
    pub memory_mib: u32,
    /// The processors that the kernel uses: 1 or 2. With several, the emulator sometimes misses a
    /// jump of an x86-64 kernel that another processor patches, and the kernel panics.
    pub processors: u8,
    /// A folder of this machine that the guest can read, by the tag `host` of the file system 9p.
    pub shared_folder: Option<PathBuf>,
}

impl Default for Machine {
    fn default() -> Self {
        Self { memory_mib: 1024, processors: 1, shared_folder: None }
    }
}

/// A booted guest. Dropping it kills the emulator.
#[derive(Debug)]
pub struct Guest {
    kernel: Kernel,
    machine: Machine,
    index: u8,
    mtu: u16,
    /// The folder of the image, the console and the emulator's output.
    folder: PathBuf,
    emulator: Mutex<Child>,
    /// The device's GID table once it was read. Reading its thousand entries takes longer than many
    /// programs run.
    gids: Mutex<Option<String>>,
}

impl Guest {
    /// Starts the emulator. [`Guest::wait_ready`] waits for the end of the boot, so that several
    /// guests boot at once.
    pub(super) fn boot(
        kernel: Kernel,
        machine: Machine,
        image: &Image,
        index: u8,
        mtu: u16,
        folder: &Path,
    ) -> Result<Self, Error> {
        let initrd = folder.join(format!("initramfs-{}", kernel.series.name()));
        fs::write(&initrd, &image.bytes).context(|| format!("write {}", initrd.display()))?;
        let emulator = Mutex::new(launch(&kernel, &machine, index, mtu, folder)?);
        let (folder, gids) = (folder.to_owned(), Mutex::default());
        Ok(Self { kernel, machine, index, mtu, folder, emulator, gids })
    }

    /// Waits until the device and the shell are ready. A failed boot is repeated once.
    ///
    /// # Errors
    /// [`Error::Guest`] with the end of the console if the second boot fails too.
    pub(super) fn wait_ready(&self) -> Result<(), Error> {
        let Err(error) = self.wait_booted() else { return Ok(()) };
        // Emulated kernels sometimes panic while they boot, about one in dozens.
        eprintln!("{error}\n{}: booting it once more", self.name());
        self.launch_again()?;
        self.wait_booted()
    }

    /// Boots the guest again if the emulator has ended, the shell does not respond, or the
    /// processor is corrupted. Returns the console or log of the failed guest.
    ///
    /// # Errors
    /// Those of [`Guest::wait_ready`].
    pub(super) fn reboot_failed(&self) -> Result<Option<String>, Error> {
        let ended =
            self.emulator().try_wait().context(|| "wait for the emulator".to_owned())?.is_some();
        let (what, shown) = match self.dmesg() {
            _ if ended => ("its emulator has ended", self.console()),
            Err(_) => ("its shell did not answer", self.console()),
            Ok(log) => match log.lines().find(|line| line.contains(CPU_FAULT)) {
                Some(line) => ("something in it went astray", line.to_owned()),
                None => return Ok(None),
            },
        };
        self.launch_again()?;
        self.wait_ready()?;
        Ok(Some(format!("{}: {what}; it showed:\n{shown}", self.name())))
    }

    /// Returns whether the emulator has ended, as it does when the kernel panics.
    pub(super) fn has_ended(&self) -> bool {
        self.emulator().try_wait().is_ok_and(|status| status.is_some())
    }

    fn wait_booted(&self) -> Result<(), Error> {
        let end = Instant::now() + BOOT_LIMIT;
        loop {
            let console = self.console();
            if console.contains("GUEST-READY") {
                return Ok(());
            }
            let ended = self
                .emulator()
                .try_wait()
                .context(|| "wait for the emulator".to_owned())?
                .is_some();
            let reason = match () {
                () if console.contains("GUEST-FAILED") => "its init failed",
                () if ended => "its emulator ended",
                () if Instant::now() > end => "it did not come up in time",
                () => {
                    thread::sleep(Duration::from_millis(50));
                    continue;
                }
            };
            let mut tail: Vec<_> = console.lines().rev().take(30).collect();
            tail.reverse();
            return Err(Error::Guest { guest: self.name(), reason, console: tail.join("\n") });
        }
    }

    fn launch_again(&self) -> Result<(), Error> {
        self.end();
        *self.gids() = None;
        *self.emulator() = launch(&self.kernel, &self.machine, self.index, self.mtu, &self.folder)?;
        Ok(())
    }

    /// Kills the emulator.
    fn end(&self) {
        let mut emulator = self.emulator();
        // The emulator may have ended before; its exit status is irrelevant.
        let _ = emulator.kill();
        let _ = emulator.wait();
    }

    fn emulator(&self) -> MutexGuard<'_, Child> {
        self.emulator.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn gids(&self) -> MutexGuard<'_, Option<String>> {
        self.gids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the kernel.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// Returns a name for messages: `kernel 6.12`.
    pub fn name(&self) -> String {
        format!("kernel {}", self.kernel.series.name())
    }

    /// Returns the IPv4 address: 10.77.0.11, …
    pub fn v4(&self) -> IpAddr {
        addresses(self.index)[0]
    }

    /// Returns the IPv6 address: fd77::11, …
    pub fn v6(&self) -> IpAddr {
        addresses(self.index)[1]
    }

    /// Starts a shell command.
    ///
    /// # Errors
    /// [`Error::Io`] if the guest's shell does not respond.
    pub fn start(&self, command: &str) -> Result<Job, Error> {
        Job::in_guest(SocketAddr::new(self.v4(), SHELL_PORT), command)
    }

    /// Runs a shell command until it ends.
    ///
    /// # Errors
    /// As [`Guest::start`]; [`Error::Timeout`] after 30 s. The result contains the exit status.
    pub fn run(&self, command: &str) -> Result<Finished, Error> {
        self.start(command)?.finish(SHORT)
    }

    /// Waits until a socket listens on a TCP port, because `ibv_rc_pingpong` does not report when
    /// it listens.
    ///
    /// # Errors
    /// [`Error::Timeout`] after 30 s.
    pub fn wait_listening(&self, port: u16) -> Result<(), Error> {
        // The fourth column of /proc/net/tcp is the state, 0A is LISTEN.
        let script = format!(
            "until cat /proc/net/tcp /proc/net/tcp6 | grep -q ':{port:04X} [0:]* 0A '; \
             do usleep 20000; done"
        );
        self.run(&script)?.ok().map(drop)
    }

    /// Returns the index of an address in the device's GID table. The table is read once after a
    /// boot, because no test changes it.
    ///
    /// # Errors
    /// [`Error::Malformed`] if no entry has the address.
    pub fn gid_index(&self, address: IpAddr) -> Result<u8, Error> {
        let wanted = match address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        let mut gids = self.gids();
        let table = match &mut *gids {
            Some(table) => table,
            unread => unread.insert(self.run(&format!("cd {PORT}/gids && grep : *"))?.ok()?),
        };
        table
            .lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(_, gid)| gid.trim().parse() == Ok(wanted))
            .and_then(|(index, _)| index.parse().ok())
            .ok_or_else(|| Error::Malformed {
                what: "no such GID in the guest's table",
                text: table.clone(),
            })
    }

    /// Returns the device's counters.
    ///
    /// # Errors
    /// Those of [`Guest::run`]; [`Error::Malformed`] if counters are missing, or are not numbers.
    pub fn counters(&self) -> Result<Counters, Error> {
        // These files hold the counters of `rdma statistic show link` and take half its time. The
        // kernel may return values that are up to 10 ms old.
        Counters::parse(&self.run(&format!("cd {PORT}/hw_counters && grep . *"))?.ok()?)
    }

    /// Returns the console's output, which is the only evidence of a kernel that died.
    pub fn console(&self) -> String {
        let console = console_of(&self.kernel, &self.folder);
        String::from_utf8_lossy(&fs::read(console).unwrap_or_default()).into_owned()
    }

    /// Returns the kernel's log.
    ///
    /// # Errors
    /// Those of [`Guest::run`].
    pub fn dmesg(&self) -> Result<String, Error> {
        self.run("dmesg")?.ok()
    }

    /// Sets the MTU of eth0, and so of rxe0.
    ///
    /// # Errors
    /// Those of [`Guest::run`], [`Error::Status`].
    pub fn set_mtu(&self, mtu: u16) -> Result<(), Error> {
        self.run(&format!("ip link set eth0 mtu {mtu}"))?.ok().map(drop)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.end();
    }
}

/// Starts the emulator on the image in `folder`.
fn launch(
    kernel: &Kernel,
    machine: &Machine,
    index: u8,
    mtu: u16,
    folder: &Path,
) -> Result<Child, Error> {
    let name = kernel.series.name();
    let console = console_of(kernel, folder);
    // The output of an earlier boot would be misleading.
    fs::write(&console, []).context(|| format!("write {}", console.display()))?;
    let [v4, v6] = addresses(index);
    let netdev = format!("tap,id=net,ifname={},script=no,downscript=no", tap_name(index));
    let device =
        format!("virtio-net-pci,netdev=net,mac=52:54:00:77:00:{index:02x},host_mtu={mtu},romfile=");
    let (board, model, console_device) = match kernel.architecture {
        Architecture::X86_64 => ("q35", X86_64_MODEL, "ttyS0 no_timer_check"),
        // The usual authentication of pointers takes half the time of the emulator.
        Architecture::Aarch64 => ("virt", "max,pauth-impdef=on", "ttyAMA0"),
    };
    // mitigations=off: nothing needs protection here, and emulated mitigations are slow.
    // no_timer_check: on a loaded machine, the emulated timer may be too late for the kernel's test
    // of it ("IO-APIC + timer doesn't work"). Names with '.' are kernel parameters; guest_* reach
    // init as environment variables.
    let used = machine.processors;
    let append = format!(
        "console={console_device} quiet panic=-1 mitigations=off random.trust_cpu=1 nr_cpus={used} \
         guest_v4={v4} guest_v6={v6} guest_mtu={mtu}"
    );
    // A second processor is possible even if it is unused. For machines with at most one, QEMU
    // before 8.1 omits memory barriers and locks, although its device thread accesses the
    // virtqueues as well (QEMU commit c914d46d0a64). A notification or an interrupt can get lost,
    // and with it the guest's network ("NETDEV WATCHDOG").
    let processors = format!("{},maxcpus=2", machine.processors);
    let (_, emulator) = kernel.architecture.emulator();
    let memory = machine.memory_mib.to_string();
    let share = machine.shared_folder.iter().flat_map(|folder| {
        let folder = folder.display();
        [
            "-virtfs".to_owned(),
            format!(
                "local,path={folder},mount_tag=host,security_model=none,readonly=on,multidevs=remap"
            ),
        ]
    });
    Command::new("setpriv")
        .args(["--pdeathsig=KILL", "--", emulator, "-name"])
        .arg(format!("urxe-kernel-{name}"))
        .args("-nodefaults -no-user-config -no-reboot -display none -machine".split(' '))
        .arg(board)
        .args(["-accel", "tcg,thread=multi", "-cpu", model, "-smp", &processors, "-m", &memory])
        .args(share)
        .arg("-serial")
        .arg(format!("file:{}", console.display()))
        .arg("-kernel")
        .arg(kernel.vmlinuz())
        .arg("-initrd")
        .arg(folder.join(format!("initramfs-{name}")))
        .args(["-append", &append, "-netdev", &netdev, "-device", &device])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(
            fs::File::create(folder.join(format!("emulator-{name}.log")))
                .context(|| "create a log".to_owned())?,
        )
        .spawn()
        .context(|| format!("start {emulator}"))
}

fn console_of(kernel: &Kernel, folder: &Path) -> PathBuf {
    folder.join(format!("console-{}.log", kernel.series.name()))
}

fn addresses(index: u8) -> [IpAddr; 2] {
    let host = 10 + index;
    // Both families use the same digits: fd77::11 beside 10.77.0.11.
    let digits = u16::from(host / 10) << 4 | u16::from(host % 10);
    [
        IpAddr::V4(Ipv4Addr::new(10, 77, 0, host)),
        IpAddr::V6(Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, digits)),
    ]
}

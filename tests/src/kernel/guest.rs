//! A guest: one emulated machine with one kernel, its RDMA device, and commands in it.

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
    Counters, Error, Finished, Image, Job, Kernel, error::Context as _, network::tap_name,
};

/// 7 s on an idle machine of two cores.
const BOOT_LIMIT: Duration = Duration::from_secs(180);
const SHELL_PORT: u16 = 7777;
const SHORT: Duration = Duration::from_secs(30);
/// Its device's port.
const PORT: &str = "/sys/class/infiniband/rxe0/ports/1";

/// What the kernel's log says of a program, or of itself, whose registers hold nonsense. Of the
/// emulator it was seen with `peer`, at the register comparison behind a call, which has no operand
/// that could be refused: what was restored there after an interrupt was refused.
const CPU_FAULT: &str = "general protection fault";

/// A booted guest. Dropping it ends its emulator.
#[derive(Debug)]
pub struct Guest {
    kernel: Kernel,
    index: u8,
    mtu: u16,
    /// Where its image, its console and its emulator's output are.
    folder: PathBuf,
    emulator: Mutex<Child>,
    /// Its device's GID table, once it was read: reading its thousand entries takes longer than
    /// many a program.
    gids: Mutex<Option<String>>,
}

impl Guest {
    /// Starts the emulator; [`Guest::wait_ready`] waits for the end of the boot, so that several
    /// boot at once.
    pub(super) fn boot(
        kernel: Kernel,
        image: &Image,
        index: u8,
        mtu: u16,
        folder: &Path,
    ) -> Result<Self, Error> {
        let initrd = folder.join(format!("initramfs-{}", kernel.series.name()));
        fs::write(&initrd, &image.bytes).context(|| format!("write {}", initrd.display()))?;
        let emulator = Mutex::new(launch(&kernel, index, mtu, folder)?);
        Ok(Self { kernel, index, mtu, folder: folder.to_owned(), emulator, gids: Mutex::default() })
    }

    /// Waits until its device and its shell are there; a boot that fails is tried a second time.
    ///
    /// # Errors
    /// [`Error::Guest`] with the end of its console when that fails too.
    pub(super) fn wait_ready(&self) -> Result<(), Error> {
        let Err(error) = self.wait_booted() else { return Ok(()) };
        // Emulated kernels have been seen to panic while they boot, one in dozens.
        eprintln!("{error}\n{}: booting it once more", self.name());
        self.launch_again()?;
        self.wait_booted()
    }

    /// Boots it anew if its emulator has ended, its shell answers no more, or its processor has
    /// gone astray; then what it showed before.
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

    /// Whether its emulator has ended, as it does when the kernel panics.
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
        *self.emulator() = launch(&self.kernel, self.index, self.mtu, &self.folder)?;
        Ok(())
    }

    /// Ends its emulator.
    fn end(&self) {
        let mut emulator = self.emulator();
        // It may have ended by itself; its state is nobody's concern.
        let _ = emulator.kill();
        let _ = emulator.wait();
    }

    fn emulator(&self) -> MutexGuard<'_, Child> {
        self.emulator.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn gids(&self) -> MutexGuard<'_, Option<String>> {
        self.gids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its kernel.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// For messages: `kernel 6.12`.
    pub fn name(&self) -> String {
        format!("kernel {}", self.kernel.series.name())
    }

    /// Its IPv4 address: 10.77.0.11, …
    pub fn v4(&self) -> IpAddr {
        addresses(self.index)[0]
    }

    /// Its IPv6 address: fd77::11, …
    pub fn v6(&self) -> IpAddr {
        addresses(self.index)[1]
    }

    /// Starts a shell command.
    ///
    /// # Errors
    /// [`Error::Io`] when its shell does not answer.
    pub fn start(&self, command: &str) -> Result<Job, Error> {
        Job::in_guest(SocketAddr::new(self.v4(), SHELL_PORT), command)
    }

    /// Runs a shell command to its end.
    ///
    /// # Errors
    /// As [`Guest::start`]; [`Error::Timeout`] after 30 s. Its exit status is in the result.
    pub fn run(&self, command: &str) -> Result<Finished, Error> {
        self.start(command)?.finish(SHORT)
    }

    /// Waits until something listens on a TCP port: `ibv_rc_pingpong` does not say when it does.
    ///
    /// # Errors
    /// [`Error::Timeout`] after 30 s.
    pub fn wait_listening(&self, port: u16) -> Result<(), Error> {
        // The fourth column of /proc/net/tcp is the state, 0A is LISTEN.
        let script = format!(
            "until cat /proc/net/tcp /proc/net/tcp6 | grep -q ':{port:04X} [0:]* 0A '; do usleep 20000; done"
        );
        self.run(&script)?.ok().map(drop)
    }

    /// The index of an address in the device's GID table, as it was when this was first called
    /// after a boot: no test changes it.
    ///
    /// # Errors
    /// [`Error::Malformed`] when no entry has it.
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

    /// Its device's counters.
    ///
    /// # Errors
    /// Those of [`Guest::run`]; [`Error::Malformed`] when they are not there, or not numbers.
    pub fn counters(&self) -> Result<Counters, Error> {
        // What `rdma statistic show link` shows, in half its time. The kernel may tell what it told
        // up to 10 ms ago.
        Counters::parse(&self.run(&format!("cd {PORT}/hw_counters && grep . *"))?.ok()?)
    }

    /// What its console shows so far: the only witness of a kernel that died.
    pub fn console(&self) -> String {
        let console = console_of(&self.kernel, &self.folder);
        String::from_utf8_lossy(&fs::read(console).unwrap_or_default()).into_owned()
    }

    /// What its kernel has logged.
    ///
    /// # Errors
    /// Those of [`Guest::run`].
    pub fn dmesg(&self) -> Result<String, Error> {
        self.run("dmesg")?.ok()
    }

    /// Gives eth0, and with it rxe0, another MTU.
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
fn launch(kernel: &Kernel, index: u8, mtu: u16, folder: &Path) -> Result<Child, Error> {
    let name = kernel.series.name();
    let console = console_of(kernel, folder);
    // What an earlier attempt has left there says nothing about this one.
    fs::write(&console, []).context(|| format!("write {}", console.display()))?;
    let [v4, v6] = addresses(index);
    let netdev = format!("tap,id=net,ifname={},script=no,downscript=no", tap_name(index));
    let device =
        format!("virtio-net-pci,netdev=net,mac=52:54:00:77:00:{index:02x},host_mtu={mtu},romfile=");
    // mitigations=off: there is nobody to be protected from, and emulated they cost. Names with '.'
    // are the kernel's own; guest_* reach init as environment.
    let append = format!(
        "console=ttyS0 quiet panic=-1 mitigations=off random.trust_cpu=1 nr_cpus=1 guest_v4={v4} guest_v6={v6} guest_mtu={mtu}"
    );
    // One processor: with several, the emulator now and then loses a jump that another processor
    // patches, and the kernel panics. Room for a second one, which the kernel does not use: for
    // machines that can have one only, QEMU before 8.1 leaves out memory barriers and makes locked
    // instructions plain ones, though the thread of its devices looks at the virtqueues as well
    // (its commit c914d46d0a64); a kick or an interrupt can be lost, and with it the guest's
    // network ("NETDEV WATCHDOG").
    let processors = "1,maxcpus=2";
    // Without CMPXCHG16B: QEMU 7.2 computes its flags from those of an instruction that it may have
    // forgotten to note, so that parts of a pointer come into RFLAGS, where an interrupt behind it
    // saves and restores them: double faults and general protection faults, most often of kernels
    // that allocate packets. (`-d in_asm,op` shows the helper called with no store to cc_op before
    // it.)
    let model = "max,-cx16";
    Command::new("setpriv")
        .args(["--pdeathsig=KILL", "--", "qemu-system-x86_64", "-name"])
        .arg(format!("urxe-kernel-{name}"))
        .args("-nodefaults -no-user-config -no-reboot -display none -machine q35".split(' '))
        .args(["-accel", "tcg,thread=multi", "-cpu", model, "-smp", processors, "-m", "1024"])
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
        .context(|| "start qemu-system-x86_64".to_owned())
}

fn console_of(kernel: &Kernel, folder: &Path) -> PathBuf {
    folder.join(format!("console-{}.log", kernel.series.name()))
}

fn addresses(index: u8) -> [IpAddr; 2] {
    let host = 10 + index;
    // The same digits in both families: fd77::11 beside 10.77.0.11.
    let digits = u16::from(host / 10) << 4 | u16::from(host % 10);
    [
        IpAddr::V4(Ipv4Addr::new(10, 77, 0, host)),
        IpAddr::V6(Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, digits)),
    ]
}

//! `urxe install --system-wide`, in a mount namespace with a copy of the loader's configuration,
//! and in a folder that is the root of another system. The configuration of this machine stays as
//! it is.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::install::{install, is_root, ok, text_of};

/// An installation of root, and the root folder of a system with a loader's configuration.
struct System {
    folder: TempDir,
}

impl System {
    /// Returns `None`, and says so, unless root runs the test.
    fn new() -> Option<Self> {
        if !is_root() {
            eprintln!("skipped: only root installs system-wide");
            return None;
        }
        let folder = TempDir::with_prefix("urxe-system-").unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let system = Self { folder };
        for (from, to) in [
            ("bin/urxe", "usr/bin/urxe"),
            ("lib/liburxe.so", "usr/lib/urxe/liburxe.so"),
            ("lib/liburxe_sysfs.so", "usr/lib/urxe/liburxe_sysfs.so"),
        ] {
            let to = system.path(to);
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::copy(install().path(from), &to).unwrap();
        }
        for name in ["libibverbs.so.1", "librdmacm.so.1", "libibverbs.so", "librdmacm.so"] {
            symlink("liburxe.so", system.path("usr/lib/urxe").join(name)).unwrap();
        }
        ok(Command::new("cp").args(["-a", "/etc/ld.so.conf", "/etc/ld.so.conf.d"]).arg({
            fs::create_dir(system.path("etc")).unwrap();
            system.path("etc")
        }));
        Some(system)
    }

    fn path(&self, inside: &str) -> PathBuf {
        self.folder.path().join(inside)
    }

    fn file(&self) -> PathBuf {
        self.path("etc/ld.so.conf.d/00-urxe.conf")
    }

    /// Runs `urxe` with these words, for the system in the folder.
    fn urxe(&self, words: &str) -> Output {
        let mut urxe = Command::new(self.path("usr/bin/urxe"));
        install().environment(&mut urxe);
        urxe.args(words.split(' ')).arg("--root").arg(self.folder.path()).output().unwrap()
    }

    #[track_caller]
    fn refuses(&self, words: &str, why: &str) {
        let output = self.urxe(words);
        let text = text_of(&output);
        assert!(output.status.code() == Some(1) && text.contains(why), "{text}");
        assert!(!self.file().exists(), "nothing is left");
    }
}

#[test]
fn all_programs_of_a_system_use_urxe_until_it_is_undone() {
    let Some(system) = System::new() else { return };
    // ldconfig writes the cache and an auxiliary file, and may repair links of libraries.
    let script = "set -e
        mount --make-rprivate /
        mount --bind \"$1/etc\" /etc
        mount --bind /usr /usr && mount -o remount,bind,ro /usr
        [ ! -d /var/cache/ldconfig ] || mount -t tmpfs none /var/cache/ldconfig
        urxe() { \"$1/usr/bin/urxe\" \"$2\" --system-wide $3; }
        /sbin/ldconfig
        ibv_devinfo || echo before
        urxe \"$1\" install --force
        ibv_devinfo
        \"$1/usr/bin/urxe\" doctor
        urxe \"$1\" uninstall
        ibv_devinfo || echo after
        urxe \"$1\" uninstall";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script, "sh"]).arg(system.folder.path());
    install().environment(&mut command);
    let text = ok(command.env("URXE_DEVICES", "rxe7=127.79.2.3"));
    let [before, installed, after] = ["before\n", "installed: ", "after\n"]
        .map(|part| text.find(part).unwrap_or_else(|| panic!("{part}: {text}")));
    let devices: Vec<usize> = text.match_indices("hca_id:\trxe7").map(|(at, _)| at).collect();
    assert_eq!(devices.len(), 1, "{text}");
    assert!(before < installed && installed < devices[0] && devices[0] < after, "{text}");
    assert!(text.contains("urxe is installed system-wide from"), "{text}");
    assert!(text.contains("nothing to do: urxe is not installed system-wide"), "{text}");
    let folder = system.path("usr/lib/urxe");
    assert!(text.contains(&format!("use {}", folder.display())), "{text}");
    assert!(!Path::new("/etc/ld.so.conf.d/00-urxe.conf").exists());
}

#[test]
fn an_image_gets_the_folder_as_its_programs_name_it() {
    let Some(system) = System::new() else { return };
    let text = text_of(&system.urxe("install --system-wide"));
    assert!(text.contains("installed: programs of this system use /usr/lib/urxe"), "{text}");
    assert!(fs::read_to_string(system.file()).unwrap().ends_with("\n/usr/lib/urxe\n"));
    let cache = fs::read(system.path("etc/ld.so.cache")).unwrap();
    let name = b"/usr/lib/urxe/libibverbs.so.1\0";
    let is_named = |cache: &[u8]| cache.windows(name.len()).any(|part| part == name);
    assert!(is_named(&cache));
    assert!(system.urxe("uninstall --system-wide").status.success());
    assert!(!system.file().exists());
    assert!(!is_named(&fs::read(system.path("etc/ld.so.cache")).unwrap()));
}

#[test]
fn dangerous_installations_are_refused() {
    let Some(system) = System::new() else { return };
    let install_words = "install --system-wide";
    let mode = |path: &str, mode| {
        fs::set_permissions(system.path(path), fs::Permissions::from_mode(mode)).unwrap();
    };
    for path in ["usr/lib/urxe", "usr/lib/urxe/liburxe.so", "usr"] {
        mode(path, 0o777);
        system.refuses(install_words, "which others than root can change; install urxe into");
        mode(path, 0o755);
    }
    fs::create_dir_all(system.path("sys/class/infiniband/mlx5_0")).unwrap();
    system.refuses(install_words, "this machine has the RDMA device mlx5_0");
    assert!(system.urxe("install --system-wide --force").status.success());
    assert!(system.urxe("uninstall --system-wide").status.success());
    fs::write(system.path("etc/ld.so.conf"), "/lib\n").unwrap();
    system.refuses("install --system-wide --force", "add the line: include /etc/ld.so.conf.d/");
    fs::remove_file(system.path("usr/lib/urxe/librdmacm.so.1")).unwrap();
    system.refuses("install --system-wide --force", "is not an installation");
    // The installation of the tests belongs to root, and the user is not root.
    let mut user = install().user(system.path("usr/bin/urxe"));
    let text = text_of(&user.args(["install", "--system-wide"]).output().unwrap());
    assert!(text.contains("only root can change /etc/ld.so.conf.d; use: sudo"), "{text}");
    let output = system.urxe("install");
    assert!(output.status.code() == Some(2), "{}", text_of(&output));
}

#[test]
fn a_library_that_the_loader_would_take_first_is_named() {
    let Some(system) = System::new() else { return };
    // The loader takes the folders in the order of the files' names.
    let other = system.path("opt/other");
    fs::create_dir_all(&other).unwrap();
    fs::copy("/usr/lib/x86_64-linux-gnu/libibverbs.so.1", other.join("libibverbs.so.1")).unwrap();
    fs::write(system.path("etc/ld.so.conf.d/00-first.conf"), "/opt/other\n").unwrap();
    system.refuses("install --system-wide", "the loader takes /opt/other/libibverbs.so.1 in place");
}

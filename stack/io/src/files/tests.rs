//! The files that are written, and those that are refused. The test `privileged` of the programs
//! has files of another user, because only root makes them.

use std::fs;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::thread;

use rustix::fs::{CWD, mknodat};

use super::*;

/// Writes to the file, and returns the error of opening.
fn write(path: &Path, text: &str) -> Result<(), OutputFileError> {
    create(path, Readers::Owner).map(|mut file| file.write_all(text.as_bytes()).unwrap())
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn only_the_owner_reads_a_new_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new");
    write(&path, "packets").unwrap();
    assert_eq!((fs::read_to_string(&path).unwrap().as_str(), mode(&path)), ("packets", 0o600));
    let plot = folder.path().join("plot");
    drop(create(&plot, Readers::Umask).unwrap());
    fs::write(folder.path().join("usual"), "").unwrap();
    assert_eq!(mode(&plot), mode(&folder.path().join("usual")));
}

#[test]
fn a_file_of_this_user_is_truncated_and_closed_to_other_users() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("old");
    fs::write(&path, "a longer text").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    drop(create(&path, Readers::Umask).unwrap());
    assert_eq!((fs::metadata(&path).unwrap().len(), mode(&path)), (0, 0o644));
    write(&path, "short").unwrap();
    assert_eq!((fs::read_to_string(&path).unwrap().as_str(), mode(&path)), ("short", 0o600));
}

#[test]
fn a_reserved_file_is_unchanged_until_it_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let [old, new] = ["old", "new"].map(|name| folder.path().join(name));
    fs::write(&old, "a longer text").unwrap();
    for path in [&old, &new] {
        drop(reserve(path, Readers::Umask).unwrap());
    }
    assert_eq!(fs::read_to_string(&old).unwrap(), "a longer text");
    assert!(!new.exists());
    for path in [&old, &new] {
        let reserved = reserve(path, Readers::Umask).unwrap();
        reserved.create().unwrap().write_all(b"short").unwrap();
        assert_eq!(fs::read_to_string(path).unwrap(), "short");
    }
    let error = reserve(&folder.path().join("no/such"), Readers::Umask).unwrap_err();
    assert_eq!(error.errno(), libc::ENOENT, "{error}");
}

#[test]
fn a_symbolic_link_is_refused_and_its_target_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let [victim, link, dangling] =
        ["victim", "link", "dangling"].map(|name| folder.path().join(name));
    fs::write(&victim, "precious").unwrap();
    symlink(&victim, &link).unwrap();
    symlink(folder.path().join("made"), &dangling).unwrap();
    for path in [&link, &dangling] {
        let error = write(path, "packets").unwrap_err();
        assert!(matches!(error, OutputFileError::SymbolicLink { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains(path.to_str().unwrap()) && text.contains("remove it"), "{text}");
    }
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    assert!(!folder.path().join("made").exists());
}

#[test]
fn a_hard_link_is_refused_and_the_file_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let [victim, link] = ["victim", "link"].map(|name| folder.path().join(name));
    fs::write(&victim, "precious").unwrap();
    fs::hard_link(&victim, &link).unwrap();
    let error = write(&link, "packets").unwrap_err();
    assert!(matches!(error, OutputFileError::SeveralNames { .. }), "{error}");
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
}

#[test]
fn a_pipe_is_written_with_and_without_a_waiting_reader() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe");
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    for writer_first in [true, false] {
        thread::scope(|scope| {
            let pipe = &path;
            let read = move || fs::read_to_string(pipe).unwrap();
            let write = move || write(pipe, "packets").unwrap();
            let late = |work: &dyn Fn()| {
                thread::sleep(std::time::Duration::from_millis(50));
                work();
            };
            if writer_first {
                let writer = scope.spawn(write);
                late(&|| assert_eq!(read(), "packets"));
                writer.join().unwrap();
            } else {
                let reader = scope.spawn(read);
                late(&write);
                assert_eq!(reader.join().unwrap(), "packets");
            }
        });
    }
    assert!(fs::metadata(&path).unwrap().file_type().is_fifo());
}

#[test]
fn a_descriptor_is_written_at_its_position() {
    let (mut reader, writer) = std::io::pipe().unwrap();
    let number = writer.as_raw_fd();
    write(Path::new(&format!("/dev/fd/{number}")), "to a ").unwrap();
    write(Path::new(&format!("/proc/self/fd/{number}")), "pipe").unwrap();
    drop(writer);
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text, "to a pipe");

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let mut file = File::create(&path).unwrap();
    file.write_all(b"before ").unwrap();
    write(Path::new(&format!("/dev/fd/{}", file.as_raw_fd())), "after").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "before after");
    let only_read = File::open(&path).unwrap();
    let path = format!("/dev/fd/{}", only_read.as_raw_fd());
    assert_eq!(write(Path::new(&path), "").unwrap_err().errno(), libc::EBADF);
    assert_eq!(write(Path::new("/dev/fd/999999"), "").unwrap_err().errno(), libc::EBADF);
}

#[test]
fn a_device_is_written_and_other_kinds_of_files_are_refused() {
    write(Path::new("/dev/null"), "packets").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let error = write(folder.path(), "").unwrap_err();
    assert!(error.to_string().ends_with("Is a directory (os error 21)"), "{error}");
    let socket = folder.path().join("socket");
    let _listener = UnixListener::bind(&socket).unwrap();
    let error = write(&socket, "").unwrap_err();
    assert!(matches!(error, OutputFileError::Kind { .. }), "{error}");
    let error = write(&folder.path().join("no/such"), "").unwrap_err();
    assert_eq!(error.errno(), libc::ENOENT, "{error}");
}

#[test]
fn a_folder_that_others_could_have_made_is_refused() {
    let base = tempfile::tempdir().unwrap();
    let made = private_folder(base.path(), Path::new("urxe/lib")).unwrap();
    assert_eq!((made.as_path(), mode(&made)), (base.path().join("urxe/lib").as_path(), 0o700));
    assert_eq!(private_folder(base.path(), Path::new("urxe/lib")).unwrap(), made);
    fs::set_permissions(&made, fs::Permissions::from_mode(0o777)).unwrap();
    let error = private_folder(base.path(), Path::new("urxe/lib")).unwrap_err();
    assert!(matches!(error, OutputFileError::OpenFolder { .. }), "{error}");
    symlink(base.path(), base.path().join("link")).unwrap();
    let error = private_folder(base.path(), Path::new("link/lib")).unwrap_err();
    assert!(matches!(error, OutputFileError::SymbolicLink { .. }), "{error}");
}

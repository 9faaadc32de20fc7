//! The "newc" archive that the kernel unpacks as its first file system
//! (Documentation/driver-api/early-userspace/ buffer-format.rst): an ASCII header, the name, the
//! data, each padded to four bytes.

use std::collections::BTreeSet;

const FOLDER: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const DEVICE: u32 = 0o020_600;

/// An archive being written.
#[derive(Debug, Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    folders: BTreeSet<String>,
    inode: u32,
}

impl Archive {
    /// Adds a file, executable, and the folders above it. `path` is absolute.
    pub(super) fn file(&mut self, path: &str, data: &[u8]) {
        let path = path.trim_start_matches('/');
        self.folders_above(path);
        self.entry(path, PROGRAM, (0, 0), data);
    }

    /// Adds a folder and those above it.
    pub(super) fn folder(&mut self, path: &str) {
        self.folders_above(&format!("{}/", path.trim_matches('/')));
    }

    /// Adds a character device.
    pub(super) fn device(&mut self, path: &str, major: u32, minor: u32) {
        let path = path.trim_start_matches('/');
        self.folders_above(path);
        self.entry(path, DEVICE, (major, minor), &[]);
    }

    /// The archive with its end mark.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }

    fn folders_above(&mut self, path: &str) {
        for (at, _) in path.match_indices('/') {
            if self.folders.insert(path[..at].to_owned()) {
                self.entry(&path[..at], FOLDER, (0, 0), &[]);
            }
        }
    }

    fn entry(&mut self, name: &str, mode: u32, device: (u32, u32), data: &[u8]) {
        self.inode += 1;
        let links = if mode == FOLDER { 2 } else { 1 };
        let size = u32::try_from(data.len()).expect("a file of the image is below 4 GiB");
        let name_size = u32::try_from(name.len() + 1).expect("a path is short");
        let fields =
            [self.inode, mode, 0, 0, links, 0, size, 0, 0, device.0, device.1, name_size, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(data);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::Archive;

    #[test]
    fn folders_come_first_and_once_and_everything_is_aligned() {
        let mut archive = Archive::default();
        archive.file("/a/b/one", b"12345");
        archive.file("/a/b/two", b"");
        archive.device("/dev/console", 5, 1);
        let bytes = archive.finish();
        let names: Vec<_> = bytes
            .windows(6)
            .enumerate()
            .filter(|(_, window)| window == b"070701")
            .map(|(at, _)| {
                assert_eq!(at % 4, 0);
                let name = &bytes[at + 110..];
                String::from_utf8_lossy(&name[..name.iter().position(|&byte| byte == 0).unwrap()])
                    .into_owned()
            })
            .collect();
        assert_eq!(names, ["a", "a/b", "a/b/one", "a/b/two", "dev", "dev/console", "TRAILER!!!"]);
    }
}

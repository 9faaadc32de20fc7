//! Defaults of rsockets. An administrator may change them by files with one number each
//! (`/etc/rdma/rsocket`, rsocket(7)).

use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use crate::protocol::connect::{decode_iomaps, encode_iomaps};
use crate::protocol::sender::LOW_WATER;
use crate::protocol::stream::Sizes;

const FOLDER: &str = "/etc/rdma/rsocket";

/// The defaults of a new rsocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    pub sizes: Sizes,
    /// How long a call polls before it sleeps.
    pub polling_time: Duration,
    /// Maximum time that rpoll sleeps before it polls again.
    pub wake_up_interval: Duration,
}

impl Config {
    const BUILT_IN: Self = Self {
        sizes: Sizes {
            send_queue: 384,
            recv_queue: 384,
            inline: 64,
            send_buffer: 1 << 17,
            recv_buffer: 1 << 17,
            iomaps: 0,
        },
        polling_time: Duration::from_micros(10),
        wake_up_interval: Duration::from_millis(500),
    };

    /// Returns the defaults of this machine, read once.
    pub fn get() -> &'static Self {
        static CONFIG: OnceLock<Config> = OnceLock::new();
        CONFIG.get_or_init(|| Self::read(Path::new(FOLDER)))
    }

    /// Reads the files of a directory. A missing file, or one without a number, changes nothing.
    fn read(folder: &Path) -> Self {
        let number = |name: &str| {
            let text = std::fs::read_to_string(folder.join(name)).ok()?;
            text.split_whitespace().next()?.parse::<u32>().ok()
        };
        let small = |name: &str| number(name).and_then(|value| u16::try_from(value).ok());
        let mut config = Self::BUILT_IN;
        let sizes = &mut config.sizes;
        if let Some(size) = small("sqsize_default") {
            sizes.send_queue = size;
        }
        if let Some(size) = small("rqsize_default") {
            sizes.recv_queue = size;
        }
        if let Some(size) = small("inline_default") {
            sizes.inline = size.into();
        }
        if let Some(size) = number("mem_default") {
            sizes.recv_buffer = size.max(1);
        }
        if let Some(size) = number("wmem_default") {
            sizes.send_buffer = if size < LOW_WATER { LOW_WATER * 2 } else { size };
        }
        if let Some(count) = small("iomap_size") {
            sizes.iomaps = decode_iomaps(encode_iomaps(count.into()));
        }
        if let Some(micros) = number("polling_time") {
            config.polling_time = Duration::from_micros(micros.into());
        }
        if let Some(millis) = number("wake_up_interval") {
            config.wake_up_interval = Duration::from_millis(millis.into());
        }
        config
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_change_what_they_name_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Config::read(folder.path()), Config::BUILT_IN);
        for (name, text) in [
            ("mem_default", "1000000\n"),
            ("wmem_default", "7"),
            ("sqsize_default", " 20"),
            ("rqsize_default", "many"),
            ("iomap_size", "300"),
            ("polling_time", "0"),
            ("wake_up_interval", "-1"),
        ] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let built_in = Config::BUILT_IN;
        let sizes = Sizes {
            recv_buffer: 1_000_000,
            send_buffer: 4096,
            send_queue: 20,
            iomaps: 256,
            ..built_in.sizes
        };
        assert_eq!(
            Config::read(folder.path()),
            Config { sizes, polling_time: Duration::ZERO, ..built_in }
        );
    }
}

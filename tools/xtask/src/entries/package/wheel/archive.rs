//! The zip file of a wheel, with `RECORD`: a row for each file, with its hash and its size.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipWriter};

/// Modes of files.
pub const READABLE: u32 = 0o644;
pub const EXECUTABLE: u32 = 0o755;

/// A wheel that is being written.
pub struct Archive {
    zip: ZipWriter<BufWriter<File>>,
    /// The time of all files.
    time: DateTime,
    /// The folder of the metadata.
    info: String,
    /// The rows so far.
    record: String,
}

impl Archive {
    /// Starts a wheel whose files have this date, such as `2026-11-28`. The same files make the
    /// same wheel.
    pub fn create(path: &Path, info: &str, date: &str) -> Result<Self> {
        let file = File::create(path)?;
        Ok(Self {
            zip: ZipWriter::new(BufWriter::new(file)),
            time: time(date).with_context(|| format!("{date:?} is no date from 1980 on"))?,
            info: info.to_owned(),
            record: String::new(),
        })
    }

    /// Adds a file.
    pub fn add(&mut self, name: &str, bytes: &[u8], mode: u32) -> Result<()> {
        let hash = URL_SAFE_NO_PAD.encode(Sha256::digest(bytes));
        self.record.push_str(&format!("{name},sha256={hash},{}\n", bytes.len()));
        self.put(name, bytes, mode)
    }

    /// Adds a file of the metadata.
    pub fn add_info(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        self.add(&format!("{}/{name}", self.info), bytes, READABLE)
    }

    /// Adds `RECORD`, and ends the file.
    pub fn finish(mut self) -> Result<()> {
        let name = format!("{}/RECORD", self.info);
        let record = format!("{}{name},,\n", self.record);
        self.put(&name, record.as_bytes(), READABLE)?;
        self.zip.finish()?.flush()?;
        Ok(())
    }

    fn put(&mut self, name: &str, bytes: &[u8], mode: u32) -> Result<()> {
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Deflated)
            .last_modified_time(self.time)
            .unix_permissions(mode);
        self.zip.start_file(name, options)?;
        self.zip.write_all(bytes)?;
        Ok(())
    }
}

/// Returns midnight of a date.
fn time(date: &str) -> Option<DateTime> {
    let mut numbers = date.splitn(3, '-');
    let mut next = || numbers.next();
    let (year, month, day) = (next()?.parse().ok()?, next()?.parse().ok()?, next()?.parse().ok()?);
    DateTime::from_date_and_time(year, month, day, 0, 0, 0).ok()
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn the_record_has_a_row_for_each_file_and_the_files_have_their_modes() {
        let path = std::env::temp_dir().join(format!("urxe-wheel-{}.whl", std::process::id()));
        let mut archive = Archive::create(&path, "a.dist-info", "2026-11-28").unwrap();
        archive.add("a/program", b"hello", EXECUTABLE).unwrap();
        archive.add_info("WHEEL", b"").unwrap();
        archive.finish().unwrap();

        let mut zip = zip::ZipArchive::new(File::open(&path).unwrap()).unwrap();
        std::fs::remove_file(&path).unwrap();
        let mut files = Vec::new();
        for index in 0..zip.len() {
            let mut file = zip.by_index(index).unwrap();
            let mut text = String::new();
            file.read_to_string(&mut text).unwrap();
            let mode = file.unix_mode().unwrap() & 0o777;
            files.push((file.name().unwrap().into_owned(), mode, text));
        }
        // printf hello | openssl dgst -sha256 -binary | basenc --base64url
        let record = "a/program,sha256=LPJNul-wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ,5\n\
             a.dist-info/WHEEL,sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0\n\
             a.dist-info/RECORD,,\n";
        let expected = [
            ("a/program", EXECUTABLE, "hello"),
            ("a.dist-info/WHEEL", READABLE, ""),
            ("a.dist-info/RECORD", READABLE, record),
        ];
        let expected = expected.map(|(name, mode, text)| (name.to_owned(), mode, text.to_owned()));
        assert_eq!(files, expected);
    }

    #[test]
    fn only_dates_that_a_zip_file_can_have_are_taken() {
        let taken = time("2026-11-28").unwrap();
        assert_eq!((taken.year(), taken.month(), taken.day()), (2026, 11, 28));
        for wrong in ["", "2026-11", "2026-13-01", "1979-01-01", "2026-11-28T00:00"] {
            assert!(time(wrong).is_none(), "{wrong}");
        }
    }
}

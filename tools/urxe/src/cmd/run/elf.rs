//! The parts of an ELF file that decide which libraries the loader takes.
//!
//! The headers and the dynamic section are read, and not the whole file, because a program may have
//! a gigabyte. Sources: elf(5), ld.so(8).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use goblin::elf::Elf;
use goblin::elf::dynamic::{DT_NEEDED, DT_NULL, DT_RPATH, DT_RUNPATH, DT_STRSZ, DT_STRTAB};
use goblin::elf::header::{self, EM_386, ET_DYN, ET_EXEC, Header, machine_to_str};
use goblin::elf::program_header::{PT_DYNAMIC, PT_INTERP, PT_LOAD, ProgramHeader};

/// The machine of this program, and so of the library.
#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = header::EM_X86_64;
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = header::EM_AARCH64;

/// The largest part of a file that is read, in bytes.
const PART_MAX: u64 = 16 << 20;

/// A program or library for this machine.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// The loader (`PT_INTERP`); a statically linked program has none.
    pub interpreter: Option<String>,
    /// Names of needed libraries.
    pub needed: Vec<String>,
    /// `DT_RPATH`, unless `DT_RUNPATH` overrides it.
    pub rpath: Option<String>,
}

/// The kind of a file.
#[derive(Debug, PartialEq, Eq)]
pub enum Kind {
    /// A program for this machine.
    Program(Image),
    /// A program for another word size, in bits.
    Bits(u8),
    /// A program for another machine, whose name in `elf.h` follows.
    Machine(String),
    /// An ELF file that is no program, such as an object file, or a damaged one.
    NoProgram,
    /// No ELF file.
    Other,
}

/// Reads the kind of a file.
pub fn read(file: &File) -> io::Result<Kind> {
    let start = part(file, 0, 64)?;
    if !start.starts_with(b"\x7fELF") {
        return Ok(Kind::Other);
    }
    let Ok(header) = Elf::parse_header(&start) else { return Ok(Kind::NoProgram) };
    let is_64 = start[4] == 2;
    match header.e_machine {
        EM_386 => return Ok(Kind::Bits(32)),
        MACHINE if !is_64 => return Ok(Kind::Bits(32)),
        MACHINE => {}
        other => return Ok(Kind::Machine(machine_to_str(other).to_owned())),
    }
    if !matches!(header.e_type, ET_EXEC | ET_DYN) {
        return Ok(Kind::NoProgram);
    }
    Ok(image(file, &header)?.map_or(Kind::NoProgram, Kind::Program))
}

/// Returns `None` if the file is damaged.
fn image(file: &File, header: &Header) -> io::Result<Option<Image>> {
    let Ok(context) = header
        .container()
        .and_then(|container| Ok(goblin::container::Ctx::new(container, header.endianness()?)))
    else {
        return Ok(None);
    };
    let count = usize::from(header.e_phnum);
    let size = u64::from(header.e_phentsize) * count as u64;
    let bytes = part(file, header.e_phoff, size)?;
    let Ok(segments) = ProgramHeader::parse(&bytes, 0, count, context) else { return Ok(None) };
    let find = |kind| segments.iter().find(|segment| segment.p_type == kind);
    let mut image = Image::default();
    if let Some(segment) = find(PT_INTERP) {
        image.interpreter = Some(text(&part(file, segment.p_offset, segment.p_filesz)?, 0));
    }
    let Some(segment) = find(PT_DYNAMIC) else { return Ok(Some(image)) };
    let dynamic = part(file, segment.p_offset, segment.p_filesz)?;
    let entries: Vec<(u64, u64)> = dynamic
        .chunks_exact(16)
        .map(|entry| entry.split_at(8))
        .map(|(tag, value)| (word(tag), word(value)))
        .take_while(|(tag, _)| *tag != DT_NULL)
        .collect();
    let value = |wanted| entries.iter().find(|(tag, _)| *tag == wanted).map(|(_, value)| *value);
    let (Some(strings), Some(size)) = (value(DT_STRTAB), value(DT_STRSZ)) else {
        return Ok(Some(image));
    };
    let offset = segments.iter().filter(|segment| segment.p_type == PT_LOAD).find_map(|segment| {
        let inside = strings.checked_sub(segment.p_vaddr)?;
        (inside < segment.p_filesz).then(|| segment.p_offset.saturating_add(inside))
    });
    let Some(offset) = offset else { return Ok(None) };
    let strings = part(file, offset, size)?;
    let named = |wanted| {
        let found = entries.iter().filter(move |(tag, _)| *tag == wanted);
        found.map(|(_, at)| text(&strings, usize::try_from(*at).unwrap_or(usize::MAX)))
    };
    image.needed = named(DT_NEEDED).collect();
    if value(DT_RUNPATH).is_none() {
        image.rpath = named(DT_RPATH).next();
    }
    Ok(Some(image))
}

/// Returns up to `len` bytes of the file.
fn part(file: &File, offset: u64, len: u64) -> io::Result<Vec<u8>> {
    // A damaged file may have an offset that no file has.
    if i64::try_from(offset).is_err() {
        return Ok(Vec::new());
    }
    let mut bytes = vec![0; usize::try_from(len.min(PART_MAX)).unwrap_or(0)];
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], offset.saturating_add(filled as u64))? {
            0 => break,
            read => filled += read,
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// Returns a number in the byte order of this machine, which all its programs have.
fn word(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_ne_bytes)
}

/// Returns the text up to the next zero.
fn text(bytes: &[u8], at: usize) -> String {
    let bytes = bytes.get(at..).unwrap_or_default();
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// Returns the kind of a file with these bytes.
    fn kind(bytes: &[u8]) -> Kind {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        read(&file).unwrap()
    }

    fn own() -> Vec<u8> {
        std::fs::read(std::env::current_exe().unwrap()).unwrap()
    }

    #[test]
    fn this_program_needs_the_c_library() {
        let Kind::Program(image) = kind(&own()) else { panic!("a program") };
        assert!(image.interpreter.unwrap().contains("ld-linux"), "the loader of glibc");
        assert!(image.needed.iter().any(|name| name == "libc.so.6"), "{:?}", image.needed);
        assert_eq!(image.rpath, None);
    }

    #[test]
    fn the_parts_are_those_of_the_crates_parser() {
        let bytes = own();
        let elf = Elf::parse(&bytes).unwrap();
        let Kind::Program(image) = kind(&bytes) else { panic!("a program") };
        assert_eq!(image.needed, elf.libraries);
        assert_eq!(image.interpreter.as_deref(), elf.interpreter);
    }

    #[test]
    fn other_kinds_are_named() {
        let mut bytes = own();
        bytes.truncate(4096);
        let with = |at: usize, value: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = value;
            kind(&bytes)
        };
        // e_machine is at 18, e_type at 16, the class at 4.
        assert_eq!(with(18, 243), Kind::Machine("RISCV".to_owned()));
        assert_eq!(with(18, 3), Kind::Bits(32));
        assert_eq!(with(16, 1), Kind::NoProgram);
        assert_eq!(kind(b"\x7fELF"), Kind::NoProgram);
        assert_eq!(kind(b"#!/bin/sh\n"), Kind::Other);
        assert_eq!(kind(b""), Kind::Other);
    }

    #[test]
    fn damaged_files_are_read_without_a_panic() {
        let bytes = own();
        for len in (0..8192).step_by(13) {
            kind(&bytes[..len]);
        }
        for at in 0..1024 {
            let mut bytes = bytes[..8192].to_vec();
            bytes[at] ^= 0xff;
            kind(&bytes);
        }
    }
}

use std::io::{Read, Seek};
use std::sync::Arc;

use super::*;
use crate::{
    Accessor, Bind, BindError, Buffer, FastRegError, Fault, Memory, MwType, PdId, ReregMrError,
    inc_rkey,
};

const MOUNTS: &str = "\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:26 / /dev/shm rw,nosuid - tmpfs tmpfs rw
";
const MAPS: &str = "\
1000-2000 rw-s 00000000 08:01 77 /data/a
2000-4000 rw-s 00001000 08:01 77 /data/a
4000-5000 rw-p 00000000 08:01 78 /data/b
5000-6000 rw-p 00000000 00:00 0
6000-7000 rw-s 00000000 00:1a 5 /dev/shm/c
7000-8000 rw-s 00000000 00:01 9 /memfd:d (deleted)
9000-a000 rw-s 00000000 08:01 79 /data/e
";

#[test]
fn only_shared_mappings_of_files_that_last_are_persistent() {
    let check_persistent = |addr, end| check_persistent(MAPS, MOUNTS, addr, end);
    assert_eq!(check_persistent(0x1000, 0x4000), Ok(()), "two mappings side by side");
    assert_eq!(check_persistent(0x1800, 0x2010), Ok(()));
    assert_eq!(check_persistent(0x9fff, 0xa000), Ok(()));
    assert_eq!(
        check_persistent(0x3fff, 0x4001),
        Err("a private mapping, whose changes do not reach its file")
    );
    assert_eq!(check_persistent(0x5000, 0x5001), Err("anonymous memory"));
    for file in [0x6000, 0x7000] {
        assert_eq!(
            check_persistent(file, file + 1),
            Err("mapped from a file that itself lives in memory")
        );
    }
    for range in [(0x800, 0x1001), (0x8000, 0x8001), (0x9000, 0xa001), (0xb000, 0xb001)] {
        assert_eq!(check_persistent(range.0, range.1), Err("not mapped"));
    }
}

#[test]
fn anonymous_memory_is_refused_by_name() {
    let buffer = Buffer::new(4096).expect("a page");
    let addr = buffer.addr().addr();
    let persistent = Access::LOCAL_WRITE | Access::FLUSH_PERSISTENT;
    let refused = RegMrError::NotPersistent { addr, len: 4096, why: "anonymous memory" };
    assert_eq!(check(addr, 4096, persistent), Err(refused));
    assert_eq!(refused.errno(), libc::EINVAL);
    assert_eq!(check(addr, 4096, Access::FLUSH_GLOBAL), Ok(()));
}

#[test]
fn no_verb_and_no_work_request_makes_a_key_that_promises_what_anonymous_memory_cannot_keep() {
    let memory = Memory::new(1, 8);
    let (pd, plain) = (PdId(1), Access::LOCAL_WRITE | Access::REMOTE_WRITE);
    let persistent = plain | Access::FLUSH_PERSISTENT;
    let buffer = Arc::new(Buffer::new(8192).expect("two pages"));
    let mr = memory
        .register_buffer(pd, &buffer, 0..8192, 0, plain | Access::MW_BIND)
        .expect("registered");
    let changed = memory.reregister_buffer(mr.lkey, None, None, Some(persistent));
    assert!(
        matches!(changed, Err(ReregMrError::Terms(RegMrError::NotPersistent { .. }))),
        "{changed:?}"
    );

    let fast = memory.alloc_fast(pd, 2).expect("allocated");
    memory.map_fast_buffers(fast, &[(&buffer, 0..8192)], 4096, 0).expect("mapped");
    let refused = memory.register_fast(fast, persistent, pd);
    assert!(
        matches!(refused, Err(FastRegError::Memory(RegMrError::NotPersistent { .. }))),
        "{refused:?}"
    );
    // The refusal changed nothing: the same mapping is registered without FLUSH_PERSISTENT.
    memory.register_fast(fast, plain | Access::MW_BIND, pd).expect("registered");

    let by = Accessor { pd, qpn: None };
    for region in [mr.lkey, urxe_wire::Lkey(fast.0)] {
        let window = memory.alloc_mw(pd, MwType::Type1).expect("allocated");
        let bind = Bind {
            window,
            new_rkey: inc_rkey(window),
            region,
            addr: 4000,
            length: 200,
            access: persistent,
        };
        let refused = memory.bind(&bind, by);
        assert!(
            matches!(refused, Err(BindError::Memory(RegMrError::NotPersistent { .. }))),
            "{refused:?}"
        );
        memory.bind(&Bind { access: plain, ..bind }, by).expect("bound");
        memory.dealloc_mw(window).expect("deallocated");
        memory.deregister(region).expect("no window counts on it");
    }
}

#[test]
fn a_file_that_is_mapped_shared_is_flushed_to_and_its_file_has_the_bytes() {
    // The directory of the test program, because build directories are on disks.
    let folder = std::env::current_exe().expect("a path").parent().expect("a folder").to_owned();
    let mut file = tempfile::tempfile_in(folder).expect("a file");
    file.set_len(8192).expect("two pages");
    let buffer = Buffer::of_file(&file, 0, 8192).expect("mapped");
    let (base, memory) = (buffer.addr(), Memory::new(1, 4));
    let (pd, access) = (PdId(1), Access::LOCAL_WRITE | Access::FLUSH_PERSISTENT);
    // SAFETY: mapped until the end of the test, without references to the memory.
    let mr = unsafe { memory.register(pd, base, 8192, 0, access | Access::ZERO_BASED) };
    let mr = mr.expect("a shared mapping of a file");
    let pin = memory.pin(mr.rkey.0, pd, Access::FLUSH_PERSISTENT, 4090, 12).expect("pinned");
    pin.write(4090, b"across pages").expect("inside");
    assert_eq!(pin.flush(Some((4090, 12)), true), Ok(()));
    assert_eq!(pin.flush(None, true), Ok(()));
    assert_eq!(pin.flush(Some((8190, 4)), true), Err(Fault::OutOfBounds { addr: 8190, len: 4 }));
    file.seek(std::io::SeekFrom::Start(4090)).expect("a place in it");
    let mut bytes = [0; 12];
    file.read_exact(&mut bytes).expect("twelve bytes");
    assert_eq!(&bytes, b"across pages");
    drop(pin);
    // SAFETY: as above.
    let demand = unsafe { memory.register(pd, base, 8192, 0, access | Access::ON_DEMAND) };
    assert!(matches!(demand, Err(RegMrError::NotPersistent { .. })), "{demand:?}");
    memory.deregister(mr.lkey).expect("registered");
}

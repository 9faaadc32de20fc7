//! Reregistration.

use super::*;
use std::sync::Arc;

fn fill(byte: u8, len: usize) -> Arc<Buffer> {
    let buffer = Buffer::new(len).unwrap();
    buffer.write(0, &vec![byte; len]).unwrap();
    Arc::new(buffer)
}

fn read(memory: &Memory, mr: &Mr, pd: PdId, addr: u64) -> Result<u8, AccessError> {
    let mut byte = [0];
    let pin = memory.pin(mr.rkey.0, pd, Access::REMOTE_READ, addr, 1)?;
    pin.read(addr, &mut byte).unwrap();
    Ok(byte[0])
}

#[test]
fn place_domain_and_rights_change_alone_and_together_under_the_same_key() {
    let memory = Memory::new(1, 16);
    let (one, two) = (fill(1, 4096), fill(2, 8192));
    let mr = memory.register_buffer(PD, &one, 0..4096, 0x10_0000, ALL).unwrap();
    let other = PdId(99);

    let moved =
        memory.reregister_buffer(mr.lkey, Some((&two, 0..8192, 0x20_0000)), None, None).unwrap();
    assert_eq!(moved, Mr { iova: 0x20_0000, len: 8192, ..mr });
    assert_eq!(read(&memory, &mr, PD, 0x20_1fff), Ok(2));
    assert!(matches!(read(&memory, &mr, PD, 0x10_0000), Err(AccessError::OutOfBounds { .. })));
    assert_eq!(Arc::strong_count(&one), 1, "the former buffer is let go of");

    let moved = memory.reregister_buffer(mr.lkey, None, Some(other), None).unwrap();
    assert_eq!(moved.pd, other);
    assert_eq!((memory.count_in(PD), memory.count_in(other)), (0, 1));
    assert!(matches!(read(&memory, &mr, PD, 0x20_0000), Err(AccessError::WrongPd { .. })));
    assert_eq!(read(&memory, &mr, other, 0x20_0000), Ok(2));

    memory.reregister_buffer(mr.lkey, None, None, Some(Access::LOCAL_WRITE)).unwrap();
    assert!(matches!(read(&memory, &mr, other, 0x20_0000), Err(AccessError::Denied { .. })));

    let all =
        memory.reregister_buffer(mr.lkey, Some((&one, 0..100, 0)), Some(PD), Some(ALL)).unwrap();
    assert_eq!(all, Mr { iova: 0, len: 100, ..mr });
    assert_eq!(read(&memory, &mr, PD, 99), Ok(1));
    assert_eq!(memory.query(mr.lkey), Some(all));
    assert_eq!((memory.count_in(PD), memory.count_in(other), memory.count()), (1, 0, 1));
    memory.deregister(mr.lkey).unwrap();
    assert_eq!(memory.count_in(PD), 0);
}

#[test]
fn what_fails_leaves_the_region_as_it_was() {
    let memory = Memory::new(1, 16);
    let (one, pages) = (fill(1, 4096), Pages::new(2));
    let mr = memory.register_buffer(PD, &one, 0..4096, 0, ALL | Access::MW_BIND).unwrap();
    pages.unmap(1);
    let hole = Translation { addr: pages.base, len: pages.len(), iova: 0 };
    let rereg = |change: Change| {
        // SAFETY: nothing is reached: each of these is refused.
        unsafe { memory.reregister(mr.lkey, &change) }.map_err(|error| error.errno())
    };
    let change = Change::default;
    assert_eq!(rereg(change()), Err(libc::EINVAL), "nothing to change");
    assert_eq!(rereg(Change { translation: Some(hole), ..change() }), Err(libc::EFAULT));
    let misplaced = Translation { iova: 1, len: 10, ..hole };
    assert_eq!(rereg(Change { translation: Some(misplaced), ..change() }), Err(libc::EINVAL));
    assert_eq!(
        rereg(Change { access: Some(Access::REMOTE_WRITE), pd: Some(PdId(3)), ..change() }),
        Err(libc::EINVAL)
    );
    assert_eq!(
        rereg(Change { access: Some(ALL | Access::ZERO_BASED), ..change() }),
        Err(libc::EINVAL)
    );
    // SAFETY: no such region.
    let unknown =
        unsafe { memory.reregister(Lkey(mr.lkey.0 ^ 1), &Change { pd: Some(PD), ..change() }) };
    assert!(matches!(unknown, Err(ReregMrError::UnknownKey { .. })));
    let window = memory.alloc_mw(PD, MwType::Type1).unwrap();
    let bind = Bind {
        window,
        new_rkey: window,
        region: mr.lkey,
        addr: 0,
        length: 5,
        access: Access::REMOTE_READ,
    };
    memory.bind(&bind, PD.into()).unwrap();
    assert_eq!(rereg(Change { pd: Some(PdId(3)), ..change() }), Err(libc::EBUSY));
    memory.dealloc_mw(window).unwrap();
    assert_eq!(memory.query(mr.lkey), Some(mr));
    assert_eq!(read(&memory, &mr, PD, 4095), Ok(1));
    assert_eq!((memory.count_in(PD), memory.count_in(PdId(3))), (1, 0));
    let fast = memory.alloc_fast(PD, 1).unwrap();
    memory.map_fast_buffers(fast, &[(&one, 0..10)], 4096, 0).unwrap();
    memory.register_fast(fast, Access::REMOTE_READ, PD).unwrap();
    let refused = memory.reregister_buffer(Lkey(fast.0), None, Some(PD), None);
    assert!(matches!(refused, Err(ReregMrError::FastRegistration { .. })));
}

#[test]
fn a_safe_reregistration_keeps_off_memory_that_the_table_does_not_keep() {
    let memory = Memory::new(1, 16);
    let pages = Pages::new(1);
    // SAFETY: the pages stay until the region is deregistered.
    let mr = unsafe { memory.register(PD, pages.base, 100, pages.base as u64, Access::empty()) }
        .unwrap();
    let refused = memory.reregister_buffer(mr.lkey, None, None, Some(Access::LOCAL_WRITE));
    assert_eq!(refused, Err(ReregMrError::OtherMemory { lkey: mr.lkey }));
    memory.deregister(mr.lkey).unwrap();
}

#[test]
fn changing_while_peers_copy_never_mixes_two_terms() {
    let memory = Memory::new(1, 16);
    let (one, two) = (fill(1, 4096), fill(2, 4096));
    let mr = memory.register_buffer(PD, &one, 0..4096, 0, ALL).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let peer = scope.spawn(|| {
            let mut seen = [0; 4096];
            let mut reads = 0;
            while reads < 1000 || !stop.load(Ordering::Relaxed) {
                if let Ok(pin) = memory.pin(mr.rkey.0, PD, Access::REMOTE_READ, 0, 4096) {
                    pin.read(0, &mut seen).unwrap();
                    assert!(seen.iter().all(|byte| *byte == seen[0]));
                    reads += 1;
                }
            }
        });
        for round in 0..2000 {
            let buffer = if round % 2 == 0 { &two } else { &one };
            memory.reregister_buffer(mr.lkey, Some((buffer, 0..4096, 0)), None, None).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        peer.join().unwrap();
    });
}

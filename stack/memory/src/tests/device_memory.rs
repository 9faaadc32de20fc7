//! Device memory.

use super::*;

#[test]
fn device_memory_is_copied_registered_and_freed() {
    let memory = Memory::new(1, 16);
    let dm = memory.alloc_dm(10_000, 6).unwrap();
    memory.copy_to_dm(dm, 9_988, b"at the end..").unwrap();
    assert_eq!(
        memory.copy_to_dm(dm, 9_996, b"beyond.."),
        Err(DmError::OutOfBounds { offset: 9_996, len: 8, dm_len: 10_000 })
    );
    let access = ALL | Access::ZERO_BASED;
    assert_eq!(memory.register_dm(PD, dm, 0..10, ALL), Err(DmError::NotZeroBased { given: ALL }));
    let outside = DmError::OutOfBounds { offset: 1, len: 10_000, dm_len: 10_000 };
    assert_eq!(memory.register_dm(PD, dm, 1..10_001, access), Err(outside));
    let mr = memory.register_dm(PD, dm, 9_984..10_000, access).unwrap();
    {
        let pin = memory.pin(mr.rkey.0, PD, Access::REMOTE_WRITE, 0, 16).unwrap();
        let mut seen = [0; 12];
        pin.read(4, &mut seen).unwrap();
        assert_eq!(&seen, b"at the end..");
        pin.write(7, b"changed").unwrap();
        assert_eq!(pin.fetch_add(8, 0).map(drop), Ok(()), "aligned in both address spaces");
    }
    let mut seen = [0; 12];
    memory.copy_from_dm(dm, 9_988, &mut seen).unwrap();
    assert_eq!(&seen, b"at changed..");
    assert_eq!(memory.free_dm(dm), Err(DmError::Busy { regions: 1 }));
    assert_eq!(DmError::Busy { regions: 1 }.errno(), libc::EBUSY);
    memory.deregister(mr.lkey).unwrap();
    memory.free_dm(dm).unwrap();
    assert_eq!(memory.free_dm(dm), Err(DmError::Unknown));
    assert_eq!(memory.copy_from_dm(dm, 0, &mut seen), Err(DmError::Unknown));
}

#[test]
fn device_memory_has_an_end() {
    let memory = Memory::new(1, 16);
    let allowed = memory.limits().max_dm;
    let all = memory.alloc_dm(allowed as usize, 0).unwrap();
    assert_eq!(memory.alloc_dm(1, 0), Err(DmError::TooMuch { given: 1, left: 0, allowed }));
    memory.free_dm(all).unwrap();
    assert_eq!(memory.alloc_dm(0, 0), Err(DmError::ZeroLength));
    assert_eq!(memory.alloc_dm(8, 13), Err(DmError::Alignment { given: 13 }));
    // A failed registration must not keep the device memory in use.
    let dm = memory.alloc_dm(8, 0).unwrap();
    let refused = memory.register_dm(PD, dm, 0..8, Access::REMOTE_WRITE | Access::ZERO_BASED);
    assert!(
        matches!(refused, Err(DmError::Register(RegMrError::NeedsLocalWrite { .. }))),
        "{refused:?}"
    );
    memory.free_dm(dm).unwrap();
}

#[test]
fn device_memory_is_copied_in_whole_words() {
    let memory = Memory::new(1, 16);
    let dm = memory.alloc_dm(100, 0).unwrap();
    let mut word = [0; 4];
    for (offset, len) in [(1, 4), (4, 3), (2, 2)] {
        let refused = Err(DmError::Unaligned { offset, len });
        assert_eq!(memory.copy_to_dm(dm, offset, &word[..len]), refused);
        assert_eq!(memory.copy_from_dm(dm, offset, &mut word[..len]), refused);
    }
    assert_eq!(DmError::Unaligned { offset: 1, len: 4 }.errno(), libc::EINVAL);
    // A region of zero bytes is allowed, too.
    let nothing = memory.register_dm(PD, dm, 100..100, ALL | Access::ZERO_BASED).unwrap();
    assert!(memory.pin(nothing.rkey.0, PD, Access::REMOTE_WRITE, 0, 1).is_err());
    memory.deregister(nothing.lkey).unwrap();
    memory.free_dm(dm).unwrap();
}

//! Memory that is missing, or has a wrong protection.

use super::*;

fn outcome(memory: &Memory, addr: *mut u8, len: usize, access: Access) -> Result<Mr, RegMrError> {
    // SAFETY: the tests keep registered memory while they use it, or the region is on demand.
    unsafe { memory.register(PD, addr, len, addr.addr() as u64, access) }
}

#[test]
fn registering_what_is_not_mapped_answers_efault() {
    let memory = Memory::new(1, 16);
    let pages = Pages::new(5);
    pages.unmap(2);
    let size = Pages::size();
    for access in [Access::empty(), ALL] {
        let at = |page: usize| pages.page(page);
        for (addr, len) in [
            (at(2), size),
            (at(2).wrapping_add(17), 1),
            (pages.base, 5 * size),
            (at(1), size + 1),
            (at(1).wrapping_add(size - 1), 2),
            (at(2).wrapping_add(size - 1), 2),
        ] {
            let expected = RegMrError::NotMapped { addr: addr.addr(), len };
            assert_eq!(outcome(&memory, addr, len, access), Err(expected));
            assert_eq!(expected.errno(), libc::EFAULT);
        }
        outcome(&memory, at(0), 2 * size, access).expect("before the hole");
        outcome(&memory, at(3), 2 * size, access).expect("behind the hole");
    }
    let null = null_mut();
    assert_eq!(
        outcome(&memory, null, size, Access::empty()),
        Err(RegMrError::NotMapped { addr: 0, len: size })
    );
    assert_eq!(memory.count(), 4);
}

#[test]
fn registering_against_the_protection_answers_efault() {
    let memory = Memory::new(1, 16);
    let pages = Pages::new(3);
    pages.protect(1, MprotectFlags::READ);
    let (addr, len) = (pages.base.addr(), pages.len());
    let expected = RegMrError::NotAccessible { addr, len, write: true };
    assert_eq!(outcome(&memory, pages.base, len, Access::LOCAL_WRITE), Err(expected));
    assert_eq!(expected.errno(), libc::EFAULT);
    outcome(&memory, pages.base, len, Access::REMOTE_READ).expect("reading is allowed");
    pages.protect(1, MprotectFlags::empty());
    let expected = RegMrError::NotAccessible { addr, len, write: false };
    assert_eq!(outcome(&memory, pages.base, len, Access::REMOTE_READ), Err(expected));
}

#[test]
fn registering_behind_the_end_of_a_file_answers_efault() {
    let memory = Memory::new(1, 16);
    let size = Pages::size();
    let pages = Pages::of_memfd(2, 1);
    outcome(&memory, pages.base, size, ALL).expect("the file's page");
    for access in [Access::REMOTE_READ, ALL] {
        let refused = outcome(&memory, pages.base, 2 * size, access).map_err(|error| error.errno());
        assert_eq!(refused, Err(libc::EFAULT));
    }
}

#[test]
fn on_demand_pages_come_and_go() {
    let memory = Memory::new(1, 16);
    let pages = Pages::new(3);
    pages.unmap(1);
    let mr =
        outcome(&memory, pages.base, pages.len(), ALL | Access::ON_DEMAND).expect("holes are fine");
    let pin = memory.pin(mr.rkey.0, PD, Access::REMOTE_WRITE, mr.iova, mr.len as u64).unwrap();
    let size = Pages::size() as u64;
    let data: Vec<u8> = (0..size).map(|i| (i % 253) as u8).collect();

    pin.write(mr.iova, &data).unwrap();
    let mut back = vec![0; data.len()];
    pin.read(mr.iova, &mut back).unwrap();
    assert_eq!(back, data);
    pin.write(mr.iova + 3 * size - 3, &[1, 2, 3]).unwrap();
    pin.write(mr.iova, &[]).unwrap();
    pin.read(mr.iova, &mut []).unwrap();

    let not_mapped = |addr, len| Err(Fault::NotMapped { addr, len });
    for (addr, len) in [
        (mr.iova + size, 1),
        (mr.iova + size, size),
        (mr.iova + 10, size),
        (mr.iova + size * 2 - 1, 2),
    ] {
        assert_eq!(pin.write(addr, &data[..len as usize]), not_mapped(addr, len));
        assert_eq!(pin.read(addr, &mut back[..len as usize]), not_mapped(addr, len));
    }
    assert_eq!(pin.fetch_add(mr.iova + size, 1).map(drop), not_mapped(mr.iova + size, 8));

    pages.protect(2, MprotectFlags::READ);
    let addr = mr.iova + 2 * size;
    assert_eq!(pin.write(addr, &[1]), not_mapped(addr, 1));
    assert_eq!(pin.compare_swap(addr, 0, 1).map(drop), not_mapped(addr, 8));
    assert_eq!(pin.read(addr, &mut [0]), Ok(()));
    pages.protect(2, MprotectFlags::READ | MprotectFlags::WRITE);
    assert_eq!(pin.fetch_add(addr, 5), Ok(0));
    assert_eq!(pin.fetch_add(addr, 5), Ok(5));
}

#[test]
fn a_checked_table_survives_a_program_that_unmaps() {
    let memory = Memory::with_mode(1, 16, CopyMode::Checked);
    let pages = Pages::new(2);
    let mr = outcome(&memory, pages.base, pages.len(), ALL).unwrap();
    let pin = memory.pin(mr.rkey.0, PD, Access::REMOTE_WRITE, mr.iova, mr.len as u64).unwrap();
    pin.write(mr.iova, &[7; 100]).unwrap();
    pages.unmap(0);
    assert_eq!(pin.write(mr.iova, &[7; 100]), Err(Fault::NotMapped { addr: mr.iova, len: 100 }));
    assert_eq!(pin.read(mr.iova, &mut [0]), Err(Fault::NotMapped { addr: mr.iova, len: 1 }));
    // Registration still faults the pages in, so that the mistake shows early.
    assert!(outcome(&memory, pages.base, pages.len(), ALL).is_err());
}

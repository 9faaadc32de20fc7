//! The fallbacks, each compared with the preferred way of this kernel.

use super::super::tests::Pages;
use super::*;
use rustix::mm::MprotectFlags;

#[test]
fn the_pipe_copies_like_the_direct_call() {
    let pages = Pages::new(4);
    pages.unmap(3);
    let size = Pages::size();
    let data: Vec<u8> = (0..3 * size).map(|i| (i % 251) as u8).collect();
    for (offset, len) in [(0, 1), (5, 4096), (1, 4097), (0, 3 * size), (100, 2 * size + 7)] {
        let there = pages.base.wrapping_add(offset);
        let mut back = vec![0; len];
        // SAFETY: the pages are this test's own, and referred to by nothing.
        unsafe {
            pipe(Direction::ToTarget, data.as_ptr().cast_mut(), there, len).unwrap();
            pipe(Direction::FromTarget, back.as_mut_ptr(), there, len).unwrap();
        }
        assert_eq!(back, data[..len]);
        back.fill(0);
        read(there, WriteOnly::from(&mut back)).unwrap();
        assert_eq!(back, data[..len]);
    }
    let mut back = vec![0; 2 * size];
    for offset in [3 * size, 3 * size - 1, 2 * size] {
        let there = pages.base.wrapping_add(offset);
        // SAFETY: as above.
        unsafe {
            let fault = Err(CheckedCopyError::NotMapped);
            assert_eq!(pipe(Direction::ToTarget, data.as_ptr().cast_mut(), there, 2 * size), fault);
            assert_eq!(pipe(Direction::FromTarget, back.as_mut_ptr(), there, 2 * size), fault);
        }
    }
}

#[test]
fn probing_page_by_page_agrees_with_populate() {
    let pages = Pages::new(6);
    pages.unmap(1);
    pages.protect(3, MprotectFlags::READ);
    pages.protect(4, MprotectFlags::empty());
    for (index, readable, writable) in [
        (0, Ok(()), Ok(())),
        (1, Err(PopulateError::NotMapped), Err(PopulateError::NotMapped)),
        (3, Ok(()), Err(PopulateError::NotAccessible)),
        (4, Err(PopulateError::NotAccessible), Err(PopulateError::NotAccessible)),
        (5, Ok(()), Ok(())),
    ] {
        let page = pages.page(index);
        assert_eq!(make_present(page, 1, false), readable, "reading page {index}");
        assert_eq!(make_present(page, 1, true), writable, "writing page {index}");
        assert_eq!(probe_read(page), readable, "probing page {index} for reading");
        assert_eq!(probe_write(page), writable, "probing page {index} for writing");
    }
    let whole = |first, count: usize| {
        let page = Pages::size();
        probe_pages(pages.page(first), count * page, page, probe_write)
    };
    assert_eq!(whole(0, 1), Ok(()));
    assert_eq!(whole(0, 3), Err(PopulateError::NotMapped));
    assert_eq!(whole(2, 2), Err(PopulateError::NotAccessible));
}

#[test]
fn probing_for_writing_changes_nothing() {
    let pages = Pages::new(1);
    // SAFETY: the page is this test's own, and referred to by nothing.
    unsafe { write(pages.base, &[0xa5; 8]) }.unwrap();
    assert_eq!(probe_write(pages.base), Ok(()));
    let mut back = [0; 9];
    read(pages.base, WriteOnly::from(&mut back)).unwrap();
    assert_eq!(back, [0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0xa5, 0]);
}

//! The helper on a present page, on a missing page, and on a page that is mapped and unmapped
//! meanwhile.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use rustix::mm::MprotectFlags;

use super::super::tests::Pages;
use super::*;

const ALL: [Operation; 5] = [
    Operation::Load,
    Operation::FetchAdd(5),
    Operation::CompareSwap { compare: 40, swap: 7 },
    Operation::CompareSwap { compare: 41, swap: 7 },
    Operation::Store(9),
];

fn word_of(pages: &Pages, page: usize) -> *mut u64 {
    pages.page(page).wrapping_add(16).cast()
}

/// Returns the result of the helper alone, without the check before it.
fn help_with(operation: Operation, word: *mut u64) -> Result<bool, libc::c_int> {
    let mut task = Task { operation, word, before: 0, is_done: false };
    run_helper(&mut task).map(|()| task.is_done)
}

#[test]
fn the_helper_does_what_this_process_would() {
    let pages = Pages::new(2);
    let [here, there] = [0, 1].map(|page| word_of(&pages, page));
    for operation in ALL {
        // SAFETY: aligned words of this test's own pages, which stay, and to which nothing refers.
        unsafe {
            Operation::Store(40).execute(here);
            Operation::Store(40).execute(there);
            assert_eq!(
                operation.perform(there, true),
                operation.perform(here, false),
                "{operation:?}"
            );
            let [there, here] = [there, here].map(|word| Operation::Load.execute(word));
            assert_eq!(there, here, "{operation:?}");
        }
    }
}

#[test]
fn a_page_that_is_not_there_ends_the_helper_alone() {
    let pages = Pages::new(3);
    pages.unmap(0);
    pages.protect(1, MprotectFlags::READ);
    let short = Pages::of_memfd(1, 0);
    for operation in ALL {
        let is_load = matches!(operation, Operation::Load);
        for (word, is_there) in
            [(word_of(&pages, 0), false), (word_of(&pages, 1), is_load), (short.base.cast(), false)]
        {
            assert_eq!(help_with(operation, word), Ok(is_there), "{operation:?}");
            // SAFETY: an aligned word of this test's own.
            let outcome = unsafe { operation.perform(word, true) };
            assert_eq!(outcome.is_ok(), is_there, "{operation:?}: {outcome:?}");
        }
    }
    assert_eq!(help_with(Operation::Store(1), word_of(&pages, 2)), Ok(true));
}

/// A check before the access is not enough for this case: an instruction of this process would end
/// in SIGSEGV.
#[test]
fn a_page_may_come_and_go_meanwhile() {
    let pages = Pages::new(1);
    let word = word_of(&pages, 0);
    let is_over = AtomicBool::new(false);
    let (mut done, mut missed) = (0_u64, 0);
    let base = pages.base.expose_provenance();
    thread::scope(|scope| {
        scope.spawn(|| {
            let base = std::ptr::with_exposed_provenance_mut(base);
            while !is_over.load(Ordering::Relaxed) {
                for rights in [MprotectFlags::empty(), MprotectFlags::READ | MprotectFlags::WRITE] {
                    // SAFETY: this test's own page, whose users expect that it may be missing.
                    unsafe { rustix::mm::mprotect(base, Pages::size(), rights).unwrap() };
                }
            }
        });
        while done < 50 || missed < 50 {
            // SAFETY: an aligned word of this test's own page.
            match unsafe { Operation::FetchAdd(1).perform(word, true) } {
                Ok(before) => {
                    assert_eq!(before, done);
                    done += 1;
                }
                Err(error) => {
                    assert_eq!(error, CheckedCopyError::NotMapped);
                    missed += 1;
                }
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn helpers_and_threads_count_exactly_once() {
    const EACH: u64 = 100;
    let word = AtomicU64::new(0);
    thread::scope(|scope| {
        for thread in 0..4 {
            let word = &word;
            scope.spawn(move || {
                for _ in 0..EACH {
                    // SAFETY: the word is an atomic, which stays.
                    unsafe {
                        Operation::FetchAdd(1).perform(word.as_ptr(), thread % 2 == 0).unwrap()
                    };
                }
            });
        }
    });
    assert_eq!(word.into_inner(), 4 * EACH);
}

#[test]
fn the_thread_blocks_the_same_signals_as_before() {
    fn blocked() -> Vec<libc::c_int> {
        let mut set = MaybeUninit::zeroed();
        // SAFETY: asks for the present mask, for which there is room.
        unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), set.as_mut_ptr());
            (1..=libc::SIGRTMAX())
                .filter(|signal| libc::sigismember(set.as_ptr(), *signal) == 1)
                .collect()
        }
    }
    let before = blocked();
    let mut word = 3;
    assert_eq!(help_with(Operation::Load, &raw mut word), Ok(true));
    assert_eq!(blocked(), before);
}

//! Tests of the order of waiters, and of grants that their waiters do not use.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Wake;

use proptest::prelude::*;

use super::*;

#[derive(Default)]
struct Count(AtomicU32);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn nobody() -> Waker {
    Waker::noop().clone()
}

#[test]
fn a_granted_waiter_that_leaves_passes_its_permit_on() {
    let (one, two) = (Arc::new(Count::default()), Arc::new(Count::default()));
    let mut turns = Turns::new(0);
    let first = turns.wait(Waker::from(Arc::clone(&one)));
    let gone = turns.wait(nobody());
    let second = turns.wait(Waker::from(Arc::clone(&two)));
    turns.leave(gone);
    turns.add().unwrap().wake();
    assert_eq!((one.0.load(Ordering::Relaxed), two.0.load(Ordering::Relaxed)), (1, 0));
    let (_, next) = turns.leave(first);
    next.unwrap().wake();
    assert_eq!((one.0.load(Ordering::Relaxed), two.0.load(Ordering::Relaxed)), (1, 1));
    assert!(!turns.try_take(), "it is granted, not available");
    assert!(turns.poll(second, &mut nobody()));
    assert!(!turns.has_waiters());
}

#[derive(Clone, Debug)]
enum Step {
    Come,
    Leave(usize),
    Poll(usize),
    Add,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        Just(Step::Come),
        (0..8usize).prop_map(Step::Leave),
        (0..8usize).prop_map(Step::Poll),
        Just(Step::Add),
    ]
}

proptest! {
    /// No permit is lost or made, and the first waiters have the grants.
    #[test]
    fn permits_are_conserved_and_waiters_are_served_in_order(
        steps in proptest::collection::vec(step(), 0..200)
    ) {
        let mut turns = Turns::new(2);
        let (mut permits, mut used) = (2, 0);
        let mut waiting = Vec::new();
        for step in steps {
            match step {
                Step::Come if turns.try_take() => used += 1,
                Step::Come => waiting.push(turns.wait(nobody())),
                Step::Leave(nr) if nr < waiting.len() => {
                    turns.leave(waiting.remove(nr));
                }
                Step::Poll(nr) if nr < waiting.len() => {
                    let is_served = turns.poll(waiting[nr], &mut nobody());
                    prop_assert_eq!(is_served, nr < permits - used);
                    if is_served {
                        waiting.remove(nr);
                        used += 1;
                    }
                }
                Step::Add => {
                    turns.add();
                    permits += 1;
                }
                _ => {}
            }
            let free = permits - used;
            prop_assert_eq!(turns.available, free.saturating_sub(waiting.len()));
            prop_assert_eq!(turns.next_waker().is_some(), waiting.len() > free);
            prop_assert_eq!(turns.has_waiters(), !waiting.is_empty());
        }
    }
}

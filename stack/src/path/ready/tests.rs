#[cfg(not(loom))]
#[test]
fn each_thing_is_listed_once_and_newest_first() {
    use super::*;
    let links = [ReadyLink::new(), ReadyLink::new(), ReadyLink::new()];
    let list = ReadyList::new();
    assert!(list.is_empty());
    for index in [0, 1, 0, 2, 1] {
        list.push(index, &links[index as usize]);
    }
    let mut taken = Vec::new();
    list.take_all(|index| &links[index as usize], |index| taken.push(index));
    assert_eq!(taken, [2, 1, 0]);
    assert!(list.is_empty());
    // Taken but not unlisted: still listed.
    list.push(1, &links[1]);
    assert!(list.is_empty());
    links[1].unlist();
    list.push(1, &links[1]);
    assert!(!list.is_empty());
}

/// Two posters and a consumer: whatever is posted after the consumer looked is found by a later look.
#[cfg(loom)]
#[test]
fn loom_no_post_is_lost() {
    use super::*;
    use crate::sync::Arc;
    use crate::sync::atomic::{AtomicU32, Ordering};

    struct Shared {
        list: ReadyList,
        links: [ReadyLink; 2],
        work: [AtomicU32; 2],
    }
    loom::model(|| {
        let shared = Arc::new(Shared {
            list: ReadyList::new(),
            links: [ReadyLink::new(), ReadyLink::new()],
            work: [AtomicU32::new(0), AtomicU32::new(0)],
        });
        let posters: Vec<_> = (0..2)
            .map(|index: u32| {
                let shared = Arc::clone(&shared);
                loom::thread::spawn(move || {
                    shared.work[index as usize].store(1, Ordering::Release);
                    shared.list.push(index, &shared.links[index as usize]);
                })
            })
            .collect();
        let consume = |shared: &Shared| {
            let mut taken = Vec::new();
            shared.list.take_all(|i| &shared.links[i as usize], |i| taken.push(i));
            let mut done = 0;
            for index in taken {
                shared.links[index as usize].unlist();
                done += shared.work[index as usize].swap(0, Ordering::AcqRel);
            }
            done
        };
        let early = consume(&shared);
        for poster in posters {
            poster.join().unwrap();
        }
        assert_eq!(early + consume(&shared), 2);
    });
}

/// The same where the work is done and posted under a lock, which makes a plain store of the consumer's and a plain look of the
/// poster's enough.
#[cfg(loom)]
#[test]
fn loom_no_change_under_a_lock_is_lost() {
    use super::*;
    use crate::sync::{Arc, Mutex, lock};

    struct Shared {
        list: ReadyList,
        link: ReadyLink,
        work: Mutex<u32>,
    }
    loom::model(|| {
        let shared = Arc::new(Shared { list: ReadyList::new(), link: ReadyLink::new(), work: Mutex::new(0) });
        let posters: Vec<_> = (0..2)
            .map(|_| {
                let shared = Arc::clone(&shared);
                loom::thread::spawn(move || {
                    *lock(&shared.work) += 1;
                    shared.list.push_changed(0, &shared.link);
                })
            })
            .collect();
        let consume = |shared: &Shared| {
            let mut done = 0;
            shared.list.take_all(
                |_| &shared.link,
                |_| {
                    shared.link.unlist_before_lock();
                    done += std::mem::take(&mut *lock(&shared.work));
                },
            );
            done
        };
        let early = consume(&shared);
        for poster in posters {
            poster.join().unwrap();
        }
        assert_eq!(early + consume(&shared), 2);
    });
}

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

#[cfg(not(loom))]
#[test]
fn what_is_appended_is_in_its_order_behind_what_is_there() {
    use super::*;
    let links: Vec<_> = (0..7).map(|_| ReadyLink::new()).collect();
    let list = ReadyList::new();
    let mut to = VecDeque::from([9]);
    for expected in [&[9][..], &[9, 3], &[9, 3, 5, 0], &[9, 3, 5, 0, 6, 2, 1]] {
        for index in &expected[to.len()..] {
            assert!(list.push_alone(*index, &links[*index as usize]));
            assert!(!list.push_alone(*index, &links[*index as usize]), "it is listed");
        }
        list.append_to(&mut to, |index| &links[index as usize], ReadyLink::unlist_before_lock);
        assert_eq!(to, expected);
    }
    assert!(list.push_alone(3, &links[3]), "it was unlisted");
}

/// Two posters and a consumer: whatever is posted after the consumer looked is found by a later
/// look.
#[cfg(loom)]
#[test]
fn loom_no_post_is_lost() {
    use super::*;
    use urxe_types::sync::Arc;
    use urxe_types::sync::atomic::{AtomicU32, Ordering};

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

/// The same where the work is done and posted under a lock, which makes a plain store of the
/// consumer's and a plain look of the poster's enough.
#[cfg(loom)]
#[test]
fn loom_no_change_under_a_lock_is_lost() {
    use super::*;
    use urxe_types::sync::{Arc, Mutex, lock};

    struct Shared {
        list: ReadyList,
        link: ReadyLink,
        work: Mutex<u32>,
    }
    loom::model(|| {
        let shared = Arc::new(Shared {
            list: ReadyList::new(),
            link: ReadyLink::new(),
            work: Mutex::new(0),
        });
        let posters: Vec<_> = (0..2)
            .map(|_| {
                let shared = Arc::clone(&shared);
                loom::thread::spawn(move || {
                    let mut work = lock(&shared.work);
                    *work += 1;
                    shared.list.push_alone(0, &shared.link);
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

/// Who comes late is listed under a lock if it is not blocked, and blocked from then until the
/// consumer looks at it under that lock: no post is lost, and a link that is listed is never
/// touched.
#[cfg(loom)]
#[test]
fn loom_nobody_who_comes_late_is_lost() {
    use super::*;
    use urxe_types::sync::{Arc, Mutex, lock};

    #[derive(Default)]
    struct Thing {
        work: u32,
        is_blocked: bool,
    }
    struct Shared {
        list: ReadyList,
        link: ReadyLink,
        thing: Mutex<Thing>,
    }
    loom::model(|| {
        let thing = Mutex::new(Thing::default());
        let shared = Arc::new(Shared { list: ReadyList::new(), link: ReadyLink::new(), thing });
        let posters: Vec<_> = (0..2)
            .map(|_| {
                let shared = Arc::clone(&shared);
                loom::thread::spawn(move || {
                    let mut thing = lock(&shared.thing);
                    thing.work += 1;
                    if !thing.is_blocked {
                        assert!(shared.list.push_alone(0, &shared.link));
                        thing.is_blocked = true;
                    }
                })
            })
            .collect();
        let consume = |shared: &Shared| {
            let mut waiting = VecDeque::new();
            shared.list.append_to(&mut waiting, |_| &shared.link, ReadyLink::unlist_before_lock);
            let mut done = 0;
            for _ in waiting {
                done += std::mem::take(&mut *lock(&shared.thing)).work;
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

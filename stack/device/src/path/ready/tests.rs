use super::*;

#[cfg(not(loom))]
#[test]
fn each_thing_is_listed_once_and_newest_first() {
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
    // A thing that was taken and not unlisted is still listed.
    list.push(1, &links[1]);
    assert!(list.is_empty());
    links[1].unlist();
    list.push(1, &links[1]);
    assert!(!list.is_empty());
}

#[cfg(not(loom))]
#[test]
fn appended_entries_keep_their_order_behind_the_present_ones() {
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

/// Models in which two posters and a consumer run beside each other. The consumer looks once beside
/// the posters and once after them: the two looks together find both posts.
#[cfg(loom)]
mod models {
    use super::*;
    use urxe_types::sync::atomic::{AtomicU32, Ordering};
    use urxe_types::sync::{Arc, Mutex, lock};

    fn explore<S: Send + Sync + 'static>(
        new: fn() -> S,
        post: fn(&S, u32),
        consume: fn(&S) -> u32,
    ) {
        loom::model(move || {
            let shared = Arc::new(new());
            let posters = [0, 1].map(|index| {
                let shared = Arc::clone(&shared);
                loom::thread::spawn(move || post(&shared, index))
            });
            let early = consume(&shared);
            posters.into_iter().for_each(|poster| poster.join().unwrap());
            assert_eq!(early + consume(&shared), 2);
        });
    }

    /// One thing, whose work is counted under a lock.
    struct Locked<T> {
        list: ReadyList,
        link: ReadyLink,
        thing: Mutex<T>,
    }

    impl<T: Default> Locked<T> {
        fn new() -> Self {
            Self { list: ReadyList::new(), link: ReadyLink::new(), thing: Mutex::new(T::default()) }
        }
    }

    #[test]
    fn loom_no_post_is_lost() {
        struct Shared {
            list: ReadyList,
            links: [ReadyLink; 2],
            work: [AtomicU32; 2],
        }
        explore(
            || Shared {
                list: ReadyList::new(),
                links: [ReadyLink::new(), ReadyLink::new()],
                work: [AtomicU32::new(0), AtomicU32::new(0)],
            },
            |shared, index| {
                shared.work[index as usize].store(1, Ordering::Release);
                shared.list.push(index, &shared.links[index as usize]);
            },
            |shared| {
                let mut taken = Vec::new();
                shared.list.take_all(|i| &shared.links[i as usize], |i| taken.push(i as usize));
                let done = taken.into_iter().map(|index| {
                    shared.links[index].unlist();
                    shared.work[index].swap(0, Ordering::AcqRel)
                });
                done.sum()
            },
        );
    }

    /// Where the work is done and posted under a lock, a plain store of the consumer and a plain
    /// load of the poster are enough.
    #[test]
    fn loom_no_change_under_a_lock_is_lost() {
        explore(
            Locked::<u32>::new,
            |shared, _| {
                let mut work = lock(&shared.thing);
                *work += 1;
                shared.list.push_alone(0, &shared.link);
            },
            |shared| {
                let mut done = 0;
                shared.list.take_all(
                    |_| &shared.link,
                    |_| {
                        shared.link.unlist_before_lock();
                        done += std::mem::take(&mut *lock(&shared.thing));
                    },
                );
                done
            },
        );
    }

    /// A thing whose turn is deferred is listed under its lock if it is not blocked, and is blocked
    /// from then until the consumer looks at it under that lock: no post is lost, and a link that
    /// is listed is never touched.
    #[test]
    fn loom_no_deferred_post_is_lost() {
        explore(
            Locked::<(u32, bool)>::new,
            |shared, _| {
                let (work, is_blocked) = &mut *lock(&shared.thing);
                *work += 1;
                if !*is_blocked {
                    assert!(shared.list.push_alone(0, &shared.link));
                    *is_blocked = true;
                }
            },
            |shared| {
                let (mut waiting, unlist) = (VecDeque::new(), ReadyLink::unlist_before_lock);
                shared.list.append_to(&mut waiting, |_| &shared.link, unlist);
                waiting.iter().map(|_| std::mem::take(&mut *lock(&shared.thing)).0).sum()
            },
        );
    }
}

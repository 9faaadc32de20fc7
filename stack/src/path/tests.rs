/// Two threads list work and flush: whatever the interleaving, all of it is done when both have returned.
#[cfg(loom)]
#[test]
fn loom_no_flush_is_lost() {
    use super::window::EARLY_TIMEOUT_MIN;
    use super::*;
    use crate::sync::Arc;
    use crate::sync::atomic::AtomicU32;

    loom::model(|| {
        let path = Arc::new(Path::new(0, EARLY_TIMEOUT_MIN));
        let links = Arc::new([ReadyLink::new(), ReadyLink::new()]);
        let done = Arc::new(AtomicU32::new(0));
        let work = |index: u32| {
            let (path, links, done) = (Arc::clone(&path), Arc::clone(&links), Arc::clone(&done));
            move || {
                path.ready.push(index, &links[index as usize]);
                path.flush(|_| {
                    path.ready.take_all(
                        |i| &links[i as usize],
                        |i| {
                            links[i as usize].unlist();
                            done.fetch_add(1, Ordering::Relaxed);
                        },
                    );
                });
            }
        };
        let other = loom::thread::spawn(work(1));
        work(0)();
        other.join().unwrap();
        assert_eq!(done.load(Ordering::Relaxed), 2);
    });
}

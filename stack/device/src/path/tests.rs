/// Two threads list work and flush. In every interleaving, all work is done when both have
/// returned.
#[cfg(loom)]
#[test]
fn loom_no_flush_is_lost() {
    use super::window::EARLY_TIMEOUT_MIN;
    use super::*;
    use urxe_types::sync::Arc;
    use urxe_types::sync::atomic::AtomicU32;

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

/// When `flush_after_others` returns, the work that its thread listed is done, although another
/// thread held the sender lock.
#[cfg(not(loom))]
#[test]
fn flushing_after_others_waits_for_them() {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::Path;
    use super::window::EARLY_TIMEOUT_MIN;

    let path = Path::new(0, EARLY_TIMEOUT_MIN);
    let (began, has_begun) = mpsc::channel();
    let (let_go, may_go) = mpsc::channel::<()>();
    let (returned, has_returned) = mpsc::channel();
    thread::scope(|scope| {
        let path = &path;
        scope.spawn(move || {
            path.flush(|_| {
                began.send(()).unwrap();
                may_go.recv().unwrap();
            });
        });
        has_begun.recv().unwrap();
        scope.spawn(move || {
            let mut sent = false;
            path.flush_after_others(|_| sent = true);
            returned.send(sent).unwrap();
        });
        let early = has_returned.recv_timeout(Duration::from_millis(50));
        assert!(early.is_err(), "it returned while another was sending");
        let_go.send(()).unwrap();
        assert!(has_returned.recv().unwrap());
    });
}

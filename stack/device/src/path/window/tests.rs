use super::*;

fn window() -> Window {
    Window::new(1000, EARLY_TIMEOUT_MIN)
}

#[test]
fn one_packet_always_passes_an_idle_path() {
    let window = window();
    assert!(window.admits(1 << 30));
    window.consume(1 << 30);
    assert!(!window.admits(1));
    window.return_credit(1 << 30);
    assert!(window.admits(1));
}

#[test]
fn loss_shrinks_once_a_round_trip_and_never_below_a_run() {
    let window = window();
    let second = Time::from_ns(1_000_000_000);
    window.on_loss(second);
    let once = window.limit.load(Ordering::Relaxed);
    assert_eq!(once, INITIAL_WINDOW * 3 / 4);
    window.on_loss(second.plus_ns(10));
    assert_eq!(window.limit.load(Ordering::Relaxed), once);
    for i in 1..100 {
        window.on_loss(second.plus_ns(i * 1_000_000_000));
    }
    assert_eq!(window.limit.load(Ordering::Relaxed), MIN_WINDOW);
}

#[test]
fn isolated_losses_do_not_shrink_it() {
    let window = window();
    for i in 1..100 {
        window.on_acknowledged(MAX_WINDOW, Time::ZERO);
        window.on_loss(Time::from_ns(i * 1_000_000_000));
    }
    assert_eq!(window.limit.load(Ordering::Relaxed), MAX_WINDOW);
    window.on_acknowledged(MAX_WINDOW / 2, Time::ZERO);
    window.on_loss(Time::from_ns(200_000_000_000));
    assert_eq!(window.limit.load(Ordering::Relaxed), MAX_WINDOW * 3 / 4);
}

#[test]
fn acknowledgements_grow_it_to_the_maximum() {
    let window = window();
    window.consume(MAX_WINDOW);
    for _ in 0..1000 {
        window.on_acknowledged(1 << 10, Time::ZERO);
    }
    assert_eq!(window.limit.load(Ordering::Relaxed), MAX_WINDOW);
}

#[test]
fn the_maximum_rises_without_loss_and_falls_with_it_for_longer_each_time() {
    let window = window();
    let limit = || window.limit.load(Ordering::Relaxed);
    window.consume(MAX_RAISED_WINDOW);
    let stream =
        |bytes: u64, at: Time| (0..bytes / RUN).for_each(|_| window.on_acknowledged(RUN, at));
    let mut at = Time::from_ns(5_000_000_000);
    stream(RAISE_AFTER_BYTES / 2, at);
    assert_eq!((limit(), window.burst()), (MAX_WINDOW, RUN));
    stream(4 * RAISE_AFTER_BYTES, at);
    assert_eq!((limit(), window.burst()), (MAX_RAISED_WINDOW, 2 * RUN));
    for raise_backoff_ns in
        [RAISE_BACKOFF_MIN_NS, 2 * RAISE_BACKOFF_MIN_NS, 4 * RAISE_BACKOFF_MIN_NS]
    {
        window.on_loss(at);
        assert!(limit() <= MAX_WINDOW);
        stream(4 * RAISE_AFTER_BYTES, at.plus_ns(raise_backoff_ns - 1));
        assert_eq!(limit(), MAX_WINDOW);
        at = at.plus_ns(raise_backoff_ns);
        stream(4 * RAISE_AFTER_BYTES, at);
        assert_eq!(limit(), MAX_RAISED_WINDOW);
    }
    window.reset();
    assert_eq!(limit(), INITIAL_WINDOW);
}

#[test]
fn an_unused_window_does_not_grow() {
    let window = window();
    window.on_acknowledged(60 << 10, Time::ZERO);
    assert_eq!(window.limit.load(Ordering::Relaxed), INITIAL_WINDOW);
}

#[test]
fn round_trips_set_the_early_timeout() {
    let min = 40_000_000;
    let window = window();
    assert_eq!(window.early_timeout_ns(), EARLY_UNMEASURED_NS);
    window.on_round_trip(20_000);
    assert_eq!(window.early_timeout_ns(), min);
    for _ in 0..100 {
        window.on_round_trip(50_000_000);
    }
    let timeout = window.early_timeout_ns();
    assert!((100_000_000..110_000_000).contains(&timeout), "{timeout}");
    // A single late answer is remembered for a while.
    window.on_round_trip(200_000_000);
    assert!(window.early_timeout_ns() >= 400_000_000);
    for _ in 0..1000 {
        window.on_round_trip(20_000);
    }
    assert_eq!(window.early_timeout_ns(), min);
}

#[test]
fn no_early_timeout_is_shorter_than_the_device_wants() {
    let window = Window::new(1000, Duration::from_secs(2));
    assert_eq!(window.early_timeout_ns(), 2_000_000_000);
    window.on_round_trip(20_000);
    assert_eq!(window.early_timeout_ns(), 2_000_000_000);
    assert_eq!(Window::new(1000, Duration::MAX).early_timeout_ns(), u64::MAX);
}

#[test]
fn a_probe_comes_before_the_early_timeout_or_not_at_all() {
    let window = window();
    assert_eq!(window.probe_timeout_ns(), None, "no round trip is known");
    window.on_round_trip(20_000);
    assert_eq!(window.probe_timeout_ns(), Some(PROBE_MIN_NS));
    for _ in 0..100 {
        window.on_round_trip(6_000_000);
    }
    let probe = window.probe_timeout_ns().unwrap();
    assert!((12_000_000..14_000_000).contains(&probe), "{probe}");
    let patient = Window::new(1000, Duration::from_secs(2));
    patient.on_round_trip(20_000);
    assert_eq!(patient.probe_timeout_ns(), None);
}

#[test]
fn those_that_send_at_the_same_time_measure_the_round_trip_once() {
    let window = window();
    let start = Time::from_ns(1_000_000_000);
    assert!(window.wants_measure(start));
    assert!(!window.wants_measure(start));
    window.on_round_trip(80_000);
    let asked = |from: u64, to: u64| {
        (from..to).filter(|ns| window.wants_measure(start.plus_ns(*ns))).count()
    };
    assert_eq!(asked(1, 80_001), MEASURES_A_ROUND_TRIP as usize - 1);
    window.reset();
    assert!(window.wants_measure(start), "of another peer nothing is known");
}

#[test]
fn a_packet_may_be_overtaken_for_a_quarter_of_the_round_trip_within_bounds() {
    let window = window();
    assert_eq!(window.reordering_ns(), 100_000, "nothing was measured");
    for (round_trip_ns, reordering_ns) in
        [(80_000_000, 1_000_000), (2_000_000, 500_000), (400_000, 100_000), (9_000, 100_000)]
    {
        window.on_round_trip(round_trip_ns);
        assert_eq!(window.reordering_ns(), reordering_ns, "a round trip of {round_trip_ns} ns");
    }
}

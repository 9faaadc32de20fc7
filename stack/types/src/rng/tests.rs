use super::*;

#[test]
fn split_mix_gives_the_published_numbers() {
    let mut state = 1_234_567;
    let numbers = [(); 5].map(|()| split_mix(&mut state));
    assert_eq!(
        numbers,
        [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821
        ]
    );
}

#[test]
fn xoshiro_gives_the_published_numbers() {
    let mut rng = Rng { state: [1, 2, 3, 4] };
    let numbers = [(); 6].map(|()| rng.next_u64());
    assert_eq!(
        numbers,
        [
            11_520,
            0,
            1_509_978_240,
            1_215_971_899_390_074_240,
            1_216_172_134_540_287_360,
            607_988_272_756_665_600
        ]
    );
}

#[test]
fn a_seed_gives_the_same_numbers_for_good() {
    let mut rng = Rng::new(0);
    assert_eq!(rng.next_u64(), 0x99ec_5f36_cb75_f2b4);
    let mut bytes = [0; 11];
    rng.fill(&mut bytes);
    let mut again = Rng::new(0);
    again.next_u64();
    let expected: Vec<u8> = [again.next_u64(), again.next_u64()]
        .iter()
        .flat_map(|n| n.to_le_bytes())
        .take(11)
        .collect();
    assert_eq!(bytes[..], expected);
}

#[test]
fn streams_of_one_seed_differ() {
    let firsts: std::collections::BTreeSet<u64> =
        (0..1_000).map(|i| Rng::stream(7, i).next_u64()).collect();
    assert_eq!(firsts.len(), 1_000);
    assert_ne!(Rng::stream(7, 0), Rng::stream(8, 0));
}

#[test]
fn ranges_hold_their_ends() {
    let mut rng = Rng::new(1);
    let mut seen = [false; 4];
    for _ in 0..200 {
        let number = rng.between(3, 6);
        assert!((3..=6).contains(&number));
        seen[number as usize - 3] = true;
        assert!(rng.below(1) == 0 && rng.below(0) == 0 && rng.index(0) == 0);
        assert_eq!(rng.between(9, 9), 9);
        assert_eq!(rng.between(9, 3), 9);
    }
    assert_eq!(seen, [true; 4]);
    rng.between(0, u64::MAX);
}

#[test]
fn probabilities_are_respected() {
    let mut rng = Rng::new(2);
    for (chance, low, high) in [
        (Probability::NEVER, 0, 0),
        (Probability::from_percent(10), 9_500, 10_500),
        (Probability::from_ppm(500_000), 49_000, 51_000),
        (Probability::from_percent(300), 100_000, 100_000),
    ] {
        let hits = (0..100_000).filter(|_| rng.chance(chance)).count();
        assert!((low..=high).contains(&hits), "{chance:?}: {hits} of 100,000");
    }
}

#[test]
fn secret_numbers_follow_from_seed_and_stream_and_show_neither() {
    let stream = |seed, stream| {
        let mut rng = SecretRng::stream(seed, stream);
        [(); 4].map(|()| rng.next_u64())
    };
    assert_eq!(stream(1, 2), stream(1, 2));
    let (seeds, streams) = ([stream(1, 2), stream(3, 2)], [stream(1, 2), stream(1, 3)]);
    assert!(seeds[0] != seeds[1] && streams[0] != streams[1]);
    let mut rng = SecretRng::stream(7, 0);
    assert!((0..10_000).all(|_| rng.below(10) < 10));
    assert_eq!(format!("{:?}", SecretRng::stream(7, 0)), "SecretRng { counter: 0, .. }");
}

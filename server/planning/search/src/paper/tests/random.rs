//! Random numbers of the papers' modes.

use crate::paper::Random;

/// The reference implementation's first numbers for the seed 1234567.
#[test]
fn numbers_are_those_of_the_reference() {
    let mut random = Random::new(1_234_567);
    let first: Vec<u64> = (0..3).map(|_| random.draw()).collect();
    assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
}

#[test]
fn numbers_keep_to_their_range() {
    let mut random = Random::new(7);
    assert!((0..1_000).all(|_| random.below(3) < 3 && (0.0..1.0).contains(&random.fraction())));
    assert_eq!(random.below(0), 0);
}

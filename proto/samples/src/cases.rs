//! How many cases property tests draw.

use proptest::prelude::ProptestConfig;

/// As many cases as `PROPTEST_CASES` says, or this many.
pub fn cases(usually: u32) -> ProptestConfig {
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => ProptestConfig::default(),
        None => ProptestConfig::with_cases(usually),
    }
}

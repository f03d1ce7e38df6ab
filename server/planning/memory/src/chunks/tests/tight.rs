//! Caps that a plan just fills, and less.

use loadmaster_proto::bytes::Bytes;
use proptest::prelude::*;

use super::draw::cases;
use crate::chunks::{NoChunks, choose};

proptest! {
    #![proptest_config(loadmaster_samples::cases(200))]

    /// Where the host, the device or both have less than a plan takes, another plan keeps to that, or there is none.
    #[test]
    fn no_plan_takes_more_than_there_is(case in cases(), host in 0.2..1.0_f64, device in 0.5..1.1_f64) {
        let Ok(roomy) = choose(&case.question, &case.costs) else { return Ok(()) };
        let less = |bytes: Bytes, share: f64| Bytes((bytes.0 as f64 * share) as u64);
        let mut question = case.question.clone();
        question.host_memory = less(roomy.host(), host);
        question.capacity = less(roomy.peak(), device);
        match choose(&question, &case.costs) {
            Ok(plan) => {
                prop_assert!(plan.host() <= question.host_memory);
                prop_assert!(plan.peak() <= question.capacity);
            }
            Err(why) => prop_assert!(matches!(why, NoChunks::NoRoom(_)), "{}", why),
        }
    }
}

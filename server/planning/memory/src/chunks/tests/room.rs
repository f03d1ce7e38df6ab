//! What lacks, and what helps, against every choice that there is.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::chunks::activations::ActivationPlace;
use loadmaster_proto::chunks::embedding::EmbeddingPlace;
use loadmaster_proto::plan::chunked::ChunkPolicy;
use loadmaster_proto::training::Precision;
use proptest::prelude::*;

use super::draw::{Case, Costs, RATES, cases, gpt, llama, stages, training};
use crate::chunks::{ChunkChoices, ChunkQuestion, ChunkRemedy, NoChunks, choose, fits, largest};

/// Whether any stage of a question has room.
fn any_fits(case: &Case) -> bool {
    let mut any = false;
    stages(case, |_, _, _, _, has_room| any |= has_room);
    any
}

fn with(case: &Case, device: i64, host: i64) -> Case {
    let mut case = case.clone();
    case.question.capacity.0 = case.question.capacity.0.saturating_add_signed(device);
    case.question.host_memory.0 = case.question.host_memory.0.saturating_add_signed(host);
    case
}

proptest! {
    #![proptest_config(loadmaster_samples::cases(300))]

    /// Whenever time is up, an answer is right or missing.
    #[test]
    fn who_is_stopped_says_nothing_false(case in cases(), looks in 0_usize..40) {
        let left = std::cell::Cell::new(looks);
        let is_over = || left.replace(left.get().saturating_sub(1)) == 0;
        match fits(&case.question, &case.costs, &is_over) {
            Ok(has_room) => prop_assert_eq!(has_room, any_fits(&case)),
            Err(NoChunks::Stopped) => prop_assert_eq!(left.get(), 0),
            Err(why) => return Err(TestCaseError::fail(why.to_string())),
        }
        prop_assert!(looks > 0 || fits(&case.question, &case.costs, &|| true).is_err());
    }

    #[test]
    fn what_lacks_is_what_lacks(mut case in cases(), less in 1_u64..4) {
        case.question.host_memory.0 /= less;
        let any = any_fits(&case);
        prop_assert_eq!(fits(&case.question, &case.costs, &|| false).unwrap(), any);
        let lack = match choose(&case.question, &case.costs) {
            Ok(_) => {
                prop_assert!(any);
                return Ok(());
            }
            Err(NoChunks::NoRoom(lack)) => *lack,
            Err(why) => return Err(TestCaseError::fail(why.to_string())),
        };
        prop_assert!(!any && lack.missing() > 0);
        // With these bytes the named choice has room, and without any one of them it has not.
        let device = lack.device.map_or(0, |(_, bytes)| bytes.0 as i64);
        let host = lack.host.map_or(0, |bytes| bytes.0 as i64);
        let mut named = case.clone();
        let choices = &mut named.question.choices;
        choices.orders = vec![lack.choice.order];
        choices.recomputes = vec![lack.choice.recompute];
        choices.sizes = crate::chunks::TriedSizes::Named(vec![lack.choice.chunk_elements]);
        choices.host_copies = vec![lack.choice.host_copy];
        choices.embeddings = vec![lack.choice.embedding];
        choices.activations = vec![lack.choice.activations];
        choices.on_device = Some(lack.choice.on_device);
        let is_other = case.question.choices.on_device.is_some_and(|count| count < lack.choice.on_device);
        prop_assert!(any_fits(&with(&named, device, host)));
        prop_assert!(device == 0 || !any_fits(&with(&named, device - 1, host)));
        prop_assert!(host == 0 || !any_fits(&with(&named, device, host - 1)));
        prop_assert!(!is_other);
        for remedy in &lack.remedies {
            let asked = remedy.applied(&case.question);
            prop_assert!(choose(&asked, &case.costs).is_ok(), "{}", remedy);
            if let ChunkRemedy::Memory { device, host } = *remedy {
                // One side alone: not a byte too much.
                let [device, host] = [device.0 as i64, host.0 as i64];
                prop_assert!(any_fits(&with(&case, device, host)));
                let less = if device == 0 { (0, host - 1) } else { (device - 1, 0) };
                prop_assert!((device > 0 && host > 0) || !any_fits(&with(&case, less.0, less.1)), "{}", remedy);
            }
        }
        // Memory always helps, if chunks are as many as are asked for.
        let helps = lack.remedies.iter().any(|remedy| matches!(remedy, ChunkRemedy::Memory { .. }));
        prop_assert!(helps);
    }
}

proptest! {
    #![proptest_config(loadmaster_samples::cases(16))]

    /// The largest model has room, and one of a block more has none.
    #[test]
    fn the_largest_model_is_found(
        capacity in 2_000_u64..30_000, host in 2_000_u64..100_000, hidden in 1_i64..4, ranks in 1_u32..4,
    ) {
        let question = |blocks: u64| {
            let model = gpt(blocks as i64, 2 * hidden, false);
            let training = training(Precision::Bf16, 2);
            let costs = Costs { training, layers: model.layers().len(), needed: vec![500, 900, 100], seconds: vec![1.0], kept: vec![200] };
            let question = ChunkQuestion {
                model, training, rates: RATES, ranks, shards: 1,
                capacity: Bytes(capacity),
                host_memory: Bytes(host),
                choices: ChunkChoices { most_simulated: 1, ..ChunkChoices::default() },
            };
            (question, costs)
        };
        let found = largest(1..=6, |blocks| Some(question(blocks))).unwrap();
        let has_room = |blocks: u64| {
            let (question, costs) = question(blocks);
            choose(&question, &costs).is_ok()
        };
        // Of models this small a larger one may have room where the next smaller one has none: its chunks have other sizes.
        let next = found.map_or(1, |found| found + 1);
        prop_assert!(found.is_none_or(has_room) && (next > 6 || !has_room(next)), "{found:?}");
    }
}

/// Where all parameters are on the device, the table that the host gathers rows of is not there, unless it is tied. At
/// any capacity, a plan is found where one fits. Where none fits, the error proposes chunks that are evicted if these
/// fit.
#[test]
fn a_static_partition_needs_no_room_for_a_table_on_the_host() {
    let model = llama(1, 8, false);
    let whole = 4 * model.parameter_count();
    let training = training(Precision::Fp32, 1);
    let layers = model.layers().len();
    let costs = Costs { training, layers, needed: vec![0], seconds: vec![1.0], kept: vec![] };
    let choices = ChunkChoices {
        embeddings: vec![EmbeddingPlace::Host],
        policy: ChunkPolicy::Static,
        activations: vec![ActivationPlace::Device],
        on_device: Some(0),
        ..ChunkChoices::default()
    };
    let (mut below, mut paged) = (0, 0);
    for capacity in (whole / 2..whole + whole / 4).step_by(64) {
        let question = ChunkQuestion {
            model: model.clone(),
            training,
            ranks: 1,
            shards: 1,
            capacity: Bytes(capacity),
            host_memory: Bytes(1 << 20),
            rates: RATES,
            choices: choices.clone(),
        };
        let has_room = fits(&question, &costs, &|| false).unwrap();
        match choose(&question, &costs) {
            Ok(_) => below += usize::from(capacity < whole),
            Err(NoChunks::NoRoom(lack)) => {
                assert!(!has_room, "{capacity}");
                paged += usize::from(lack.remedies.contains(&ChunkRemedy::Paged));
            }
            Err(why) => panic!("{capacity}: {why}"),
        }
    }
    assert!(below > 0 && paged > 0, "{below} below all parameters, {paged} with chunks that leave");
}

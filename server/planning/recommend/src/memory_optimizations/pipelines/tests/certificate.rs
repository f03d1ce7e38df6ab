//! What is told of where nothing fits: what would help does, and what was tried in vain does not.

use super::*;
use crate::result::Remedy;

/// The same question with the options of a remedy.
fn asked_with(fixture: &Fixture, option: &str) -> Result<Plan, QuestionError> {
    let words: Vec<&str> = option.split(' ').collect();
    let mut question = fixture.question();
    for pair in words.chunks(2) {
        let &[name, value] = pair else { panic!("{option}") };
        let allowed = question.request.allowed.as_mut().unwrap();
        match name {
            "--actions" => allowed.ways = value.split(',').map(|way| way.parse().unwrap()).collect(),
            "--swap" => allowed.blocks = value.split(',').map(|block| block.parse().unwrap()).collect(),
            "--host-memory" => {
                let mebibytes: u64 = value.strip_suffix("MiB").unwrap().parse().unwrap();
                allowed.host_memory = Bytes(mebibytes << 20);
            }
            "--micro-batch-size" => question.training.micro_batch_size = value.parse().unwrap(),
            "--micro-batches" => question.training.micro_batches = value.parse().unwrap(),
            "--schedule" => {
                question.training.schedule = value.parse().unwrap();
                question.request.named.schedule = true;
            }
            other => panic!("{other} of {option}"),
        }
    }
    question.answer(&Stop::default()).map(|((_, plan), _)| plan)
}

/// Whoever asks again as a remedy says has a plan, in each way that something may lack.
#[test]
#[ignore = "slow: make test-slow"]
fn remedies_help_whoever_asks_again() {
    let mut told: Vec<(u64, Remedy)> = Vec::new();
    let mut in_vain = 0;
    for capacity in [20_000, 30_000, 40_000, 50_000, 60_000, 85_000] {
        for ways in [&[Way::Recompute][..], &[Way::CpuOffload], &[Way::PeerSwap], &Way::ALL] {
            for host_memory in [0, 1 << 20] {
                let asked = Fixture::new(Objective::MinIterationTime, 2, capacity).with(|fixture| {
                    let allowed = fixture.request.allowed.as_mut().unwrap();
                    (allowed.ways, allowed.host_memory) = (ways.to_vec(), Bytes(host_memory));
                });
                let Err(QuestionError::Recommend(error)) = asked.answer() else { continue };
                let RecommendError::NoPlan { remedies, .. } = &error else { panic!("{error}") };
                in_vain += usize::from(error.to_string().contains("; nothing was found with "));
                for remedy in remedies {
                    let again = asked_with(&asked, &remedy.option);
                    assert!(again.is_ok(), "{capacity}, {ways:?}, {host_memory}: {remedy:?}: {again:?}");
                    told.push((capacity, remedy.clone()));
                }
            }
        }
    }
    for option in ["--actions", "--host-memory", "--swap", "--micro-batch-size"] {
        assert!(told.iter().any(|(_, of)| of.option.starts_with(option)), "{option}: {told:?}");
    }
    assert!(in_vain > 0, "nothing was ever tried in vain");
}

/// Where the stages of a pipeline fit that somebody names, a search finds one that fits, too, for every objective.
#[test]
#[ignore = "slow: make test-slow"]
fn what_fits_as_named_is_found_by_a_search() {
    let mut named = 0;
    for ways in [&[Way::Recompute][..], &[Way::CpuOffload], &[Way::PeerSwap], &Way::ALL] {
        for capacity in (38_000..100_000).step_by(7_000) {
            let asked = Fixture::new(Objective::MinIterationTime, 2, capacity)
                .with(|fixture| fixture.request.allowed.as_mut().unwrap().ways = ways.to_vec());
            let fits = (1..LAYERS).find(|first| {
                let cut: Partitioning = format!("{first}-{}", LAYERS - first).parse().unwrap();
                asked.with(|fixture| fixture.request.partitioning = Some(cut)).answer().is_ok()
            });
            let Some(first) = fits else { continue };
            named += 1;
            for objective in [Objective::MinIterationTime, Objective::MinPeakMemory, Objective::MinDevices] {
                let searched =
                    asked.with(|fixture| fixture.request.goal.objective = Some(objective)).answer();
                assert!(searched.is_ok(), "{first} layers first fit {capacity} with {ways:?}: {searched:?}");
            }
        }
    }
    assert!(named > 15, "{named}");
}

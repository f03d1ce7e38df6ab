//! Errors where nothing fits: the reported remedies help, and those reported as tried in vain do not.

use loadmaster_proto::plan::change::FieldChange;

use super::*;
use crate::result::Remedy;

/// The same question with the options of a remedy.
fn asked_with(fixture: &Fixture, changes: &[FieldChange]) -> Result<Plan, QuestionError> {
    let mut question = fixture.question();
    for FieldChange { field, value } in changes {
        let words = |prefix: &str| -> Vec<String> {
            let names = value.as_array().unwrap().iter().map(|name| name.as_str().unwrap());
            names.map(|name| name.strip_prefix(prefix).unwrap().replace('_', "-").to_lowercase()).collect()
        };
        let allowed = question.request.allowed.as_mut().unwrap();
        match *field {
            "memory.optimizations" => {
                let names = words("MEMORY_OPTIMIZATION_KIND_");
                allowed.ways = names.iter().map(|way| way.parse().unwrap()).collect();
            }
            "memory.blocks" => {
                allowed.blocks = words("MEMORY_BLOCK_").iter().map(|block| block.parse().unwrap()).collect();
            }
            "memory.host_memory_bytes" => allowed.host_memory = Bytes(value.as_u64().unwrap()),
            "problem.micro_batch_size" => {
                question.training.micro_batch_size = value.as_u64().unwrap() as u32;
            }
            "problem.micro_batch_count" => question.training.micro_batches = value.as_u64().unwrap() as u32,
            "problem.schedule" => {
                assert_eq!(value, "SCHEDULE_ONE_F_ONE_B");
                question.training.schedule = Schedule::OneFOneB;
                question.request.named.schedule = true;
            }
            other => panic!("{other} of {changes:?}"),
        }
    }
    question.answer(&Stop::default()).map(|((_, plan), _)| plan)
}

/// A request with the changes of a remedy has a plan, whatever was missing before.
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
                in_vain += usize::from(error.to_string().contains("; no plan was found with "));
                for remedy in remedies {
                    let again = asked_with(&asked, &remedy.changes);
                    assert!(again.is_ok(), "{capacity}, {ways:?}, {host_memory}: {remedy:?}: {again:?}");
                    told.push((capacity, remedy.clone()));
                }
            }
        }
    }
    for field in
        ["memory.optimizations", "memory.host_memory_bytes", "memory.blocks", "problem.micro_batch_size"]
    {
        let is_changed = |(_, of): &(u64, Remedy)| of.changes.iter().any(|change| change.field == field);
        assert!(told.iter().any(is_changed), "{field}: {told:?}");
    }
    assert!(in_vain > 0, "nothing was ever tried in vain");
}

/// Where the stages that a request names fit, a search also finds a pipeline that fits, for every objective.
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

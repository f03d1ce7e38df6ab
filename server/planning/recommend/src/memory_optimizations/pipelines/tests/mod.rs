//! What is promised of plans with chosen actions, held against asking once more, and against actions drawn by lot.

mod agree;
mod bound;
mod certificate;
mod device_mapping;
mod expressible_actions;
mod on_cores;
mod recompute_sets;
mod several;

use loadmaster_proto::amounts::Seconds;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::measure::host::Host;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::objective::{MemoryUnit, Objective, SearchMode};
use loadmaster_proto::training::Schedule;
use loadmaster_proto::training::actions::{Allowed, Way};
use loadmaster_proto::training::stage::Partitioning;

use crate::tests::fixture::{Fixture, LAYERS};
use crate::{QuestionError, RecommendError, largest_model};
use loadmaster_oracle::Draws;
use loadmaster_search::Stop;

const PEAKS: [u64; 4] = [60_000, 85_000, 120_000, 180_000];
const NOTHING: u64 = 8_000;

fn seconds(plan: &Plan) -> f64 {
    plan.iteration_seconds().unwrap()
}

fn error(fixture: &Fixture) -> RecommendError {
    match fixture.answer().unwrap_err() {
        QuestionError::Recommend(error) => error,
        other => panic!("{other}"),
    }
}

fn sizes(plan: &Plan) -> usize {
    plan.stages.len()
}

/// On so many devices the plan is the fastest that is found for them, on fewer none is found; where that is proven, no
/// actions that are drawn fit there either.
#[test]
fn fewer_devices_are_not_enough() {
    let mut proven = 0;
    let mut unproven = 0;
    for capacity in PEAKS {
        for ways in [&Way::ALL[..], &[Way::Recompute]] {
            let mut asked = Fixture::new(Objective::MinDevices, 4, capacity);
            asked.request.allowed.as_mut().unwrap().ways = ways.to_vec();
            let Ok(((_, plan), _)) = asked.answer() else { continue };
            let certificate = plan.found.certificate.clone().unwrap();
            assert_eq!((certificate.unit.as_str(), certificate.value), ("devices", sizes(&plan) as f64));
            let on = |devices: u32| asked.fastest().with(|fixture| fixture.devices = devices);
            let same = on(plan.stages.len() as u32).plan();
            assert_eq!(seconds(&same), seconds(&plan));
            let bound = certificate.bound.unwrap() as usize;
            assert!(
                bound <= sizes(&plan) && certificate.proven == (bound == sizes(&plan)),
                "{certificate:?}"
            );
            for fewer in 1..sizes(&plan) {
                assert!(!matches!(error(&on(fewer as u32)), RecommendError::Stopped));
                if fewer < bound {
                    proven += 1;
                    let drawn = asked.drawn(fewer, 4, 12);
                    assert!(!drawn.is_empty());
                    let least = drawn.iter().map(Plan::peak).min().unwrap();
                    assert!(least > capacity, "{fewer} devices of {capacity}: {least} is enough");
                } else {
                    unproven += 1;
                }
            }
        }
    }
    assert!(proven > 0, "{proven} numbers of devices are proven too few, {unproven} are not");
}

/// With all ways nothing is slower by half a percent than with fewer of them, or with MPress's planner, whatever stages are best for
/// these. No search proves the best actions: a comparison of this test is lost by 0.13 % (2026-12-01).
#[test]
#[ignore = "slow: make test-slow"]
fn fewer_ways_find_nothing_faster() {
    let on_cores = Some(Host { cores: 2, threads: 1, contention_slowdown: 1.2, copies: None });
    let mut compared = 0;
    for capacity in [60_000, 80_000, 92_500, 111_500, 140_000] {
        for ((devices, host), pace) in [(3, None), (4, None), (4, on_cores)]
            .into_iter()
            .flat_map(|fixture| [1e6, 4e6, 16e6].map(|pace| (fixture, pace)))
        {
            let asked = Fixture::on(host, Objective::MinIterationTime, devices, capacity);
            let asked = asked.with(|fixture| fixture.request.copy_pace.host = Some(pace));
            let Ok(((_, plan), _)) = asked.answer() else { continue };
            let mpress = asked.with(|fixture| fixture.request.mode = SearchMode::Mpress);
            let alone = Way::ALL
                .map(|way| asked.with(|fixture| fixture.request.allowed.as_mut().unwrap().ways = vec![way]));
            for fewer in [mpress].iter().chain(&alone) {
                let Ok(((_, other), _)) = fewer.answer() else { continue };
                compared += 1;
                assert!(
                    seconds(&plan) <= seconds(&other) * 1.005,
                    "{capacity} of {devices}, {host:?}, {pace}, {:?}: {} as {}, {} as {} by {}",
                    fewer.request.allowed.as_ref().unwrap().ways,
                    seconds(&plan),
                    plan.partition(),
                    seconds(&other),
                    other.partition(),
                    other.solver
                );
            }
        }
    }
    assert!(compared > 50, "{compared}");
}

/// What costs least is counted in money, and without prices it is not asked for.
#[test]
fn the_cheapest_devices_are_the_fewest_where_all_cost_the_same() {
    let asked = Fixture::new(Objective::MinCost, 4, PEAKS[1]);
    assert!(matches!(error(&asked), RecommendError::NoPrices { .. }));
    let priced = asked.with(|fixture| fixture.price = Some(1.5));
    let fewest = asked.with(|fixture| fixture.request.goal.objective = Some(Objective::MinDevices)).plan();
    let plan = priced.plan();
    let certificate = plan.found.certificate.clone().unwrap();
    assert_eq!(sizes(&plan), sizes(&fewest));
    assert_eq!((certificate.unit.as_str(), certificate.value), ("per hour", 1.5 * sizes(&plan) as f64));
    assert_eq!(plan.found.hourly_price, Some(certificate.value));
}

/// The next larger micro-batch has no plan; above the bound no actions that are drawn fit.
#[test]
fn no_larger_micro_batch_is_found_and_none_above_the_bound_fits() {
    for (capacity, stages) in [(PEAKS[1], 2_u32), (PEAKS[2], 2), (PEAKS[1], 3)] {
        let mut asked = Fixture::new(Objective::MaxBatch, stages, capacity);
        asked.request.named.micro_batch_size = false;
        asked.request.goal.constraints.micro_batch_sizes = vec![1, 2, 4, 8, 16];
        let plan = asked.plan();
        let certificate = plan.found.certificate.clone().unwrap();
        let size = plan.training.micro_batch_size;
        assert_eq!((certificate.unit.as_str(), certificate.value), ("samples", f64::from(size)));
        assert!(certificate.bound.unwrap() >= certificate.value, "{certificate:?}");
        assert_eq!(certificate.proven, certificate.bound == Some(certificate.value));
        let of = |size: u32| {
            asked.fastest().with(|fixture| fixture.request.goal.constraints.micro_batch_sizes = vec![size])
        };
        assert_eq!(seconds(&of(size).plan()), seconds(&plan));
        if size < 16 {
            error(&of(size * 2));
        }
        for above in
            [2_u32, 4, 8, 16].into_iter().filter(|&above| f64::from(above) > certificate.bound.unwrap())
        {
            let drawn = asked.drawn(stages as usize, above, 8);
            let least = drawn.iter().map(Plan::peak).min();
            assert!(least.is_none_or(|least| least > capacity), "{above} samples of {capacity}: {least:?}");
        }
    }
}

/// No actions that are drawn have a lower peak than the bound; the plan reaches its value, is the fastest that is found
/// within it, and keeps a limit on time.
#[test]
fn no_peak_is_below_the_bound() {
    for given in [None, Some(Partitioning::from_sizes(&[3, 2]).unwrap())] {
        let asked = Fixture::new(Objective::MinPeakMemory, 2, 1 << 30)
            .with(|fixture| fixture.request.partitioning = given.clone());
        let plan = asked.plan();
        let certificate = plan.found.certificate.clone().unwrap();
        assert_eq!((certificate.unit.as_str(), certificate.value), ("bytes", plan.peak() as f64));
        let bound = certificate.bound.unwrap();
        assert!(0.0 < bound && bound <= certificate.value, "{certificate:?}");
        let drawn = asked.drawn(2, 4, 24);
        let least = drawn.iter().map(Plan::peak).min().unwrap();
        assert!(least as f64 >= bound, "{least} is below {bound}");
        assert!(plan.peak() <= least, "by lot {least} is reached, by the search {}", plan.peak());
        let untouched = asked.fastest().plan();
        assert!(plan.peak() < untouched.peak() && seconds(&untouched) <= seconds(&plan));

        // Between the two a limit on time leaves a peak between the two.
        let limit = (seconds(&untouched) + seconds(&plan)) / 2.0;
        let limited =
            asked.with(|fixture| fixture.request.goal.constraints.max_iteration_seconds = Some(limit)).plan();
        assert!(seconds(&limited) <= limit, "{} takes longer than {limit}", seconds(&limited));
        assert!((plan.peak()..=untouched.peak()).contains(&limited.peak()));
        let faster = drawn.iter().filter(|plan| seconds(plan) <= limit).map(Plan::peak).min();
        let bound = limited.found.certificate.clone().unwrap().bound.unwrap();
        assert!(faster.is_none_or(|least| least as f64 >= bound), "{faster:?} is below {bound}");
    }
}

/// The seconds reported with the plan of the lowest peak are its own, however little memory devices have.
#[test]
#[ignore = "slow: make test-slow"]
fn seconds_of_the_lowest_peak_are_its_own() {
    let mut told = 0;
    for capacity in PEAKS.into_iter().chain([1 << 20, 1 << 30]) {
        for stages in 1..=3 {
            let asked = Fixture::new(Objective::MinPeakMemory, stages, capacity);
            let Ok(((_, plan), _)) = asked.answer() else { continue };
            let note =
                plan.warnings.iter().find(|warning| warning.message.contains("per iteration")).unwrap();
            assert!(
                note.message.contains(&format!(" takes {} per iteration", Seconds(seconds(&plan)))),
                "{capacity}: {note}"
            );
            told += 1;
        }
    }
    assert!(told > 5, "{told}");
}

/// Where shares of devices are compared, a peak is one.
#[test]
fn a_peak_may_be_a_share() {
    let asked = Fixture::new(Objective::MinPeakMemory, 2, 1 << 20)
        .with(|fixture| fixture.request.partitioning = Some(Partitioning::from_sizes(&[3, 2]).unwrap()));
    let share = asked.with(|fixture| fixture.request.goal.memory_unit = MemoryUnit::Share).plan();
    let certificate = share.found.certificate.clone().unwrap();
    assert_eq!(certificate.unit, "share");
    assert!((certificate.value - share.peak() as f64 / f64::from(1 << 20)).abs() < 1e-9, "{certificate:?}");
    assert!(certificate.bound.unwrap() <= certificate.value);
    assert_eq!(share.peak(), asked.plan().peak(), "all devices are alike");
}

/// The front says that it is sampled and at how many peaks; no point beats another one in both, and asked for within a
/// point's peak no faster plan is found than the point.
#[test]
fn the_front_is_sampled_and_says_so() {
    let asked = Fixture::new(Objective::Pareto, 2, 1 << 30);
    let ((_, plan), others) = asked.answer().unwrap();
    let front = &plan.found.front;
    assert!((2..=32).contains(&front.len()), "{} points", front.len());
    let told = plan
        .warnings
        .iter()
        .find(|warning| warning.message.contains("the Pareto front is a sample"))
        .unwrap();
    let caps = told.message.split("within ").nth(1).unwrap().split(' ').next().unwrap();
    assert!((front.len()..=33).contains(&caps.parse::<usize>().unwrap()), "{told}");
    assert!(!plan.found.certificate.as_ref().unwrap().proven, "what is sampled is not proven");
    for pair in front.windows(2) {
        let [one, next] = [&pair[0].summary, &pair[1].summary];
        assert!(one.peak < next.peak && one.seconds > next.seconds, "{one:?} {next:?}");
    }
    for point in front {
        let name = point.plan.as_ref().unwrap();
        let own = &others.iter().find(|(other, _)| other == name).unwrap().1;
        assert_eq!((own.peak(), own.iteration_seconds()), (point.summary.peak, point.summary.seconds));
        let within = asked
            .fastest()
            .with(|fixture| fixture.request.goal.constraints.max_peak_bytes = Some(own.peak()));
        let again = within.plan();
        assert!(again.peak() <= own.peak());
        assert!(
            seconds(&again) >= seconds(own) * 0.98,
            "{} is faster than {}",
            seconds(&again),
            seconds(own)
        );
    }
    let lowest = asked.with(|fixture| fixture.request.goal.objective = Some(Objective::MinPeakMemory)).plan();
    assert!(front[0].summary.peak as f64 <= lowest.peak() as f64 * 1.05);
}

/// Limits are of plans with their actions, and are kept: what no plan is faster than is proven, all else is not.
#[test]
fn limits_are_kept_or_told() {
    let asked = Fixture::new(Objective::MinIterationTime, 2, PEAKS[2]);
    let plan = asked.plan();
    let untouched = plan.found.certificate.clone().unwrap().bound.unwrap();
    let within = |limit: f64| {
        asked.with(|fixture| fixture.request.goal.constraints.max_iteration_seconds = Some(limit))
    };
    assert_eq!(seconds(&within(seconds(&plan)).plan()), seconds(&plan));
    let proven = error(&within(untouched * 0.9));
    assert!(proven.is_proof() && matches!(proven, RecommendError::Limits { .. }), "{proven}");
    assert!(proven.to_string().contains("constraints.max_iteration_time"), "{proven}");
    // Untouched it needs more than the limit on a peak, and with actions less.
    let peak = plan.peak() * 9 / 10;
    let low = asked.with(|fixture| fixture.request.goal.constraints.max_peak_bytes = Some(peak)).plan();
    assert!(low.peak() <= peak && seconds(&low) >= seconds(&plan));
    assert_eq!(low.stages[0].capacity, PEAKS[2], "devices keep their memory");
}

/// A search that finds no plan is no proof. A layer without room under every memory optimization is one, and the error
/// reports what would help.
#[test]
fn what_is_not_found_is_no_proof() {
    let none = Fixture::new(Objective::MinIterationTime, 2, NOTHING);
    let nothing = error(&none);
    let least = none.drawn(2, 4, 12).iter().map(Plan::peak).min().unwrap();
    assert!(nothing.is_proof() && least > NOTHING, "{nothing}");
    assert!(nothing.to_string().contains("need"), "{nothing}");
    // However many devices there are, what a layer needs in its own passes must be on one.
    let told = error(&Fixture::new(Objective::MinIterationTime, LAYERS as u32, NOTHING));
    assert!(told.is_proof() && told.to_string().contains("needs"), "{told}");
    assert!(told.to_string().contains("on any device, even with all allowed offload and swap"), "{told}");
    let host_only = Fixture::new(Objective::MinDevices, 2, PEAKS[1]).with(|fixture| {
        fixture.request.allowed = Some(Allowed { ways: vec![Way::CpuOffload], ..Allowed::default() });
    });
    let told = error(&host_only);
    assert!(told.to_string().contains("all memory optimizations"), "{told}");
    assert!(told.to_string().contains("of CPU memory"), "{told}");
    // The reported remedies help.
    let all = Allowed { ways: Way::ALL.to_vec(), ..Allowed::default() };
    assert!(host_only.with(|fixture| fixture.request.allowed = Some(all)).answer().is_ok());
    let more = Allowed { ways: vec![Way::CpuOffload], host_memory: Bytes(1 << 40), ..Allowed::default() };
    assert!(host_only.with(|fixture| fixture.request.allowed = Some(more)).answer().is_ok());
    let RecommendError::NoPlan { why_not, .. } = &told else { panic!("{told}") };
    assert!(why_not.missing().is_some_and(|missing| missing > Bytes(0)));
    // Where no host memory is allowed, the remedy names all ways, with as much host memory as helps.
    let peer_only = host_only.with(|fixture| {
        fixture.request.allowed = Some(Allowed { ways: vec![Way::PeerSwap], ..Allowed::default() });
    });
    let told = error(&peer_only).to_string();
    assert!(told.contains("all memory optimizations, and "), "{told}");
    // Where the request limits the peak, the error names that limit, not a lack of memory on the devices.
    let limited = Fixture::new(Objective::MinIterationTime, 2, PEAKS[2])
        .with(|fixture| fixture.request.goal.constraints.max_peak_bytes = Some(NOTHING));
    let limited = error(&limited).to_string();
    assert!(
        limited.contains("; the limit of each device is") && limited.contains("`constraints.max_peak_bytes`"),
        "{limited}"
    );
    assert!(!nothing.to_string().contains("max_peak_bytes"), "{nothing}");
}

/// The largest model is proven only where each larger one is proven impossible.
#[test]
fn the_largest_model_is_proven_where_larger_ones_are() {
    let small = Fixture::new(Objective::MaxModel, 3, PEAKS[1]);
    let large = small.with(|fixture| fixture.capacity = NOTHING);
    let is_proof = error(&large).is_proof();
    let questions = vec![(1_000, small.question()), (2_000, large.question())];
    let ((_, plan), _) = largest_model(questions, &Stop::default()).unwrap();
    let certificate = plan.found.certificate.unwrap();
    assert_eq!((certificate.value, certificate.unit.as_str()), (1_000.0, "parameters"));
    assert_eq!(certificate.proven, is_proof);
}

/// Both choosers return a plan for every objective, and the plan names the chooser that was requested.
#[test]
fn both_choosers_answer_every_objective() {
    for mode in [SearchMode::Exact, SearchMode::Mpress] {
        for objective in Objective::ALL {
            let mut asked = Fixture::new(objective, 2, PEAKS[2]).with(|fixture| fixture.price = Some(1.0));
            asked.request.mode = mode;
            asked.request.goal.constraints.micro_batch_sizes = vec![4];
            let plan = asked.plan();
            let solver = if mode == SearchMode::Mpress { "mpress/1" } else { "actions/1" };
            assert_eq!((plan.solver.as_str(), plan.asked.objective), (solver, Some(objective)));
            assert!(plan.peak() <= PEAKS[2] && plan.found.certificate.is_some());
            assert!(plan.stages.iter().all(|stage| stage.config.last_layer < LAYERS));
        }
    }
}

/// A search that is stopped at any moment proves no more than one that is not: its bound is below what that finds.
#[test]
fn a_search_that_is_stopped_later_proves_nothing_false() {
    for (mode, schedule) in [
        (SearchMode::Exact, Schedule::OneFOneB),
        (SearchMode::Mpress, Schedule::OneFOneB),
        (SearchMode::Exact, Schedule::PipeDream),
    ] {
        let mut question = Fixture::new(Objective::MinIterationTime, 3, 1 << 20).question();
        (question.request.mode, question.training.schedule) = (mode, schedule);
        let least = question.answer(&Stop::default()).map(|((_, plan), _)| seconds(&plan)).unwrap();
        for step in 0..40_u32 {
            let stop = Stop::default();
            let answer = std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(std::time::Duration::from_micros(100) * step * step);
                    stop.request();
                });
                question.answer(&stop)
            });
            let Ok(((_, plan), _)) = answer else { continue };
            let certificate = plan.found.certificate.unwrap();
            let (value, bound) = (certificate.value, certificate.bound);
            assert!(bound.is_none_or(|bound| bound <= least * (1.0 + 1e-9)), "{mode}: {certificate:?}");
            assert!(!certificate.proven || bound.is_some_and(|bound| bound * (1.0 + 1e-8) >= value));
            assert_eq!(bound.is_none(), certificate.gap.is_none(), "{certificate:?}");
        }
    }
}

/// A search that is stopped at once says so, by whichever objective.
#[test]
fn a_search_that_is_stopped_says_so() {
    for objective in Objective::ALL {
        let asked = Fixture::new(objective, 2, PEAKS[2]).with(|fixture| fixture.price = Some(1.0));
        let stop = Stop::default();
        stop.request();
        match asked.question().answer(&stop) {
            Ok(((_, plan), _)) => assert!(plan.found.certificate.unwrap().stopped, "{objective}"),
            Err(QuestionError::Recommend(RecommendError::Stopped)) => {}
            Err(other) => panic!("{objective}: {other}"),
        }
    }
}

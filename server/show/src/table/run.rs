//! Runs with their failures.

use loadmaster_proto::wire::v1::run::State;
use loadmaster_proto::wire::v1::{Run, RunFailure, run_failure, run_spec};

use super::grid::Side::{Left, Right};
use super::grid::{Facts, Grid};
use super::{accounting, id, measurement, or_none, training};
use crate::show;
use crate::text::terminal_abilities::Look;
use crate::text::{bytes, percent, plain, plural, time, word};

show!(Run as one);
show!(ListRunsResponse of runs as list);

fn one(run: &Run, look: Look) -> String {
    let mut facts = Facts::default();
    facts.add("run", &run.name);
    facts.add("state", state(run));
    facts.add("for", or_none(feeds(run), look));
    facts.add("operation", or_none(&run.operation, look));
    facts.add("work", work(run, look));
    if let Some(spec) = run.spec.as_ref().and_then(|spec| spec.training.as_ref()) {
        facts.add("training", training::line(spec, look));
    }
    facts.add("devices", run.device_count.to_string());
    if run.host_memory_bytes > 0 {
        facts.add("host memory", format!("{} of CPU memory (planned)", bytes(run.host_memory_bytes)));
    }
    if !run.original_run.is_empty() {
        facts.add("repeats", format!("{}, which did not fit", plain(&run.original_run)));
    }
    facts.add("worker", or_none(&run.worker, look));
    facts.add("attempts", run.attempt_count.to_string());
    facts.add("progress", percent(run.progress));
    facts.add("created", time(run.create_time.as_ref(), look));
    facts.add("started", time(run.start_time.as_ref(), look));
    facts.add("ended", time(run.end_time.as_ref(), look));
    let mut text = facts.render();
    for failure in &run.failures {
        text.push_str(&self::failure(failure, look));
    }
    if !run.measurements.is_empty() {
        text.push('\n');
        text.push_str(&measurement::list(&run.measurements, look));
    }
    text
}

fn failure(failure: &RunFailure, look: Look) -> String {
    let kind = run_failure::Kind::try_from(failure.kind)
        .map_or_else(|_| "unknown".to_owned(), |kind| word(kind.as_str_name(), ""));
    let mut text = format!("\nattempt {}: {kind}", failure.lease_token);
    if let Some(stage) = failure.stage_index {
        text.push_str(&format!(" in stage {stage}"));
    }
    if failure.exit_code != 0 {
        text.push_str(&format!(" (code {})", failure.exit_code));
    }
    text.push_str(&format!(
        ", {}, {}\n  {}\n",
        or_none(&failure.worker, look),
        time(failure.failure_time.as_ref(), look),
        plain(&failure.message)
    ));
    if let Some(memory) = &failure.out_of_memory {
        text.push_str(&format!(
            "  the run requested {} while it used {} of its limit of {} ({} memory, measured), in phase {}",
            bytes(memory.requested_bytes),
            bytes(memory.held_bytes),
            bytes(memory.allowed_bytes),
            accounting(memory.accounting),
            or_none(&memory.phase, look),
        ));
        if let Some(layer) = memory.layer {
            text.push_str(&format!(", layer {layer}"));
        }
        text.push('\n');
    }
    text
}

fn list(runs: &[Run], look: Look) -> String {
    if runs.is_empty() {
        return "no runs\n".to_owned();
    }
    grid(runs, look).render()
}

/// A row for each.
pub fn grid(runs: &[Run], look: Look) -> Grid {
    let mut grid = Grid::new(
        &[
            ("run", Left),
            ("state", Left),
            ("for", Left),
            ("work", Left),
            ("micro-batch", Right),
            ("devices", Right),
            ("worker", Left),
            ("attempts", Right),
            ("progress", Right),
            ("created", Left),
        ],
        look,
    );
    for run in runs {
        let training = run.spec.as_ref().and_then(|spec| spec.training.as_ref());
        grid.row([
            id(&run.name),
            state(run),
            or_none(feeds(run), look),
            work(run, look),
            training.map_or_else(|| look.none().to_owned(), |spec| spec.micro_batch_size.to_string()),
            run.device_count.to_string(),
            or_none(&id(&run.worker), look),
            run.attempt_count.to_string(),
            percent(run.progress),
            time(run.create_time.as_ref(), look),
        ]);
    }
    grid
}

fn state(run: &Run) -> String {
    State::try_from(run.state).map_or_else(|_| "unknown".to_owned(), |s| word(s.as_str_name(), ""))
}

/// The profile or plan that it is for.
fn feeds(run: &Run) -> &str {
    if run.profile.is_empty() { &run.plan } else { &run.profile }
}

/// `0..7 | 8..20`, or `8..20 alone, as 1 of 4`.
fn work(run: &Run, look: Look) -> String {
    match run.spec.as_ref().and_then(|spec| spec.work.as_ref()) {
        Some(run_spec::Work::PipelineLayout(partitioning)) => {
            let stages = partitioning.stages.iter().map(|stage| training::stage(Some(stage), look));
            stages.collect::<Vec<_>>().join(" | ")
        }
        Some(run_spec::Work::SoloStage(solo)) => format!(
            "{} alone, as {} of {}",
            training::stage(solo.stage.as_ref(), look),
            solo.stage_index,
            solo.stage_count
        ),
        Some(run_spec::Work::LinkWork(links)) => {
            format!("links between {}", plural(links.device_count, "device"))
        }
        None => look.none().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::wire::v1;

    use super::*;

    fn run() -> Run {
        let stage =
            |first_layer, last_layer| v1::StageConfig { first_layer, last_layer, ..Default::default() };
        Run {
            name: "runs/01".to_owned(),
            state: State::OutOfMemory.into(),
            profile: "profiles/p".to_owned(),
            spec: Some(v1::RunSpec {
                training: Some(v1::TrainingSpec { micro_batch_size: 4, ..Default::default() }),
                work: Some(run_spec::Work::PipelineLayout(v1::PipelineLayout {
                    stages: vec![stage(0, 7), stage(8, 20)],
                })),
                ..Default::default()
            }),
            device_count: 2,
            worker: "workers/a".to_owned(),
            attempt_count: 1,
            failures: vec![RunFailure {
                kind: run_failure::Kind::OutOfMemory.into(),
                message: "stage 1 does not fit".to_owned(),
                stage_index: Some(1),
                worker: "workers/a".to_owned(),
                lease_token: 1,
                out_of_memory: Some(v1::OutOfMemory {
                    requested_bytes: 1 << 20,
                    held_bytes: 2 << 30,
                    allowed_bytes: 2 << 30,
                    accounting: v1::MemoryAccounting::Allocated.into(),
                    phase: "backward".to_owned(),
                    layer: Some(9),
                }),
                ..Default::default()
            }],
            ..Run::default()
        }
    }

    #[test]
    fn a_run_that_did_not_fit_says_where_and_by_how_much() {
        let text = one(&run(), Look::PLAIN);
        assert!(
            text.ends_with(
                "\nattempt 1: out of memory in stage 1, workers/a, -\n  stage 1 does not fit\n  \
                 the run requested 1.00 MiB while it used 2.00 GiB of its limit of 2.00 GiB (allocated memory, \
                 measured), in phase backward, layer 9\n"
            ),
            "{text}"
        );
    }

    #[test]
    fn runs_are_listed_one_per_line() {
        assert_eq!(list(&[], Look::PLAIN), "no runs\n");
        assert_eq!(
            list(&[run()], Look::PLAIN),
            "run  state          for         work          micro-batch  devices  worker  attempts  progress  \
             created\n\
             01   out of memory  profiles/p  0..7 | 8..20            4        2  a              1     0.0 %  -\n"
        );
    }
}

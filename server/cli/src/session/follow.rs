//! Waits for long-running operations, and survives a planner that is away for a moment.

use std::time::{Duration, Instant};

use loadmaster_proto::wire::longrunning::{GetOperationRequest, Operation, WaitOperationRequest, operation};
use loadmaster_proto::wire::v1;
use loadmaster_show::Show;
use loadmaster_show::table::operation::metadata_of;
use loadmaster_show::table::plan::trial;
use loadmaster_show::text::{plain, seconds};
use prost::Message;
use tonic::{Code, Status};

use super::client::{lost_contact, root_cause};
use super::context::{Context, LeftBehind, come_back};
use super::hints;
use super::progress::Progress;
use crate::failure::{Exit, Failure};
use crate::input::parse;
use crate::output::{Format, write_stdout};

/// How often a change is looked for. The end is seen at once: the planner answers when it comes.
const POLL: Duration = Duration::from_millis(250);
/// How much longer than asked the planner may take to answer.
const GRACE: Duration = Duration::from_secs(5);
/// How long a planner may be away before waiting for it is given up.
const PATIENCE: Duration = Duration::from_secs(120);
/// The longest pause between two attempts to reach the planner.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How long an operation may wait for a worker that is not connected before waiting for it ends, unless `--wait-timeout` says how
/// long: such a worker may never come.
const UNSERVED: Duration = Duration::from_secs(600);

/// How to wait for slow work.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Wait {
    /// Print the operation's name, and do not wait for its end.
    #[arg(long)]
    no_wait: bool,

    #[command(flatten)]
    pub(crate) limit: WaitLimit,
}

/// How long to wait.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct WaitLimit {
    /// Longest wait for the end of the operation, for example 30m. The operation continues after it [default: no
    /// limit; 10m if no connected worker can take its runs].
    #[arg(long, value_name = "DURATION", value_parser = parse::duration)]
    wait_timeout: Option<Duration>,
}

/// Waits for an operation that was just begun, if wanted, and prints what it made.
pub(crate) async fn begun(context: &Context, operation: Operation, wait: &Wait) -> Result<(), Failure> {
    if !wait.no_wait {
        return to_result(context, operation, wait.limit).await;
    }
    match context.output.format {
        Format::Table => {
            write_stdout(format!("{}\n", plain(&operation.name)).as_bytes())?;
            context.link(&operation.name);
            Ok(())
        }
        Format::Json | Format::Yaml | Format::Name => context.output.print(&operation),
    }
}

/// Waits for an operation and prints what it made.
pub(crate) async fn to_result(
    context: &Context,
    operation: Operation,
    limit: WaitLimit,
) -> Result<(), Failure> {
    context.leaves(LeftBehind::Operation { name: operation.name.clone() });
    let (operation, made) = to_response(context, operation, limit.wait_timeout).await?;
    print_made(context, &operation, &made).await
}

/// Waits for a search that was just begun, which an interruption cancels, and returns its response.
pub(crate) async fn to_recommendation(
    context: &Context,
    operation: Operation,
) -> Result<v1::RecommendPlanResponse, Failure> {
    context.leaves(LeftBehind::LongSearch { name: operation.name.clone() });
    let (operation, made) = to_response(context, operation, None).await?;
    if made.type_url.rsplit('/').next() != Some("loadmaster.v1.RecommendPlanResponse") {
        return Err(anyhow::anyhow!("the response of {} is not a recommendation", operation.name).into());
    }
    Ok(v1::RecommendPlanResponse::decode(made.value.as_slice()).map_err(anyhow::Error::new)?)
}

/// Waits for an operation and returns its response.
async fn to_response(
    context: &Context,
    operation: Operation,
    limit: Option<Duration>,
) -> Result<(Operation, prost_types::Any), Failure> {
    let operation = to_end(context, operation, limit).await?;
    match operation.result.clone() {
        Some(operation::Result::Response(made)) => Ok((operation, made)),
        Some(operation::Result::Error(error)) => {
            // Where its runs and their failures are.
            context.link(&operation.name);
            let details = error.encode_to_vec();
            let status = Status::with_details(Code::from_i32(error.code), error.message, details.into());
            Err(Failure::Operation { name: operation.name, status: Box::new(status) })
        }
        None => Err(anyhow::anyhow!(
            "the planner returned {} as done, but without a result or an \
            error",
            operation.name
        )
        .into()),
    }
}

async fn to_end(
    context: &Context,
    mut operation: Operation,
    limit: Option<Duration>,
) -> Result<Operation, Failure> {
    let name = operation.name.clone();
    let begin = Instant::now();
    let mut progress = Progress::new(context.quiet, context.client.verbose());
    let mut contact = Contact::default();
    let mut can_wait = true;
    let mut unserved = Unserved::default();
    while !operation.done {
        if let Some(metadata) = metadata_of(&operation) {
            let now = Instant::now();
            progress.update(&metadata, now);
            unserved.update(&metadata, now);
            if limit.is_none() && unserved.is_too_long(now) {
                let message = format!(
                    "{name} has waited {} for a worker: {} To wait longer, set --wait-timeout.",
                    seconds(UNSERVED.as_secs_f64()),
                    plain(&metadata.message)
                );
                drop(progress); // its bar is in the way
                context.remark(&come_back(&name));
                return Err(Failure::Outcome { exit: Exit::Timeout, message });
            }
        }
        if limit.is_some_and(|limit| begin.elapsed() >= limit) {
            let message = format!("{name} is not done after --wait-timeout. The operation continues.");
            drop(progress); // its bar is in the way
            context.remark(&come_back(&name));
            return Err(Failure::Outcome { exit: Exit::Timeout, message });
        }
        let asked = Instant::now();
        match ask(context, &name, can_wait).await {
            Ok(answer) => {
                operation = answer;
                if contact.regained() {
                    progress.say("the planner is reachable");
                }
                if !operation.done {
                    tokio::time::sleep(POLL.saturating_sub(asked.elapsed())).await;
                }
            }
            Err(status) if can_wait && status.code() == Code::Unimplemented => can_wait = false,
            Err(status) if lost_contact(&status) => match contact.lost(Instant::now()) {
                Lost::JustNow(pause) => {
                    progress.say(&format!(
                        "the planner at {} does not answer ({}); retrying for up to {}",
                        context.client.address(),
                        plain(&root_cause(&status)),
                        seconds(PATIENCE.as_secs_f64()),
                    ));
                    tokio::time::sleep(pause).await;
                }
                Lost::Still(pause) => tokio::time::sleep(pause).await,
                Lost::TooLong => {
                    drop(progress);
                    context.remark(&come_back(&name));
                    return Err(context.client.failure(status));
                }
            },
            Err(status) => return Err(context.client.failure(status)),
        }
    }
    if let Some(metadata) = metadata_of(&operation) {
        progress.end(&metadata, Instant::now());
    }
    context.leaves(LeftBehind::Nothing);
    Ok(operation)
}

async fn ask(context: &Context, name: &str, can_wait: bool) -> Result<Operation, Status> {
    let name = name.to_owned();
    if can_wait {
        let nanos = i32::try_from(POLL.as_nanos()).unwrap_or_default();
        let request =
            WaitOperationRequest { name, timeout: Some(prost_types::Duration { seconds: 0, nanos }) };
        context.client.attempt(request, POLL + GRACE).await
    } else {
        context.client.attempt(GetOperationRequest { name }, GRACE).await
    }
}

/// Since when no connected worker could take what an operation waits for.
#[derive(Debug, Default)]
struct Unserved {
    since: Option<Instant>,
}

impl Unserved {
    fn update(&mut self, metadata: &v1::RunMetadata, now: Instant) {
        self.since = metadata.worker_missing.then(|| self.since.unwrap_or(now));
    }

    fn is_too_long(&self, now: Instant) -> bool {
        self.since.is_some_and(|since| now.saturating_duration_since(since) >= UNSERVED)
    }
}

/// Whether the planner answers, and how to go on when it does not.
#[derive(Debug, Default)]
struct Contact {
    /// Since when it does not, and the next pause.
    away: Option<(Instant, Duration)>,
}

/// What to do about a planner that does not answer.
#[derive(Debug, PartialEq)]
enum Lost {
    /// Print a remark, pause, retry.
    JustNow(Duration),
    /// Pause, retry.
    Still(Duration),
    /// Give up.
    TooLong,
}

impl Contact {
    fn regained(&mut self) -> bool {
        self.away.take().is_some()
    }

    fn lost(&mut self, now: Instant) -> Lost {
        match &mut self.away {
            None => {
                self.away = Some((now, POLL * 2));
                Lost::JustNow(POLL)
            }
            Some((since, _)) if now.duration_since(*since) >= PATIENCE => Lost::TooLong,
            Some((_, pause)) => {
                let this = *pause;
                *pause = (this * 2).min(LONGEST_PAUSE);
                Lost::Still(this)
            }
        }
    }
}

/// Prints the response of an operation, and judges whether it is what the user waited for.
async fn print_made(
    context: &Context,
    operation: &Operation,
    made: &prost_types::Any,
) -> Result<(), Failure> {
    let kind = made.type_url.rsplit('/').next().unwrap_or_default();
    if kind == v1::Profile::TYPE {
        let profile = v1::Profile::decode(made.value.as_slice()).map_err(anyhow::Error::new)?;
        context.output.print(&profile)?;
        context.link(&profile.name);
        judge_profile(&profile)?;
        hints::after_profile(context, &profile).await;
        return Ok(());
    }
    if kind == v1::Plan::TYPE {
        let plan = v1::Plan::decode(made.value.as_slice()).map_err(anyhow::Error::new)?;
        let trials = metadata_of(operation).and_then(|metadata| metadata.trials).unwrap_or_default();
        // What a single trial of all stages showed is in the plan.
        let says_more = trials.trials.len() > 1 || trials.trials.iter().any(|trial| trial.stage.is_some());
        match context.output.format {
            Format::Table if says_more => {
                let table = trial::all(&trials, context.output.look);
                write_stdout(format!("{table}\n").as_bytes())?;
                context.output.print(&plan)?;
            }
            // What each plan measured is in the operation.
            Format::Json | Format::Yaml if says_more => context.output.print(operation)?,
            Format::Table | Format::Json | Format::Yaml | Format::Name => context.output.print(&plan)?,
        }
        // Where its trials are.
        context.link(&format!("{}/history", plan.name));
        if trials.trials.iter().any(|trial| trial.stage.is_some()) {
            return judge_stages(&trials);
        }
        return judge_plan(&plan);
    }
    if kind == v1::PurgeHistoryResponse::TYPE {
        let purged = v1::PurgeHistoryResponse::decode(made.value.as_slice()).map_err(anyhow::Error::new)?;
        context.output.print(&purged)?;
        if purged.dry_run {
            context.remark("dry run: nothing was deleted. Use --force to delete.");
        }
        return Ok(());
    }
    if kind == v1::MeasureLinksResponse::TYPE {
        let links = v1::MeasureLinksResponse::decode(made.value.as_slice()).map_err(anyhow::Error::new)?;
        context.output.print(&links)?;
    } else {
        context.output.print(operation)?;
    }
    // Where its runs are.
    context.link(&operation.name);
    Ok(())
}

/// A profile that no plan can be made from is not what `profile run` was for.
fn judge_profile(profile: &v1::Profile) -> Result<(), Failure> {
    if profile.state != i32::from(v1::profile::State::Incomplete) {
        return Ok(());
    }
    Err(Failure::Outcome {
        exit: Exit::ProfileMissing,
        message: format!("{} has no measurements for: {}", profile.name, profile.missing.join("; ")),
    })
}

/// Neither is a trial that did not succeed what `plan trial` was for.
fn judge_plan(plan: &v1::Plan) -> Result<(), Failure> {
    match plan.trials.first() {
        Some(newest) if !newest.failure_message.is_empty() => Err(Failure::Outcome {
            exit: Exit::ServerError,
            message: format!("{} of {} failed: {}", newest.run, plan.name, newest.failure_message),
        }),
        Some(_) | None => Ok(()),
    }
}

/// Nor is a stage that could not be trained alone.
fn judge_stages(trials: &v1::Trials) -> Result<(), Failure> {
    match trials.trials.iter().find(|trial| !trial.failure_message.is_empty()) {
        Some(v1::Trial { plan, stage, failure_message: failure, .. }) => Err(Failure::Outcome {
            exit: Exit::ServerError,
            message: format!("stage {} of {plan} failed: {failure}", stage.unwrap_or_default()),
        }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_until_patience_ends() {
        let mut contact = Contact::default();
        let now = Instant::now();
        assert_eq!(contact.lost(now), Lost::JustNow(POLL));
        assert_eq!(contact.lost(now), Lost::Still(POLL * 2));
        assert_eq!(contact.lost(now), Lost::Still(POLL * 4));
        for _ in 0..10 {
            contact.lost(now);
        }
        assert_eq!(contact.lost(now), Lost::Still(LONGEST_PAUSE));
        assert_eq!(contact.lost(now + PATIENCE), Lost::TooLong);
        assert!(contact.regained());
        assert!(!contact.regained());
        assert_eq!(contact.lost(now + PATIENCE), Lost::JustNow(POLL));
    }

    /// Work that no connected worker could do is waited for in vain; work that waits for free devices is not.
    #[test]
    fn waiting_ends_where_no_worker_could_take_a_run() {
        let metadata =
            |has_no_worker| v1::RunMetadata { worker_missing: has_no_worker, ..v1::RunMetadata::default() };
        let begin = Instant::now();
        let mut unserved = Unserved::default();
        unserved.update(&metadata(true), begin);
        unserved.update(&metadata(true), begin + UNSERVED - POLL);
        assert!(!unserved.is_too_long(begin + UNSERVED - POLL) && unserved.is_too_long(begin + UNSERVED));
        unserved.update(&metadata(false), begin + UNSERVED);
        assert!(!unserved.is_too_long(begin + UNSERVED * 9), "a worker has come");
        unserved.update(&metadata(true), begin + UNSERVED * 9);
        assert!(!unserved.is_too_long(begin + UNSERVED * 9), "and has left again");
    }

    #[test]
    fn an_incomplete_profile_fails_the_command() {
        let profile = v1::Profile {
            name: "profiles/p".to_owned(),
            state: v1::profile::State::Incomplete.into(),
            missing: vec!["layer 3".to_owned()],
            ..v1::Profile::default()
        };
        assert_eq!(judge_profile(&profile).unwrap_err().exit(), Exit::ProfileMissing);
    }
}

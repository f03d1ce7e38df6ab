//! `loadmaster profile delete`.

use clap::Args;
use loadmaster_proto::reason::Reason;
use loadmaster_proto::wire::v1;
use tonic_types::{PreconditionViolation, StatusExt as _};

use crate::failure::Failure;
use crate::input::parse::{self, Etag};
use crate::session::context::Context;

/// Most plans that name each other in a row, each of which is deleted before the one that it names.
const MOST_NAMING: usize = 64;

/// See [`ProfileVerb::Delete`](super::ProfileVerb::Delete).
#[derive(Debug, Args)]
pub(crate) struct DeleteProfile {
    /// The profile: `profiles/ID` or the id alone.
    #[arg(value_parser = parse::profile)]
    name: String,

    /// Also delete the plans that were made from it, with their reports. Their trials stay in `loadmaster run list`.
    #[arg(long)]
    with_plans: bool,

    #[command(flatten)]
    etag: Etag,
}

impl DeleteProfile {
    pub(crate) async fn run(self, context: &Context) -> Result<(), Failure> {
        let Self { name, with_plans, etag: Etag { etag } } = self;
        let mut deleted = 0_u64;
        loop {
            let request = v1::DeleteProfileRequest { name: name.clone(), etag: etag.clone() };
            let refused = context.client.call(request).await;
            let Err(failure) = refused else { break };
            // A planner names some of many: it is asked again once these are gone.
            let plans = if with_plans { resting_plans(&failure) } else { Vec::new() };
            if plans.is_empty() {
                if !with_plans && references(&failure).iter().any(|of| of.r#type == "PLAN") {
                    context.remark("to delete the profile and the plans that use it, add --with-plans");
                }
                return Err(failure);
            }
            let before = deleted;
            for plan in plans {
                deleted += delete_plan(context, plan).await?;
            }
            if deleted == before {
                return Err(failure);
            }
            context.remark(&format!(
                "{deleted} plans deleted so far; they stay deleted if you interrupt this command"
            ));
        }
        context.remark(&format!("{name} is deleted"));
        Ok(())
    }
}

/// Deletes a plan, and before it those that name it; how many these are.
async fn delete_plan(context: &Context, plan: String) -> Result<u64, Failure> {
    let (mut waiting, mut deleted) = (vec![plan], 0);
    while let Some(plan) = waiting.last() {
        let request = v1::DeletePlanRequest { name: plan.clone(), force: true, etag: String::new() };
        let answer = context.client.call(request).await;
        match answer {
            Ok(_) => deleted += 1,
            // Another one has deleted it, or it was named by two.
            Err(Failure::Refused(status)) if status.code() == tonic::Code::NotFound => {}
            Err(failure) => {
                let naming = resting_plans(&failure).into_iter().next();
                let Some(naming) =
                    naming.filter(|naming| waiting.len() < MOST_NAMING && !waiting.contains(naming))
                else {
                    return Err(failure);
                };
                waiting.push(naming);
                continue;
            }
        }
        waiting.pop();
    }
    Ok(deleted)
}

/// The plans for which a deletion is refused, as far as the error names them.
fn resting_plans(failure: &Failure) -> Vec<String> {
    let all = references(failure);
    // Runs that are under way are not ended.
    if all.iter().any(|of| of.r#type == "OPERATION") {
        return Vec::new();
    }
    all.into_iter().filter(|of| of.r#type == "PLAN").map(|of| of.subject).collect()
}

/// The references for which a deletion is refused, as far as the error names them.
fn references(failure: &Failure) -> Vec<PreconditionViolation> {
    let Failure::Refused(status) = failure else { return Vec::new() };
    let is_in_use =
        status.get_details_error_info().is_some_and(|info| info.reason == Reason::ResourceInUse.as_str());
    let all = status.get_details_precondition_failure().filter(|_| is_in_use);
    all.map(|details| details.violations).unwrap_or_default()
}

//! `loadmaster plan show`: a plan as a table and as pictures.

use clap::Args;
use loadmaster_proto::wire::v1;
use loadmaster_show::picture::sheet::{Sheet, Which};
use loadmaster_show::picture::{is_known_by_steps, simulation};

use super::drawing::Drawing;
use crate::failure::Failure;
use crate::input::parse;
use crate::input::parse::choice;
use crate::session::context::Context;

/// See [`super::PlanVerb::Show`].
#[derive(Debug, Args)]
pub(crate) struct ShowPlan {
    /// The plan: `plans/ID` or the id alone.
    #[arg(value_parser = parse::plan)]
    name: String,

    /// Draw the iteration under another pipeline schedule than the plan's.
    #[arg(long, value_parser = choice::<v1::SimulatedSchedule>())]
    schedule: Option<v1::SimulatedSchedule>,

    /// Virtual pipeline stages per device of the interleaved schedule [default: 2].
    #[arg(long, value_name = "N", requires = "schedule", value_parser = clap::value_parser!(i32).range(2..=64))]
    virtual_stages: Option<i32>,

    /// Draw the iteration with or without communication overlap [default: as the plan was predicted].
    #[arg(long, value_parser = choice::<v1::CommunicationOverlap>())]
    communication_overlap: Option<v1::CommunicationOverlap>,

    #[command(flatten)]
    drawing: Drawing,
}

impl ShowPlan {
    pub(super) async fn run(self, context: &Context) -> Result<(), Failure> {
        self.drawing.check(context, self.schedule.is_some())?;
        let request = v1::GetPlanRequest { name: self.name.clone(), ..Default::default() };
        let plan = context.client.call(request).await?;
        let which = match self.drawing.which(context) {
            // A schedule in the command line is drawn.
            Which::NONE if self.schedule.is_some() && !self.drawing.is_asked(context) => {
                Which { schedule: true, ..Which::NONE }
            }
            which => which,
        };
        let timeline = if which.schedule { self.timeline(context, &plan).await? } else { None };
        if context.picture.is_none() {
            context.output.print(&plan)?;
            context.link(&plan.name);
        }
        if which == Which::NONE && context.picture.is_none() {
            return Ok(());
        }
        self.drawing.draw(context, |look| Sheet::of_plan(&plan, timeline.as_ref(), which, look))
    }

    /// Returns the plan's iteration; none where the profile has no times and no option names a schedule.
    async fn timeline(&self, context: &Context, plan: &v1::Plan) -> Result<Option<v1::Timeline>, Failure> {
        if plan.iteration.is_none() && self.schedule.is_none() {
            return Ok(None);
        }
        let own = plan.iteration.as_ref().map(v1::IterationEstimate::communication_overlap);
        let request = v1::SimulatePlanRequest {
            schedule: self.schedule.unwrap_or_default().into(),
            virtual_stage_count: self.virtual_stages.unwrap_or_default(),
            // Known of the plan's own iteration, and of interleaved stages, where the profile has traces.
            include_memory: self.schedule.is_none_or(|of| of == v1::SimulatedSchedule::Interleaved)
                && self.communication_overlap.is_none_or(|of| Some(of) == own)
                && is_known_by_steps(plan),
            communication_overlap: self.communication_overlap.unwrap_or_default().into(),
            ..simulation(plan)
        };
        let answer = context.client.call(request).await;
        match answer {
            Ok(timeline) => Ok(Some(timeline)),
            // The other pictures are drawn without it.
            Err(Failure::Refused(status)) if self.schedule.is_none() => {
                context.remark(&format!("the schedule is not drawn: {}", status.message()));
                Ok(None)
            }
            Err(failure) => Err(failure),
        }
    }
}

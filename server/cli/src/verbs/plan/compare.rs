//! `loadmaster plan compare`: plans side by side, on common scales.

use clap::Args;
use loadmaster_proto::wire::v1;

use super::drawing::Drawing;
use crate::failure::Failure;
use crate::input::parse;
use crate::output::Format;
use crate::session::client::plans;
use crate::session::context::Context;
use loadmaster_show::picture::sheet::Sheet;

/// See [`super::PlanVerb::Compare`].
#[derive(Debug, Args)]
pub(crate) struct Compare {
    /// 2 to 8 plans: `plans/ID` or the ids alone.
    #[arg(value_parser = parse::plan, value_name = "PLAN", num_args = 2..=8, required = true)]
    names: Vec<String>,

    #[command(flatten)]
    drawing: Drawing,
}

impl Compare {
    pub(super) async fn run(self, context: &Context) -> Result<(), Failure> {
        self.drawing.check(context, false)?;
        let which = self.drawing.which(context);
        let request = v1::ComparePlansRequest { names: self.names, with_memory: which.schedule };
        let answer =
            context.client.call(request, async |channel, q| plans(channel).compare_plans(q).await).await?;
        if context.output.format != Format::Table {
            return context.output.print(&answer);
        }
        self.drawing.draw(context, |look| Sheet::of_comparison(&answer, which, look))
    }
}

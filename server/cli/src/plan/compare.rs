//! `loadmaster plan compare`: plans side by side, on common scales.

use clap::Args;
use loadmaster_proto::wire::v1;

use super::super::client::plans;
use super::super::context::Context;
use super::super::error::Failure;
use super::super::output::Format;
use super::super::parse;
use super::super::picture::sheet::Sheet;
use super::drawing::Drawing;

/// See [`super::Verb::Compare`].
#[derive(Debug, Args)]
pub(in super::super) struct Compare {
    /// 2 to 8 plans: `plans/ID` or the ids alone.
    #[arg(value_parser = parse::plan, value_name = "PLAN", num_args = 2..=8, required = true)]
    names: Vec<String>,

    #[command(flatten)]
    drawing: Drawing,
}

impl Compare {
    pub(super) async fn run(self, context: &Context) -> Result<(), Failure> {
        self.drawing.check(context, false)?;
        let request = v1::ComparePlansRequest { names: self.names };
        let answer =
            context.client.call(request, async |channel, q| plans(channel).compare_plans(q).await).await?;
        if context.output.format != Format::Table {
            return context.output.print(&answer);
        }
        let which = self.drawing.which(context);
        self.drawing.draw(context, |look| Sheet::of_comparison(&answer, which, look))
    }
}

//! `loadmaster plan compare`: plans side by side, on common scales.

use clap::Args;
use loadmaster_proto::wire::v1;

use super::drawing::Drawing;
use crate::failure::Failure;
use crate::input::parse;
use crate::output::Format;
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
        let page = page(&self.names);
        let request = v1::ComparePlansRequest { names: self.names, include_memory: which.schedule };
        let answer = context.client.call(request).await?;
        if context.output.format != Format::Table {
            return context.output.print(&answer);
        }
        self.drawing.draw(context, |look| Sheet::of_comparison(&answer, which, look))?;
        if context.picture.is_none() {
            context.link(&page);
        }
        Ok(())
    }
}

/// The path of the page that compares the same plans.
fn page(names: &[String]) -> String {
    let asked = names.iter().map(|name| format!("plan={}", name.strip_prefix("plans/").unwrap_or(name)));
    format!("compare?{}", asked.collect::<Vec<_>>().join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comparison_has_an_address() {
        assert_eq!(page(&["plans/a1".to_owned(), "plans/b2".to_owned()]), "compare?plan=a1&plan=b2");
    }
}

//! `loadmaster plan place` and `plan placements`: plans on the nodes that a scheduler gave.

use clap::Args;
use loadmaster_proto::cluster::import::hostlist;
use loadmaster_proto::wire::v1;

use crate::failure::Failure;
use crate::input::parse;
use crate::session::address;
use crate::session::context::Context;
use crate::session::list::{ListArgs, ListOptions};
use crate::session::watch;

/// See [`super::PlanVerb::Place`].
#[derive(Debug, Args)]
pub(crate) struct CreatePlacement {
    /// The plan: `plans/ID` or the id alone.
    #[arg(value_parser = parse::plan)]
    plan: String,

    /// The nodes of the allocation, as Slurm writes them: gpu[001-004],big7.
    #[arg(long, value_name = "HOSTLIST")]
    nodes: String,

    /// Indices of the allocated devices, the same on every node, for example 0,1,2,3. Default: all of the cluster.
    #[arg(long, value_name = "INDEX,…", value_delimiter = ',', value_parser = clap::value_parser!(i32).range(0..))]
    device_indices: Vec<i32>,

    /// The cluster that describes the nodes: `clusters/ID` or the id alone. Default: the plan's.
    #[arg(long, value_name = "CLUSTER", value_parser = parse::cluster, conflicts_with_all = ["device_kind", "usable_memory"])]
    cluster: Option<String>,

    /// Kind of the devices, for nodes that no cluster describes. Links are then assumed from it.
    #[arg(long, value_name = "KIND", default_value = "", hide_default_value = true)]
    device_kind: String,

    /// Memory of each device that training may use, for nodes that no cluster describes. Default: as planned.
    #[arg(long, value_name = "BYTES", value_parser = parse::bytes)]
    usable_memory: Option<i64>,

    /// Profiles of the plan's model on the other kinds of its devices. Default: those of the plan.
    #[arg(long, value_name = "PROFILES", value_delimiter = ',', value_parser = parse::profile)]
    other_profiles: Vec<String>,

    /// Show the placement without storing it.
    #[arg(long)]
    dry_run: bool,
}

impl CreatePlacement {
    fn request(self) -> Result<v1::CreatePlacementRequest, Failure> {
        let is_list =
            self.device_indices.is_empty() && self.device_kind.is_empty() && self.usable_memory.is_none();
        let (nodes, node_list) = if is_list {
            (Vec::new(), self.nodes)
        } else {
            let names = hostlist::expand(&self.nodes).map_err(|why| {
                Failure::Usage(format!("--nodes {}: {why}. Write for example gpu[001-004].", self.nodes))
            })?;
            let node = |name| v1::AllocatedNode {
                name,
                device_indices: self.device_indices.clone(),
                device_kind: self.device_kind.clone(),
                memory_bytes: self.usable_memory.unwrap_or_default(),
                ..v1::AllocatedNode::default()
            };
            (names.into_iter().map(node).collect(), String::new())
        };
        Ok(v1::CreatePlacementRequest {
            plan: self.plan,
            nodes,
            node_list,
            cluster: self.cluster.unwrap_or_default(),
            other_profiles: self.other_profiles,
            validate_only: self.dry_run,
        })
    }

    pub(super) async fn run(self, context: &Context) -> Result<(), Failure> {
        let dry_run = self.dry_run;
        let request = self.request()?;
        let placement = context.client.call(request).await?;
        context.print(&placement, !dry_run)
    }
}

/// See [`super::PlanVerb::Placements`].
#[derive(Debug, Args)]
pub(crate) struct Placements {
    /// One placement, `placements/ID`, or the placements of a plan, `plans/ID` or the id alone. Default: all.
    #[arg(value_parser = parse::plan_or_placement)]
    name: Option<String>,

    #[command(flatten)]
    list: ListArgs,
}

impl Placements {
    pub(super) async fn run(self, context: &Context) -> Result<(), Failure> {
        let plan = self.name.unwrap_or_default();
        let ListOptions { filter, order_by, shown } = self.list.asked()?;
        if plan.starts_with("placements/") {
            if shown.watch || !filter.is_empty() || !order_by.is_empty() {
                return Failure::usage(
                    "--filter, --order-by, --since and --watch apply only to a list of placements. Leave these options \
                     out to show one placement.",
                );
            }
            return context.show(v1::GetPlacementRequest { name: plan, ..Default::default() }).await;
        }
        let page = page(&plan, &filter, &order_by);
        let request = v1::ListPlacementsRequest { plan, filter, order_by, ..Default::default() };
        watch::print(context, shown, request).await?;
        context.link(&page);
        Ok(())
    }
}

/// The path of the page that lists the same placements. It has no plan besides its filter.
fn page(plan: &str, filter: &str, order_by: &str) -> String {
    let filter = address::narrowed(&[("plan", plan.strip_prefix("plans/").unwrap_or(plan))], filter);
    address::of_list("placements", &filter, order_by)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placements_that_were_asked_for_have_an_address() {
        assert_eq!(page("", "", ""), "placements");
        assert_eq!(page("plans/a1", " ", ""), "placements?filter=plan+%3D+%22a1%22");
        assert_eq!(
            page("plans/a1", "nodes:n1 OR nodes:n2", "gap desc"),
            "placements?filter=plan+%3D+%22a1%22+AND+nodes%3An1+OR+nodes%3An2&order_by=gap+desc"
        );
    }
}

//! Plans as frameworks run them.

use loadmaster_proto::wire::v1::{
    AddedMemoryCause, DeviceGroup, ExportPlanResponse, ExportProof, ExportVerified, ExportedStageMemory,
    Framework, Locality, NodeGroup, RankPlace, StageLocality,
};

use super::grid::Side::{Left, Right};
use super::grid::{Facts, Grid};
use super::{accounting, fits, or_none};
use crate::show;
use crate::text::terminal_abilities::Look;
use crate::text::{bytes, maybe_bytes, plain, plural, severity, word};

show!(@ ExportPlanResponse, self, look, vec![self.plan.clone()], one(self, look));
show!(@ ListFrameworksResponse, self, look,
    self.frameworks.iter().map(|of| target(&of.id, &of.first_version)).collect(),
    list(&self.frameworks, look));

/// Most ranks that a table has.
const SHOWN_RANKS: usize = 64;

fn one(export: &ExportPlanResponse, look: Look) -> String {
    let mut facts = Facts::default();
    facts.add("plan", plain(&export.plan));
    facts.add("framework", target(&export.framework, &export.framework_version));
    facts.add("proved", proved(export.verified(), export.proof.as_ref()));
    for (name, value) in &export.environment {
        facts.add("environment", plain(&format!("{name}={value}")));
    }
    if !export.command.is_empty() {
        let wherever = if export.run_once { "run once" } else { "on each node" };
        facts.add(wherever, plain(&export.command.join(" ")));
    }
    if let Some(allocation) = &export.allocation {
        for nodes in &allocation.nodes {
            facts.add("ask for", asked(nodes));
        }
        for of in &allocation.localities {
            facts.add("near", near(of));
        }
    }
    for warning in &export.warnings {
        facts.add(severity(warning), plain(&warning.message));
    }
    let mut text = facts.render();
    for file in &export.files {
        text += &format!("\n{}:\n", plain(&file.name));
        for line in file.contents.lines() {
            text += &format!("  {}\n", plain(line));
        }
    }
    if !export.stage_memory.is_empty() {
        text += &format!("\n{}", memory(&export.stage_memory, look));
    }
    text + "\n" + &ranks(&export.ranks, look)
}

/// What each stage holds under the framework: what the plan says, a column for each cause of more, and both together.
fn memory(stages: &[ExportedStageMemory], look: Look) -> String {
    let all = stages.iter().flat_map(|of| &of.added_memory).map(|added| added.cause());
    let mut causes: Vec<AddedMemoryCause> = all.collect();
    causes.sort_unstable_by_key(|&cause| i32::from(cause));
    causes.dedup();
    let titles: Vec<String> = causes.iter().map(|&cause| format!("+ {}", caused(cause))).collect();
    let predicted = format!("predicted ({})", accounting(stages.first().map_or(0, |of| of.accounting)));
    let mut columns = vec![("stage", Right), (predicted.as_str(), Right)];
    columns.extend(titles.iter().map(|title| (title.as_str(), Right)));
    columns.extend([("total", Right), ("at most", Right), ("of", Right), ("fits", Left)]);
    let mut grid = Grid::new(&columns, look);
    for of in stages {
        let added = |cause: &AddedMemoryCause| {
            let own = of.added_memory.iter().filter(|added| added.cause() == *cause);
            bytes(own.fold(0, |sum: i64, added| sum.saturating_add(added.bytes)))
        };
        let mut row = vec![of.stage.to_string(), bytes(of.predicted_bytes)];
        row.extend(causes.iter().map(added));
        row.extend([
            bytes(of.total_bytes),
            maybe_bytes(of.upper_bytes, look),
            maybe_bytes(of.capacity_bytes, look),
            fits(of.verdict(), look),
        ]);
        grid.rows(row);
    }
    let what = if causes.is_empty() {
        "the framework holds what the plan counts\n"
    } else {
        "+: at most this much memory is added by the framework; -o json shows the calculation\n"
    };
    grid.render() + what
}

fn caused(cause: AddedMemoryCause) -> String {
    word(cause.as_str_name(), "ADDED_MEMORY_CAUSE_")
}

fn asked(nodes: &NodeGroup) -> String {
    let device = |of: &DeviceGroup| {
        let kind = if of.kind.is_empty() { "device" } else { &of.kind };
        plain(&format!("{} x {kind}", of.count)) + &format!(" with {}", bytes(of.capacity_bytes))
    };
    let devices: Vec<String> = nodes.devices.iter().map(device).collect();
    format!("{}, each with {}", plural(nodes.count, "node"), devices.join(" and "))
}

fn near(of: &StageLocality) -> String {
    let within = match of.locality() {
        Locality::Node => "one node",
        Locality::Switch => "nodes of one switch",
        Locality::Unspecified => "places that are not known",
    };
    format!("stage {}: each {} on {within}", of.stage, plural(of.rank_count, "rank"))
}

fn ranks(ranks: &[RankPlace], look: Look) -> String {
    let mut grid = Grid::new(
        &[
            ("rank", Right),
            ("stage", Right),
            ("replica", Right),
            ("shard", Right),
            ("node", Left),
            ("device", Right),
        ],
        look,
    );
    for place in ranks.iter().take(SHOWN_RANKS) {
        let device = place.device.as_ref();
        grid.row([
            place.rank.to_string(),
            place.stage.to_string(),
            place.replica.to_string(),
            place.shard.to_string(),
            or_none(device.map_or("", |device| &device.node), look),
            device.map_or_else(|| look.none().to_owned(), |device| device.index.to_string()),
        ]);
    }
    let more = ranks.len().saturating_sub(SHOWN_RANKS);
    let rest = if more > 0 { format!("and {more} more ranks: -o json lists all\n") } else { String::new() };
    grid.render() + &rest
}

fn list(exporters: &[Framework], look: Look) -> String {
    let mut grid = Grid::new(
        &[("framework", Left), ("proved", Left), ("with", Left), ("variants", Left), ("writes", Left)],
        look,
    );
    for of in exporters {
        grid.row([
            target(&of.id, &of.first_version),
            how_much(of.verified()),
            or_none(&of.proof.as_ref().map(with).unwrap_or_default(), look),
            or_none(&of.variants.join(", "), look),
            plain(&of.description),
        ]);
    }
    grid.render() + "\n" + &manifests(exporters, look)
}

/// What starts the processes of which frameworks.
fn manifests(exporters: &[Framework], look: Look) -> String {
    let mut grid = Grid::new(&[("manifest", Left), ("starts", Left)], look);
    let mut every: Vec<&String> = Vec::new();
    for manifest in exporters.iter().flat_map(|of| &of.manifests) {
        if !every.contains(&manifest) {
            every.push(manifest);
        }
    }
    for manifest in every {
        let without = exporters.iter().filter(|of| !of.manifests.contains(manifest));
        let without: Vec<String> = without.map(|of| target(&of.id, &of.first_version)).collect();
        let starts =
            if without.is_empty() { "all".to_owned() } else { format!("all but {}", without.join(", ")) };
        grid.row([plain(manifest), starts]);
    }
    grid.render()
}

fn target(framework: &str, version: &str) -> String {
    plain(&format!("{framework}@{version}"))
}

/// What was proved and with whose code, with why where that is nothing.
fn proved(verified: ExportVerified, proof: Option<&ExportProof>) -> String {
    let with = match (verified, proof) {
        (ExportVerified::None, _) => ": no code of the framework was asked".to_owned(),
        (_, None) => String::new(),
        (_, Some(proof)) => format!(", with {}", with(proof)),
    };
    how_much(verified) + &with
}

/// `deepspeed 0.19.8`.
fn with(proof: &ExportProof) -> String {
    plain(&format!("{} {}", proof.package_name, proof.package_version))
}

fn how_much(verified: ExportVerified) -> String {
    match verified {
        ExportVerified::Unspecified => "unknown".to_owned(),
        ExportVerified::None => "nothing".to_owned(),
        known => word(known.as_str_name(), "EXPORT_VERIFIED_"),
    }
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::wire::v1::{AddedMemory, Verdict};

    use super::*;

    fn stage(stage: i32, added: &[(AddedMemoryCause, i64)], verdict: Verdict) -> ExportedStageMemory {
        let added = added.iter().map(|&(cause, bytes)| AddedMemory {
            cause: cause.into(),
            bytes,
            ..AddedMemory::default()
        });
        ExportedStageMemory {
            stage,
            predicted_bytes: 1 << 20,
            added_memory: added.collect(),
            total_bytes: 1 << 21,
            capacity_bytes: Some(1 << 22),
            verdict: verdict.into(),
            accounting: 1,
            ..ExportedStageMemory::default()
        }
    }

    /// What reaches the other nodes by itself is not to be started on each.
    #[test]
    fn commands_are_run_where_they_belong() {
        let told = |command_once| {
            let command = vec!["deepspeed".to_owned(), "--hostfile=hostfile".to_owned()];
            one(
                &ExportPlanResponse { command, run_once: command_once, ..ExportPlanResponse::default() },
                Look::PLAIN,
            )
        };
        let line = |text: String| text.lines().find(|line| line.contains("hostfile")).map(str::to_owned);
        assert!(line(told(true)).is_some_and(|line| line.starts_with("run once")));
        assert!(line(told(false)).is_some_and(|line| line.starts_with("on each node")));
    }

    /// Whose code proved it is said with what it proved; and that nothing is, with why.
    #[test]
    fn proofs_name_whose_code_it_was() {
        let proof = ExportProof {
            package_name: "deepspeed".to_owned(),
            package_version: "0.19.8".to_owned(),
            framework_package: true,
        };
        assert_eq!(proved(ExportVerified::Trained, Some(&proof)), "trained, with deepspeed 0.19.8");
        assert_eq!(proved(ExportVerified::Built, None), "built", "of a planner that does not say it");
        assert_eq!(proved(ExportVerified::None, None), "nothing: no code of the framework was asked");
    }

    /// A column for each cause that any stage has, and none for others.
    #[test]
    fn stages_have_a_column_for_each_cause() {
        use AddedMemoryCause::{HeldGradients, HeldOutputs};
        let stages = [
            stage(
                0,
                &[(HeldOutputs, 1 << 10), (HeldGradients, 1 << 11), (HeldGradients, 1 << 11)],
                Verdict::Fits,
            ),
            stage(1, &[(HeldGradients, 3 << 10)], Verdict::DoesNotFit),
        ];
        let text = memory(&stages, Look::PLAIN);
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect())
            .collect();
        let titles = [
            "stage",
            "predicted (allocated)",
            "+ held outputs",
            "+ held gradients",
            "total",
            "at most",
            "of",
            "fits",
        ];
        assert_eq!(lines[0], titles);
        let none = Look::PLAIN.none();
        assert_eq!(lines[1], ["0", "1.00 MiB", "1.00 KiB", "4.00 KiB", "2.00 MiB", none, "4.00 MiB", "yes"]);
        assert_eq!(lines[2], ["1", "1.00 MiB", "0 B", "3.00 KiB", "2.00 MiB", none, "4.00 MiB", "no"]);
        let plain = memory(&[stage(0, &[], Verdict::Fits)], Look::PLAIN);
        assert!(plain.contains("what the plan counts") && !plain.contains('+'), "{plain}");
    }
}

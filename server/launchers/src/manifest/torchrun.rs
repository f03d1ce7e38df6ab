//! torchrun, which starts as many processes on every node.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::StageRefusal;
use crate::export_parts::RankPlace;
use crate::question::Refused;

/// The script that starts what torchrun runs.
pub(crate) const SCRIPT: &str = "train.sh";
/// Where its commands begin.
pub(crate) const STRICT: &str = "set -euo pipefail\n";

/// A flag with its values.
pub(crate) type Flag = Vec<String>;

pub(crate) fn flag(name: &str, value: impl ToString) -> Flag {
    vec![format!("--{name}"), value.to_string()]
}

pub(crate) fn switch(name: &str) -> Flag {
    vec![format!("--{name}")]
}

/// torchrun, with static ranks: the elastic ones have no order, so a plan's placement would be lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Torchrun {
    /// Nodes, and ranks of each.
    nodes: (usize, usize),
}

impl Torchrun {
    /// For these ranks, in order.
    ///
    /// # Errors
    /// It cannot place them so.
    pub(crate) fn of(ranks: &[RankPlace]) -> Result<Self, Refused> {
        Ok(Self { nodes: nodes(ranks)? })
    }

    /// What is run on each node, up to the script.
    pub(crate) fn words(&self) -> Vec<String> {
        let (nodes, per_node) = self.nodes;
        let nodes = if nodes == 1 { "--standalone".to_owned() } else { format!("--nnodes={nodes}") };
        vec!["torchrun".to_owned(), nodes, format!("--nproc-per-node={per_node}")]
    }

    /// A shell script that runs a program with flags in named groups, from another `folder` than the caller's if it must.
    pub(crate) fn script(
        &self,
        (head, about): (&str, &str),
        folder: Option<&str>,
        exports: &str,
        groups: &[(&str, &[Flag])],
        program: &str,
    ) -> String {
        let folder = folder.unwrap_or_default();
        let mut script = format!("#!/usr/bin/env bash\n# {head}.\n# {about}\n{STRICT}{folder}\n");
        if self.nodes.0 > 1 {
            script.push_str(
                "# Run it on every node. torchrun reads both variables.\n\
                 : \"${PET_NODE_RANK:?is not set: 0 on the first node, 1 on the last}\"\n\
                 : \"${PET_MASTER_ADDR:?is not set: the name of the first node}\"\n\
                 export PET_NODE_RANK PET_MASTER_ADDR\n",
            );
        }
        script.push_str(exports);
        if self.nodes.0 > 1 || !exports.is_empty() {
            script.push('\n');
        }
        let mut arguments = String::new();
        for (name, flags) in groups {
            let lines: Vec<String> = flags.iter().map(|flag| format!("    {}\n", quoted(flag))).collect();
            // Writing to a string does not fail.
            let _ = write!(script, "{name}=(\n{})\n", lines.concat());
            let _ = write!(arguments, " \"${{{name}[@]}}\"");
        }
        if !groups.is_empty() {
            script.push('\n');
        }
        let _ = writeln!(script, "exec {} {program}{arguments} \"$@\"", self.words().join(" "));
        script
    }
}

/// A flag in the shell: what is more than letters, digits and a few signs is quoted.
fn quoted(flag: &Flag) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=./+,:".contains(c);
    let words: Vec<String> = flag
        .iter()
        .map(|word| if word.chars().all(is_plain) { word.clone() } else { format!("\"{word}\"") })
        .collect();
    words.join(" ")
}

/// How many nodes ranks are on and how many are on each. Where nodes have no names, all are taken to be on one.
///
/// # Errors
/// Nodes have other numbers of ranks, or ranks of a node do not follow each other, as frameworks number them.
pub(crate) fn nodes(ranks: &[RankPlace]) -> Result<(usize, usize), Refused> {
    let named: Vec<&str> =
        ranks.iter().map(|place| place.device.as_ref().map_or("", |device| device.node.as_str())).collect();
    let nodes: BTreeSet<&str> = named.iter().copied().collect();
    let per_node = named.len() / nodes.len().max(1);
    let follow = named.chunks(per_node.max(1)).all(|run| run.iter().all(|node| *node == run[0]));
    if follow && named.len() == per_node * nodes.len() {
        return Ok((nodes.len(), per_node));
    }
    let why = "does not place its ranks node by node, with equal numbers of ranks on all nodes, as this framework \
        requires. Request a plan for this framework (`problem.framework`): such plans keep this order";
    Err(vec![StageRefusal::of_plan(why)])
}

//! `hostfile`: DeepSpeed's list of nodes, without which it starts none but its own.

use std::fmt::Write as _;

use loadmaster_proto::name::is_host;

use crate::export_parts::{ExportedFile, RankPlace};
use crate::question::ExportQuestion;

/// Its name.
pub(crate) const FILE: &str = "hostfile";

/// What to know of it.
pub(crate) const WARNING: &str = "unless the export has a `manifest` that starts the job, run deepspeed on the first \
    node only. deepspeed connects over ssh to every node in hostfile. Replace node names in hostfile that differ from \
    yours, or set `placement` in the export request to a placement on your nodes";

/// The flag that names the file.
pub(super) fn flag() -> String {
    format!("--hostfile={FILE}")
}

/// The file for ranks that follow each other on several nodes.
pub(super) fn file(question: &ExportQuestion<'_>, ranks: &[RankPlace]) -> ExportedFile {
    let nodes = nodes(ranks);
    // One that cannot be said leaves the others out, too: a placeholder might be the name of another.
    let is_said = nodes.iter().all(|(name, _)| is_readable(name));
    let mut text = format!(
        "# The nodes of {} in the order of its ranks. Unless --no_ssh is set, deepspeed reaches them by these names.\n",
        question.name
    );
    if !is_said {
        text.push_str("# The plan has no names of the nodes. Replace these by yours.\n");
    }
    for (at, (name, slots)) in nodes.iter().enumerate() {
        let name = if is_said { (*name).to_owned() } else { format!("node-{at}") };
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name} slots={slots}");
    }
    ExportedFile::new(FILE, text)
}

/// Nodes in order, each with as many slots as `--include` needs to name its devices; `--num_gpus` takes of them what the plan does.
fn nodes(ranks: &[RankPlace]) -> Vec<(&str, usize)> {
    let mut nodes: Vec<(&str, usize, usize)> = Vec::new();
    for device in ranks.iter().map(|place| place.device.as_ref()) {
        let (name, slots) =
            device.map_or(("", 0), |device| (device.node.as_str(), device.index as usize + 1));
        match nodes.last_mut() {
            Some((of, count, most)) if *of == name => (*count, *most) = (*count + 1, slots.max(*most)),
            _ => nodes.push((name, 1, slots)),
        }
    }
    nodes.into_iter().map(|(name, count, most)| (name, count.max(most))).collect()
}

/// Whether DeepSpeed reads a name back and passes it to ssh as a host: `--include` ends names at `:`, so an IPv6 address is none.
fn is_readable(name: &str) -> bool {
    is_host(name) && !name.contains(':')
}

//! The script that starts a framework in a pod.

use loadmaster_proto::plan::objective::Framework;

use super::kubernetes::Workload;
use super::parts::{FILES, START};
use crate::export_parts::{Export, ExportedFile};

/// The script.
pub(super) fn file(workload: &Workload<'_>, rendezvous: &str, ends: bool) -> ExportedFile {
    let Workload { wrapping, export, pods, .. } = workload;
    let last = export.ranks.len().saturating_sub(1);
    let body = format!(
        "#!/usr/bin/env bash\n\
         # {head}.\n\
         # Ranks 0 to {last} on {count}: a pod is a node of the plan, and pods are in the order of the ranks.\n\
         set -euo pipefail\n\
         \n\
         {rendezvous}\
         # The program is in the image's working folder, and the plan's files come beside it.\n\
         cp -L {FILES}/* .\n\
         {start}",
        head = wrapping.head_line(),
        count = if pods.len() == 1 { "1 pod".to_owned() } else { format!("{} pods", pods.len()) },
        start = if ends {
            format!("exec {}\n", start(workload))
        } else {
            format!(
                "{}\n# A pod that ends would be restarted, so it waits after training.\nexec sleep infinity\n",
                start(workload)
            )
        },
    );
    ExportedFile::new(START, body)
}

/// The command of a pod, with the container's arguments behind the plan's.
fn start(workload: &Workload<'_>) -> String {
    let Workload { export, pods, .. } = workload;
    let words: Vec<String> = export.command.iter().map(|word| quoted(word)).collect();
    let is_one = pods.len() == 1;
    match export.target.framework {
        // Its own script has the command, and names what is missing.
        _ if export.files.iter().any(|file| file.name == "train.sh") => "bash ./train.sh \"$@\"".to_owned(),
        // Its hostfile is the export's: names stand for the nodes' places alone, and nothing is reached through them.
        Framework::Deepspeed if !is_one => format!(
            "deepspeed --no_ssh --node_rank=\"$PET_NODE_RANK\" \\\n    \
             --master_addr=\"$PET_MASTER_ADDR\" --master_port=\"$PET_MASTER_PORT\" \\\n    {} \"$@\"",
            words[1..].join(" ")
        ),
        Framework::Accelerate if !is_one => format!(
            "accelerate launch --machine_rank=\"$PET_NODE_RANK\" \\\n    \
             --main_process_ip=\"$PET_MASTER_ADDR\" --main_process_port=\"$PET_MASTER_PORT\" \\\n    {} \"$@\"",
            words[2..].join(" ")
        ),
        _ if words.is_empty() => format!("{} train.py \"$@\"", torchrun(workload)),
        _ => format!("{} \"$@\"", words.join(" ")),
    }
}

/// torchrun for programs whose framework names none.
fn torchrun(workload: &Workload<'_>) -> String {
    let pods = &workload.pods;
    let each = match pods.first() {
        Some(pod) if !workload.is_unequal() => pod.ranks.to_string(),
        _ => "\"$PET_NPROC_PER_NODE\"".to_owned(),
    };
    if pods.len() == 1 {
        format!("torchrun --standalone --nproc-per-node={each}")
    } else {
        format!("torchrun --nnodes={} --nproc-per-node={each}", pods.len())
    }
}

/// What a process of a rank runs, where the framework's own command starts processes of a node: the words behind those that do
/// so. None where processes learn more from the framework than their numbers.
pub(super) fn program(export: &Export) -> Option<Vec<String>> {
    let skipped = |own: &[&str]| {
        let rest =
            export.command.iter().skip(1).skip_while(|word| own.iter().any(|own| word.starts_with(own)));
        Some(rest.cloned().collect())
    };
    match export.target.framework {
        Framework::Accelerate | Framework::Torchgpipe => None,
        Framework::Deepspeed => skipped(&["--hostfile=", "--num_nodes=", "--num_gpus="]),
        _ if export.command.is_empty() => Some(vec!["train.py".to_owned()]),
        _ => skipped(&["--nnodes=", "--nproc-per-node=", "--standalone"]),
    }
}

/// A word in the shell, as it stands.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=./+,:".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

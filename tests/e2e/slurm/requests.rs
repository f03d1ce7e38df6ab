//! What `loadmaster slurm request` prints is what Slurm takes, and what it gives then is what the plan has.

use std::fs;

use super::{plan, scene, uneven, word};

/// What is asked for a part of a job: nodes, GPUs of each, switches.
type Part<T> = (T, T, T);

/// What Slurm says that a job asks for.
fn asked(job: &str) -> Part<String> {
    let switches = word(job, "Switches=");
    (
        word(job, "NumNodes="),
        word(job, "TresPerNode="),
        switches.split('@').next().unwrap_or_default().to_owned(),
    )
}

#[test]
fn slurm_takes_what_plans_ask_for() {
    let Some((slurm, planner)) = scene("requests") else { return };
    uneven(&slurm, &planner);
    // Stages of a node each; stages of two nodes each; a job of two parts.
    let cases: [(&str, &str, &[Part<&str>]); 3] = [
        ("of-4", "1d4-1d4-1d4-1d4", &[("4", "gres:gpu:h200:4", "")]),
        ("of-2", "2d4-2d4", &[("4", "gres:gpu:h200:2", "2")]),
        ("uneven", "1d4-1d4-2d2", &[("2", "gres:gpu:h200:4", ""), ("1", "gres:gpu:h200:2", "")]),
    ];
    for (cluster, stages, expected) in cases {
        let id = plan(&planner, cluster, stages);
        let lines = slurm.run("loadmaster", &["slurm", "request", &id]);
        assert_eq!(lines.code, 0, "{}", lines.stderr);
        let script = format!("#!/bin/sh\n{}true\n", lines.stdout);
        fs::write(slurm.folder().join("job.sh"), script).expect("a script can be written");
        let test = slurm.run("sbatch", &["--test-only", "job.sh"]);
        assert_eq!(test.code, 0, "{stages}: {}\n{}", test.stderr, lines.stdout);
        assert!(test.stderr.contains("to start at"), "{stages}: {}", test.stderr);
        // The controller compared each part with its comment.
        let compared = test.stderr.matches(&format!("asks for what plans/{id} does")).count();
        assert_eq!(compared, expected.len(), "{stages}: {}", test.stderr);
        let submitted = slurm.run("sbatch", &["--parsable", "--hold", "job.sh"]);
        assert_eq!(submitted.code, 0, "{stages}: {}", submitted.stderr);
        let job = submitted.stdout.trim().to_owned();
        let told = slurm.run("scontrol", &["-o", "show", "job", &job]).stdout;
        let found: Vec<_> = told.lines().filter(|line| line.contains("JobId=")).map(asked).collect();
        let expected: Vec<_> = expected
            .iter()
            .map(|(nodes, gpus, switches)| ((*nodes).to_owned(), (*gpus).to_owned(), (*switches).to_owned()))
            .collect();
        assert_eq!(found, expected, "{stages}: {told}");
        slurm.run("scancel", &[&job]);
    }
}

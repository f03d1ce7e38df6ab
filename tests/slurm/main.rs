//! `make demo-slurm`: from a profile to a job of a real Slurm that trains the plan, and what it needed beside what was predicted.
//!
//! Everything runs on this machine and on its CPU: a planner, a worker that profiles, a controller and four nodes of Slurm, and the
//! launchers' torch (`tests/launchers/install.sh`), which trains the model that the planner cut. All of it ends with this program.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use loadmaster_tests::{Output, Planner, SlurmCluster, Worker, WorkerOptions};

/// A GPT-2 that trains in milliseconds: `train.py` has the same.
const MODEL: &str = "--model gpt2 --blocks 4 --hidden-size 64 --heads 4 --sequence-length 32 --vocabulary-size 500 \
                     --positions 32 --untied-head --dropout 0";
const TRAINING: &str = "--precision fp32 --optimizer sgd --momentum 0 --micro-batch-size 2 --micro-batches 8";
/// What Slurm tells nobody of its nodes.
const NODES: &str = "--devices-per-node 1 --device-kind cpu --memory 1GiB --network 10Gb/s";
const STAGES: usize = 4;

/// What the steps need.
struct Demo {
    planner: Planner,
    slurm: SlurmCluster,
}

fn main() -> ExitCode {
    let begun = Instant::now();
    let skipped = |why: &str| {
        println!("SKIPPED: demo-slurm: {why}");
        ExitCode::SUCCESS
    };
    let python = match python() {
        Ok(python) => python,
        Err(why) => return skipped(&format!("{why:#}")),
    };
    let planner = Planner::start();
    let mut slurm = match SlurmCluster::start(planner.address()) {
        Ok(slurm) => slurm,
        Err(why) => return skipped(&why),
    };
    // Where a user has installed the package and the model's own code.
    slurm.set(
        "PYTHONPATH",
        &format!("{0}/../deploy/python/src:{0}/launchers/oracles", env!("CARGO_MANIFEST_DIR")),
    );
    match (Demo { planner, slurm }).run(&python) {
        Ok(()) => {
            println!("\nFrom the profile to the observation: {:.0} s", begun.elapsed().as_secs_f64());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("demo-slurm: {error:#}");
            ExitCode::FAILURE
        }
    }
}

impl Demo {
    fn run(&self, python: &Path) -> Result<()> {
        step("1. Profile a GPT-2: each distinct layer trained alone");
        let options = WorkerOptions { slots: "2x1GiB".to_owned(), ..WorkerOptions::default() };
        let worker = Worker::start(&self.planner, &options);
        self.client(&format!("profile run --id gpt {MODEL} {TRAINING} -o name"))?;
        drop(worker);

        step("2. The nodes of Slurm, and a plan for them that torch can run");
        self.client(&format!("cluster import topology.conf --id slurm {NODES} -o name"))?;
        let asked = format!(
            "--profile gpt --cluster slurm --min-stages {STAGES} --max-stages {STAGES} --launcher torch-pipelining"
        );
        let plan = self.client(&format!("plan recommend {asked} -o name"))?;
        let plan = plan.trim();

        step("3. A job of it");
        let program = concat!(env!("CARGO_MANIFEST_DIR"), "/slurm/train.py");
        std::fs::copy(program, self.slurm.folder().join("train.py")).context("train.py cannot be copied")?;
        let script = self.client(&format!("slurm script {plan} -- {} train.py", python.display()))?;
        println!("$ sbatch job.sh");
        let log = self.slurm.job("job.sh", &script);
        print!("{log}");
        let trained = log.lines().filter(|line| line.contains(" trained ")).count();
        ensure!(trained == STAGES, "{trained} of {STAGES} stages were trained");
        ensure!(log.contains("as those of the uncut model"), "nobody compared the losses");
        let reported = log.lines().find_map(|line| line.strip_prefix("reported as "));
        let reported = reported.context("the job reported nothing")?;

        step("4. What it needed, beside what was predicted");
        self.client(&format!("plan observations {plan}"))?;
        let stored = self.slurm.run("loadmaster", &["plan", "observations", plan, "-o", "name"]).stdout;
        ensure!(
            stored.lines().eq([reported]),
            "the plan's history has {stored:?}, and the job reported {reported}"
        );
        self.client(&format!("plan show {plan}"))?;
        Ok(())
    }

    /// A command of ours, shown as the reader would type it, with what it prints.
    fn client(&self, line: &str) -> Result<String> {
        println!("$ loadmaster {line}");
        let output = self.slurm.run("loadmaster", &line.split_whitespace().collect::<Vec<_>>());
        print!("{}", output.stdout);
        if output.code != 0 {
            bail!("`loadmaster {line}` failed:\n{}", output.stderr);
        }
        Ok(output.stdout)
    }
}

fn step(title: &str) {
    println!("\n{title}");
}

/// The launchers' Python, which has torch.
fn python() -> Result<PathBuf> {
    let install = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/launchers/install.sh"));
    let store = Output::of(Command::new(install).arg("--path"));
    let store = PathBuf::from(store.stdout.trim());
    if !store.join("complete").exists() {
        bail!("torch is not installed: tests/launchers/install.sh does it (6.6 GB)");
    }
    Ok(store.join("bin").join("python"))
}

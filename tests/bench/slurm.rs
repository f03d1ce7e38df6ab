//! `make demo-slurm`: from a profile to a job of a real Slurm that trains the plan, and what it needed beside what was predicted, on
//! the terminal and on the page that a browser would show.
//!
//! Everything runs on this machine and on its CPU: a planner, a worker that profiles, a controller and four nodes of Slurm, and the
//! frameworks' torch (`tests/launchers/install.sh`), which trains the model that the planner cut. All of it ends with this program.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use loadmaster_tests::{Output, Planner, SlurmCluster, Worker, WorkerOptions};

/// A GPT-2 that trains in milliseconds: `train.py` has the same.
const MODEL: &str = "--model gpt2 --blocks 4 --hidden-size 64 --heads 4 --sequence-length 32 --vocabulary-size 500 \
                     --positions 32 --untied-head --dropout 0";
const TRAINING: &str = "--precision fp32 --optimizer sgd --momentum 0 --micro-batch-size 2 --micro-batches 8";
/// What Slurm tells nobody of its nodes.
const NODES: &str = "--devices-per-node 1 --device-kind cpu --device-memory 1GiB --network-bandwidth 10Gb/s";
const STAGES: usize = 4;
/// No page takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the steps need.
struct Demo {
    planner: Planner,
    slurm: SlurmCluster,
}

/// Goes all the way, or says why this machine cannot; nothing in it is a goal.
pub(crate) fn run() -> Result<bool> {
    let begun = Instant::now();
    let skipped = |why: &str| {
        println!("SKIPPED: bench slurm: {why}");
        Ok(true)
    };
    let python = match python() {
        Ok(python) => python,
        Err(why) => return skipped(&format!("{why:#}")),
    };
    let generate = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/python/tools/generate.sh");
    let generated = Output::of(&mut Command::new(generate));
    if generated.code != 0 {
        return skipped(&format!("the Python package has no messages: {}", generated.stderr.trim()));
    }
    let planner = Planner::start_with(&[
        "--lease-duration",
        "3s",
        "--heartbeat-interval",
        "0.5s",
        "--web",
        "127.0.0.1:0",
    ]);
    let mut slurm = match SlurmCluster::start(planner.address()) {
        Ok(slurm) => slurm,
        Err(why) => return skipped(&why),
    };
    // Where a user has installed the package and the model's own code.
    slurm.set(
        "PYTHONPATH",
        &format!("{0}/../deploy/python/src:{0}/launchers/oracles", env!("CARGO_MANIFEST_DIR")),
    );
    Demo { planner, slurm }.run(&python)?;
    println!("\nFrom the profile to the report: {:.0} s", begun.elapsed().as_secs_f64());
    Ok(true)
}

impl Demo {
    fn run(&self, python: &Path) -> Result<()> {
        step("1. Profile a GPT-2: each distinct layer trained alone");
        let options = WorkerOptions::slots("2x1GiB");
        let worker = Worker::start(&self.planner, &options);
        self.client(&format!("profile run --id gpt {MODEL} {TRAINING} -o name"))?;
        drop(worker);

        step("2. The nodes of Slurm, and a plan for them that torch can run");
        self.client(&format!("cluster import topology.conf --id slurm {NODES} -o name"))?;
        let asked = format!(
            "--profile gpt --cluster slurm --pipeline-parallel-sizes {STAGES} --framework torch-pipelining"
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
        let table = self.output(&format!("plan reports {plan}"))?;
        let stored = self.slurm.run("loadmaster", &["plan", "reports", plan, "-o", "name"]).stdout;
        ensure!(
            stored.lines().eq([reported]),
            "the plan's history has {stored:?}, and the job reported {reported}"
        );
        self.client(&format!("plan show {plan}"))?;

        step("5. Its page, for whoever asks later");
        // Where the command line says that the page is.
        let link = table.stderr.lines().find_map(|line| line.strip_prefix("page:"));
        let link = link.context("the planner has no pages")?.trim();
        ensure!(link.ends_with(&format!("/{plan}/history")), "the link is {link}, and the plan {plan}");
        self.on_the_page(link, &table.stdout)
    }

    /// Shows the report that stands on the page, which has to be the one that the command line has printed.
    fn on_the_page(&self, link: &str, printed: &str) -> Result<()> {
        println!("{link}");
        let report = printed.lines().last().context("the plan has no report")?;
        // A dash stands for what is not there, where a page can show one.
        let cells = report.split_whitespace().map(|cell| if cell == "-" { "–" } else { cell });
        let report = cells.collect::<Vec<_>>().join(" ");
        let page = text(&fetch(link)?);
        ensure!(page.contains(&report), "{link} has no {report:?}: {page}");
        println!("  {report}");
        Ok(())
    }

    /// A command of ours, shown as the reader would type it, with what it prints.
    fn client(&self, line: &str) -> Result<String> {
        Ok(self.output(line)?.stdout)
    }

    /// The same with what it says besides.
    fn output(&self, line: &str) -> Result<Output> {
        println!("$ loadmaster {line}");
        let output = self.slurm.run("loadmaster", &line.split_whitespace().collect::<Vec<_>>());
        print!("{}", output.stdout);
        if output.code != 0 {
            bail!("`loadmaster {line}` failed:\n{}", output.stderr);
        }
        Ok(output)
    }
}

fn step(title: &str) {
    println!("\n{title}");
}

/// A Python that has torch, in place of the frameworks'.
const PYTHON: &str = "LOADMASTER_TORCH_PYTHON";

/// A Python that has torch: the one that the environment names, or the frameworks'.
fn python() -> Result<PathBuf> {
    if let Some(named) = std::env::var_os(PYTHON) {
        let named = PathBuf::from(named);
        let tried = Output::of(Command::new(&named).args(["-c", "import torch; print(torch.__version__)"]));
        if tried.code != 0 {
            bail!("{PYTHON} is {}, which cannot import torch: {}", named.display(), tried.stderr.trim());
        }
        return Ok(named);
    }
    let install = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/launchers/install.sh"));
    let store = Output::of(Command::new(install).arg("--path"));
    let store = PathBuf::from(store.stdout.trim());
    if !store.join("complete").exists() {
        bail!(
            "torch is not installed: tests/launchers/install.sh does it (6.6 GB), or {PYTHON} names a Python that has it"
        );
    }
    Ok(store.join("bin").join("python"))
}

/// What is at `http://HOST:PORT/PATH`.
fn fetch(url: &str) -> Result<String> {
    let after = url.strip_prefix("http://").with_context(|| format!("{url} is no address of a page"))?;
    let (host, path) = after.split_once('/').unwrap_or((after, ""));
    let mut stream = TcpStream::connect(host).with_context(|| format!("nobody serves {url}"))?;
    stream.set_read_timeout(Some(PATIENCE)).context("a socket takes a limit")?;
    // Of the old version: the answer ends with the connection, and comes in one piece.
    write!(stream, "GET /{path} HTTP/1.0\r\nhost: {host}\r\n\r\n").context("the request is not taken")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).with_context(|| format!("{url} is not answered"))?;
    let (head, body) = answer.split_once("\r\n\r\n").context("the answer has no head")?;
    let status = head.lines().next().unwrap_or_default();
    ensure!(status.split(' ').nth(1) == Some("200"), "{url} says {status}");
    Ok(body.to_owned())
}

/// A page without its marks, words apart by one space.
fn text(page: &str) -> String {
    let mut parts = page.split('<');
    let first = parts.next().unwrap_or_default();
    let rest = parts.map(|part| part.split_once('>').map_or("", |(_, text)| text));
    let text = std::iter::once(first).chain(rest).collect::<Vec<_>>().join(" ");
    let signs = [("&#60;", "<"), ("&#62;", ">"), ("&#34;", "\""), ("&#39;", "'"), ("&#38;", "&")];
    let text = signs.iter().fold(text, |text, (written, sign)| text.replace(written, sign));
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

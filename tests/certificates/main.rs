//! `make certificates`: answers of a planner held to every plan that there is.
//!
//! Small problems are drawn by lot and asked over the wire; for each, all plans are enumerated, priced and simulated by
//! code that shares nothing with the planner but the messages.
//!
//! | file | question |
//! |---|---|
//! | `lots`, `draw_scene`, `draw_question` | what is asked? |
//! | `scene`, `question`, `words` | how is it said in a request? |
//! | `asked`, `launchers` | what does it ask for, with all defaults filled in? |
//! | `places` | which devices may a pipeline go through, in which order? |
//! | `prices`, `simulate` | what does a stage need, how long does an iteration take? |
//! | `space` | which plans are there? |
//! | `truth` | which of them is best, and what lacks where none fits? |
//! | `judge`, `check` | is an answer legal, and true? |
//! | `ask`, `instance`, `tally`, `options` | whom is it asked, what is kept, what is told? |

mod ask;
mod asked;
mod check;
mod draw_question;
mod draw_scene;
mod instance;
mod judge;
mod launchers;
mod lots;
mod options;
mod places;
mod prices;
mod question;
mod scene;
mod simulate;
mod space;
mod tally;
mod truth;
mod words;

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Parser;
use loadmaster_tests::PlannerOptions;
use tonic::transport::Endpoint;

use ask::{Answer, Planner, Stored};
use check::{Class, Verdict, check};
use draw_question::Topic;
use instance::Instance;
use lots::Lots;
use options::Options;
use simulate::Transfers;
use tally::Tally;
use truth::{Terms, Truth};

/// Exit code of `--strict` when an answer is wrong.
const WRONG: u8 = 2;
/// Questions about one scene.
const QUESTIONS: u64 = 6;

fn main() -> ExitCode {
    let options = Options::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let result = runtime.map_err(anyhow::Error::from).and_then(|runtime| runtime.block_on(run(options)));
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("certificates: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(options: Options) -> Result<ExitCode> {
    // A planner of its own ends with this program.
    let own = match &options.address {
        Some(_) => None,
        None => {
            let start = || loadmaster_tests::Planner::start_with(PlannerOptions::default());
            Some(tokio::task::spawn_blocking(start).await?)
        }
    };
    let address = match (&options.address, &own) {
        (Some(address), _) => address.clone(),
        (None, Some(own)) => own.address().to_owned(),
        (None, None) => anyhow::bail!("there is no planner"),
    };
    let channel = Endpoint::from_shared(address)?.connect().await.context("the planner does not answer")?;
    let planner = Planner::new(channel);
    let code = match &options.replay {
        Some(path) => replay(&planner, &options, &Instance::read(path)?).await,
        None => ask_all(planner, options).await,
    };
    tokio::task::spawn_blocking(move || drop(own)).await?;
    code
}

fn terms(options: &Options) -> Terms {
    Terms { sharing: options.sharing(), transfers: Transfers::Beside, limit: options.most_plans }
}

/// One instance, told in full.
async fn replay(planner: &Planner, options: &Options, instance: &Instance) -> Result<ExitCode> {
    let terms = terms(options);
    let Instance { scene, question, .. } = instance;
    let stored = planner.store(scene).await?;
    println!("{}", serde_json::to_string(question)?);
    println!("{:?}", scene.fleet);
    let Ok(truth) = Truth::of(scene, question, terms) else {
        anyhow::bail!("there are more than {} plans: raise --most-plans", terms.limit)
    };
    println!("ours: {truth:#?}");
    match planner.ask(scene, &stored, question).await? {
        Answer::Plan(plan) => {
            for stage in &plan.stages {
                let config = stage.config.unwrap_or_default();
                let devices: Vec<String> =
                    stage.devices.iter().map(|device| format!("{}/{}", device.node, device.index)).collect();
                let peak = stage.predicted_peak.as_ref().map_or(0, |peak| peak.bytes);
                println!(
                    "answered: layers {}-{} data{} tensor{} on {}, peak {peak} of {}, {:?}",
                    config.first_layer,
                    config.last_layer,
                    config.data_degree,
                    config.tensor_degree,
                    devices.join(" "),
                    stage.capacity_bytes,
                    stage.seconds
                );
            }
            println!("answered: {:?}\nanswered: {:?}", plan.iteration, plan.certificate);
            let verdict = check(scene, question, &truth, &Answer::Plan(plan), terms);
            tell(&verdict)
        }
        Answer::Refused(refused) => {
            println!("answered: {:?} {} {}", refused.code, refused.reason, refused.message);
            println!("answered: {:?}", refused.metadata);
            tell(&check(scene, question, &truth, &Answer::Refused(refused), terms))
        }
    }
}

fn tell(verdict: &Verdict) -> Result<ExitCode> {
    if verdict.findings.is_empty() {
        println!("the answer is right");
        return Ok(ExitCode::SUCCESS);
    }
    for finding in &verdict.findings {
        println!("{}: {}", finding.class.name(), finding.what);
    }
    Ok(ExitCode::from(WRONG))
}

/// What all workers share.
struct Work {
    planner: Planner,
    options: Options,
    next: AtomicU64,
    tally: Mutex<Tally>,
    kept: Mutex<BTreeMap<Class, usize>>,
    began: Instant,
}

async fn ask_all(planner: Planner, options: Options) -> Result<ExitCode> {
    let folder = options.folder()?;
    let (jobs, strict) = (options.jobs(), options.strict);
    let work = Arc::new(Work {
        planner,
        options,
        next: AtomicU64::new(0),
        tally: Mutex::default(),
        kept: Mutex::default(),
        began: Instant::now(),
    });
    let workers: Vec<_> = (0..jobs).map(|_| tokio::spawn(one_after_another(Arc::clone(&work)))).collect();
    for worker in workers {
        worker.await??;
    }
    let tally = work.tally.lock().unwrap_or_else(PoisonError::into_inner);
    if std::io::stderr().is_terminal() {
        eprintln!();
    }
    println!("{}", tally.table());
    println!(
        "{} questions, {} plans looked at, {} questions passed over as too large, {:.0} s; seed {}",
        tally.asked(),
        tally.looked_at,
        tally.passed_over,
        work.began.elapsed().as_secs_f64(),
        work.options.seed
    );
    if tally.wrong() > 0 {
        println!("instances that failed are in {}: ask one again with --replay FILE", folder.display());
    }
    if tally.of_class(Class::Ours) > 0 {
        println!(
            "some plans are unknown to this program itself (`ours`): its enumeration is to be mended first"
        );
    }
    Ok(if strict && tally.wrong() > 0 { ExitCode::from(WRONG) } else { ExitCode::SUCCESS })
}

/// Scene after scene until enough was asked.
async fn one_after_another(work: Arc<Work>) -> Result<()> {
    loop {
        let index = work.next.fetch_add(1, Ordering::Relaxed);
        let asked = work.tally.lock().unwrap_or_else(PoisonError::into_inner).asked();
        if asked >= work.options.instances {
            return Ok(());
        }
        one_scene(&work, index).await?;
        progress(&work);
    }
}

async fn one_scene(work: &Work, index: u64) -> Result<()> {
    let seed = work.options.seed;
    let mut lots = Lots::new(seed.wrapping_mul(1_000_003).wrapping_add(index));
    let scene = draw_scene::scene(&mut lots, &format!("{seed}-{index}"));
    let stored = work.planner.store(&scene).await?;
    for number in 0..QUESTIONS {
        let mut lots =
            Lots::new(seed.wrapping_mul(1_000_003).wrapping_add(index).wrapping_mul(64) + number + 1);
        let topic = match work.options.only.as_slice() {
            [] => Topic::draw(&mut lots),
            only => lots.one(only),
        };
        let terms = terms(&work.options);
        let Some(question) = draw_question::question(&mut lots, &scene, topic, terms) else { continue };
        let mut scene = scene.clone();
        scene.id = format!("{seed}-{index}-{number}");
        let instance = Instance { topic, scene, question, wrong: Vec::new() };
        one_question(work, &stored, instance).await?;
    }
    Ok(())
}

async fn one_question(work: &Work, stored: &Stored, instance: Instance) -> Result<()> {
    let terms = terms(&work.options);
    let Instance { scene, question, topic, .. } = &instance;
    let Ok(truth) = Truth::of(scene, question, terms) else {
        work.tally.lock().unwrap_or_else(PoisonError::into_inner).passed_over += 1;
        return Ok(());
    };
    let answer = work.planner.ask(scene, stored, question).await?;
    let verdict = check(scene, question, &truth, &answer, terms);
    {
        let mut tally = work.tally.lock().unwrap_or_else(PoisonError::into_inner);
        tally.add(*topic, &verdict);
        tally.looked_at += truth.plans;
    }
    for finding in &verdict.findings {
        let is_kept = {
            let mut kept = work.kept.lock().unwrap_or_else(PoisonError::into_inner);
            let count = kept.entry(finding.class).or_default();
            *count += 1;
            *count <= work.options.keep
        };
        if is_kept {
            instance.write(&work.options.folder()?, finding.class, &verdict.findings)?;
        }
    }
    Ok(())
}

fn progress(work: &Work) {
    let tally = work.tally.lock().unwrap_or_else(PoisonError::into_inner);
    if std::io::stderr().is_terminal() {
        let seconds = work.began.elapsed().as_secs_f64();
        eprint!(
            "\r{} of {} questions, {} wrong, {:.0} a second ",
            tally.asked(),
            work.options.instances,
            tally.wrong(),
            tally.asked() as f64 / seconds
        );
    }
}

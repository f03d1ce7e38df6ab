//! `make certificates`: answers of a planner held to every plan that there is.
//!
//! Small problems are drawn by lot and asked over the wire; for each, the oracle enumerates and simulates all plans, at prices by
//! code of this program: neither shares anything with the planner but the messages.
//!
//! | file | question |
//! |---|---|
//! | `draw_scene`, `draw_question` | what is asked? |
//! | `scene`, `question` | how is it said in a request? |
//! | `asked` | what does it ask for, with all defaults filled in? |
//! | `places` | which devices are there? |
//! | `prices` | what does a stage need and take? |
//! | `truth` | which of all plans is best, and what lacks where none fits? |
//! | `judge`, `check`, `followup` | is an answer legal, and true? |
//! | `ask`, `options` | whom is it asked? |
//! | `instance`, `tally` | what is kept of what was wrong, and what is told? |

mod ask;
mod asked;
mod check;
mod draw_question;
mod draw_scene;
mod followup;
mod instance;
mod judge;
mod options;
mod places;
mod prices;
mod question;
mod scene;
mod tally;
#[cfg(test)]
mod tests;
mod truth;

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result};
use ask::{Answer, Planner, Stored};
use check::{Class, Finding, Verdict, check};
use draw_question::Topic;
use instance::Instance;
use loadmaster_oracle::Truth;
use loadmaster_tests::{AnyPlanner, Sampler};
pub(crate) use options::Options;
use question::Question;
use scene::Scene;
use tally::Tally;
use tonic::transport::Endpoint;
use truth::{Terms, truth as truth_of};

use crate::output::word;

/// Questions about one scene.
const QUESTIONS: u64 = 8;
/// Seconds between two lines of progress where no terminal shows them.
const QUIET: f64 = 30.0;
/// Smaller instances that are tried for one that failed.
const MOST_SHRUNK: usize = 120;

/// Asks what is wanted; whether all answers are right.
pub(crate) async fn run(options: Options) -> Result<bool> {
    let own = AnyPlanner::at(options.address.as_deref());
    let endpoint = Endpoint::from_shared(own.address().to_owned())?;
    let planner = Planner::new(endpoint.connect().await.context("the planner does not answer")?);
    match &options.replay {
        Some(path) => replay(&planner, &options, &Instance::read(path)?).await,
        None => ask_all(planner, options).await,
    }
}

/// The lots of a seed, far from those of the next one.
fn sampler(seed: u64) -> Sampler {
    let mut lots = Sampler::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x5851_F42D_4C95_7F2D);
    lots.below(1);
    lots
}

fn terms(options: &Options) -> Terms {
    Terms { sharing: options.sharing(), limit: options.most_plans }
}

/// One instance, told in full.
async fn replay(planner: &Planner, options: &Options, instance: &Instance) -> Result<bool> {
    let terms = terms(options);
    let Instance { scene, question, .. } = instance;
    let stored = planner.store(scene).await?;
    println!("{}", serde_json::to_string(question)?);
    println!("{:?}", scene.fleet);
    let Ok(truth) = truth_of(scene, question, terms) else {
        anyhow::bail!("there are more than {} plans: raise --most-plans", terms.limit)
    };
    println!("ours: {truth:#?}");
    match planner.ask(scene, &stored, question).await? {
        Answer::Plan(plan) => {
            for stage in &plan.stages {
                let config = stage.config.unwrap_or_default();
                let devices: Vec<String> =
                    stage.placed().map(|device| format!("{}/{}", device.node, device.index)).collect();
                let peak = stage.predicted_peak.as_ref().map_or(0, |peak| peak.bytes);
                println!(
                    "answered: layers {}-{} data{} tensor{} on {}, peak {peak} of {}, {:?}",
                    config.first_layer,
                    config.last_layer,
                    config.data_parallel_size,
                    config.tensor_parallel_size,
                    devices.join(" "),
                    stage.capacity_bytes,
                    stage.seconds
                );
            }
            println!("answered: {:?}\nanswered: {:?}", plan.iteration, plan.certificate);
        }
        Answer::Refused(refused) => {
            println!("answered: {:?} {} {}", refused.code, refused.reason, refused.message);
            println!("answered: {:?}", refused.metadata);
        }
    }
    tell(&verdict(planner, &stored, instance, &truth, terms).await?)
}

fn tell(verdict: &Verdict) -> Result<bool> {
    if verdict.findings.is_empty() {
        println!("the answer is right");
        return Ok(true);
    }
    for finding in &verdict.findings {
        println!("{}: {}", word(&finding.class), finding.what);
    }
    Ok(false)
}

/// What all workers share.
struct Work {
    planner: Planner,
    options: Options,
    next: AtomicU64,
    tally: Mutex<Tally>,
    kept: Mutex<BTreeMap<Class, usize>>,
    began: Instant,
    /// Lines of progress that were due.
    told: AtomicU64,
}

async fn ask_all(planner: Planner, options: Options) -> Result<bool> {
    let folder = options.folder()?;
    let jobs = options.jobs();
    let work = Arc::new(Work {
        planner,
        options,
        next: AtomicU64::new(0),
        tally: Mutex::default(),
        kept: Mutex::default(),
        began: Instant::now(),
        told: AtomicU64::new(0),
    });
    let workers: Vec<_> = (0..jobs).map(|_| tokio::spawn(one_after_another(Arc::clone(&work)))).collect();
    for worker in workers {
        worker.await??;
    }
    let tally = lock(&work.tally);
    if std::io::stderr().is_terminal() {
        eprintln!();
    }
    println!("{}", tally.table());
    println!(
        "{} questions, {} plans looked at, {} questions passed over as too large, {} remedies tried and {} not read, \
         {:.0} s; seed {}",
        tally.asked(),
        tally.looked_at,
        tally.passed_over,
        tally.remedies,
        tally.unread_remedies,
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
    Ok(tally.wrong() == 0)
}

/// Scene after scene until enough was asked.
async fn one_after_another(work: Arc<Work>) -> Result<()> {
    loop {
        let index = work.next.fetch_add(1, Ordering::Relaxed);
        let asked = lock(&work.tally).asked();
        if asked >= work.options.instances {
            return Ok(());
        }
        Box::pin(one_scene(&work, index)).await?;
        progress(&work);
    }
}

async fn one_scene(work: &Work, index: u64) -> Result<()> {
    let seed = work.options.seed;
    let mut lots = sampler(seed.wrapping_mul(1_000_003).wrapping_add(index));
    let scene = draw_scene::scene(&mut lots, &format!("{seed}-{index}"));
    let stored = work.planner.store(&scene).await?;
    for number in 0..QUESTIONS {
        let mut lots =
            sampler(seed.wrapping_mul(1_000_003).wrapping_add(index).wrapping_mul(64) + number + 1);
        let topic = match work.options.only.as_slice() {
            [] => Topic::draw(&mut lots),
            only => lots.one(only),
        };
        let terms = terms(&work.options);
        let Some(question) = draw_question::question(&mut lots, &scene, topic, terms) else { continue };
        let mut scene = scene.clone();
        let rivals: Vec<Scene> = match topic {
            Topic::Models if scene.kinds.len() > 1 => continue,
            Topic::Models => (0..lots.whole(1, 3))
                .map(|rival| {
                    draw_scene::rival(&mut lots, &scene, &format!("{seed}-{index}-{number}-{rival}"))
                })
                .collect(),
            _ => Vec::new(),
        };
        scene.id = format!("{seed}-{index}-{number}");
        let Ok(truth) = truth_of(&scene, &question, terms) else {
            lock(&work.tally).passed_over += 1;
            continue;
        };
        // What has no plan at all is asked now and then; what does not fit, more often.
        let is_dull = (truth.plans == 0 && lots.percent(85)) || (truth.fitting == 0 && lots.percent(50));
        if !is_dull {
            let instance = Instance { topic, scene, question, rivals, wrong: Vec::new() };
            one_question(work, &stored, &instance, &truth).await?;
        }
    }
    Ok(())
}

async fn one_question(work: &Work, stored: &Stored, instance: &Instance, truth: &Truth) -> Result<()> {
    let terms = terms(&work.options);
    let verdict = verdict(&work.planner, stored, instance, truth, terms).await?;
    {
        let mut tally = lock(&work.tally);
        tally.add(instance.topic, &instance.scene.fleet, &verdict);
        tally.looked_at += truth.plans;
    }
    for finding in &verdict.findings {
        let is_kept = {
            let mut kept = lock(&work.kept);
            let count = kept.entry(finding.class).or_default();
            *count += 1;
            *count <= work.options.keep
        };
        if is_kept {
            let folder = work.options.folder()?;
            if work.options.no_shrink {
                instance.write(&folder, finding.class, &verdict.findings)?;
            } else {
                let (small, findings) = shrunk(work, instance, &verdict, finding.class).await?;
                small.write(&folder, finding.class, &findings)?;
            }
        }
    }
    Ok(())
}

/// Everything that is wrong with the answers to a question: to itself, to what is said to help where it has none, and
/// with other deadlines.
async fn verdict(
    planner: &Planner,
    stored: &Stored,
    instance: &Instance,
    truth: &Truth,
    terms: Terms,
) -> Result<Verdict> {
    let Instance { scene, question, topic, .. } = instance;
    if !instance.rivals.is_empty() {
        return followup::of_models(planner, stored, instance, truth, terms).await;
    }
    let answer = planner.ask(scene, stored, question).await?;
    let mut verdict = check(scene, question, truth, &answer, terms);
    if let Answer::Refused(refused) = &answer
        && !truth.is_borderline
    {
        let request = question.request(scene, &stored.profiles, &stored.cluster);
        for remedy in followup::remedies(scene, &request, refused)? {
            let followed = match remedy.follows {
                Some(followup::Followed::Request(request)) => planner.call(*request).await?,
                Some(followup::Followed::Cluster(larger)) => {
                    let stored = planner.store(&larger).await?;
                    planner.ask(&larger, &stored, question).await?
                }
                None => {
                    verdict.unread_remedies += 1;
                    continue;
                }
            };
            verdict.remedies += 1;
            if let Answer::Refused(again) = followed {
                let what = format!(
                    "`{}`: {}; it was told by {}",
                    remedy.description, again.message, refused.message
                );
                verdict.findings.push(Finding { class: Class::Remedy, what });
            }
        }
    }
    if *topic == Topic::Timelines {
        verdict.findings.extend(followup::of_timelines(planner, stored, instance, terms).await?);
    }
    if *topic == Topic::Deadlines {
        let mut answers = vec![answer];
        for seconds in [0.001, 5.0, 50.0] {
            let other = Question { search_seconds: Some(seconds), ..question.clone() };
            let answer = planner.ask(scene, stored, &other).await?;
            verdict.findings.extend(check(scene, &other, truth, &answer, terms).findings);
            answers.push(answer);
        }
        verdict.findings.extend(check::check_deadlines(&answers));
    }
    Ok(verdict)
}

/// A smaller instance that is answered wrongly in the same way, and what is wrong with it.
async fn shrunk(
    work: &Work,
    instance: &Instance,
    verdict_of_it: &Verdict,
    class: Class,
) -> Result<(Instance, Vec<Finding>)> {
    let terms = terms(&work.options);
    let (mut small, mut findings) = (instance.clone(), verdict_of_it.findings.clone());
    let mut left = MOST_SHRUNK;
    'again: loop {
        for candidate in instance::smaller(&small) {
            if left == 0 {
                break 'again;
            }
            left -= 1;
            let Ok(truth) = truth_of(&candidate.scene, &candidate.question, terms) else { continue };
            let Ok(stored) = work.planner.store(&candidate.scene).await else { continue };
            let other = verdict(&work.planner, &stored, &candidate, &truth, terms).await?;
            // Answers to requests that are wrong themselves say nothing.
            let is_request =
                class == Class::Refused || other.findings.iter().all(|of| of.class != Class::Refused);
            if is_request && other.findings.iter().any(|finding| finding.class == class) {
                (small, findings) = (candidate, other.findings);
                continue 'again;
            }
        }
        break;
    }
    Ok((small, findings))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn progress(work: &Work) {
    let tally = lock(&work.tally);
    let seconds = work.began.elapsed().as_secs_f64();
    let line = format!(
        "{} of {} questions, {} wrong, {:.0} a second",
        tally.asked(),
        work.options.instances,
        tally.wrong(),
        tally.asked() as f64 / seconds
    );
    if std::io::stderr().is_terminal() {
        eprint!("\r{line} ");
    } else if work.told.fetch_max((seconds / QUIET) as u64, Ordering::Relaxed) < (seconds / QUIET) as u64 {
        eprintln!("{line}");
    }
}

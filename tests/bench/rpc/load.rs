//! Calls, one after the other and many at once, and what they took as lines.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use loadmaster_proto::wire::v1;
use loadmaster_proto::wire::v1::plan_service_client::PlanServiceClient;
use tonic::transport::Channel;

use crate::rpc::call::{self, Call};
use crate::stats::quantile;
use crate::table::{seconds, verdict};

/// What calls took.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    /// Seconds of each that was answered, in no order but for the first.
    seconds: Vec<f64>,
    /// Seconds of all of them together.
    took: f64,
    /// How often which error came instead of an answer.
    errors: BTreeMap<String, u64>,
}

impl Measured {
    /// Not a number where nothing was answered.
    pub(crate) fn percentile(&self, percent: f64) -> f64 {
        let mut sorted = self.seconds.clone();
        sorted.sort_by(f64::total_cmp);
        quantile(&sorted, percent / 100.0)
    }

    pub(crate) fn first(&self) -> f64 {
        self.seconds.first().copied().unwrap_or(f64::NAN)
    }

    pub(crate) fn per_second(&self) -> f64 {
        self.seconds.len() as f64 / self.took.max(f64::MIN_POSITIVE)
    }

    /// What came instead of answers; empty where all were answered.
    pub(crate) fn failures(&self) -> String {
        let listed = self.errors.iter().map(|(error, count)| format!(" {count} × {error}"));
        listed.collect()
    }

    fn add(&mut self, seconds: f64, error: Option<String>) {
        match error {
            None => self.seconds.push(seconds),
            Some(error) => *self.errors.entry(error).or_default() += 1,
        }
    }
}

/// The same call from so many clients for a while.
pub(crate) async fn under(channels: &[Channel], call: &Call, clients: usize, duration: Duration) -> Measured {
    // What connections and caches cost the first time is not what is asked.
    if let Some(channel) = channels.first() {
        for _ in 0..5 {
            let _ = call.send(channel, call::fresh()).await;
        }
    }
    let began = Instant::now();
    let tasks = (0..clients).zip(channels.iter().cycle()).map(|(_, channel)| {
        let (channel, call) = (channel.clone(), call.clone());
        tokio::spawn(async move {
            let mut measured = Measured::default();
            while began.elapsed() < duration {
                let sent = Instant::now();
                let error = call.send(&channel, call::fresh()).await.err();
                let is_refused = error.is_some();
                measured.add(sent.elapsed().as_secs_f64(), error.map(|status| said(&status)));
                if is_refused {
                    // Who asks again at once measures how fast a planner refuses.
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
            measured
        })
    });
    let mut all = Measured::default();
    for task in tasks.collect::<Vec<_>>() {
        let Ok(of_task) = task.await else { continue };
        all.seconds.extend(of_task.seconds);
        for (error, count) in of_task.errors {
            *all.errors.entry(error).or_default() += count;
        }
    }
    all.took = began.elapsed().as_secs_f64();
    all
}

/// Searches that were not asked before, one after the other, and what the last one found.
pub(crate) async fn once(
    channel: &Channel,
    request: &v1::RecommendPlanRequest,
    runs: u16,
) -> (Measured, String) {
    let mut client = PlanServiceClient::new(channel.clone());
    let (mut measured, mut found) = (Measured::default(), String::new());
    for _ in 0..runs {
        // An exact search draws no lots: the same problem, and another request.
        let request = v1::RecommendPlanRequest { search_seed: call::fresh() as i64, ..request.clone() };
        let sent = Instant::now();
        let answer = client.recommend_plan(request).await;
        let seconds = sent.elapsed().as_secs_f64();
        measured.took += seconds;
        match answer {
            Ok(plan) => {
                found = call::found(plan.get_ref());
                measured.add(seconds, None);
            }
            Err(status) => measured.add(seconds, Some(said(&status))),
        }
    }
    (measured, found)
}

fn said(status: &tonic::Status) -> String {
    let message: String = status.message().chars().take(120).collect();
    format!("{:?}: {message}", status.code())
}

/// What is to be reached.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Goal {
    /// Most seconds of the median.
    Median(f64),
    /// Most seconds of the slowest hundredth.
    Slow(f64),
    /// The same, for a search that may also say what is open.
    MedianOrOpen(f64),
    /// Fewest calls a second.
    PerSecond(f64),
}

/// One call from so many clients.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) clients: usize,
    pub(crate) measured: Measured,
    pub(crate) goal: Option<Goal>,
    /// What was answered, for people.
    pub(crate) note: String,
}

pub(crate) fn head_of_calls() {
    println!(
        "{:<36} {:>7} {:>10} {:>10} {:>10} {:>9}",
        "call", "clients", "p50", "p99", "calls/s", "× empty"
    );
}

pub(crate) fn head_of_searches() {
    println!("{:<36} {:>7} {:>10} {:>10}", "search, layers x devices", "first", "p50", "p99");
}

/// Whether the most calls a second are enough.
pub(crate) fn throughput(most: f64, least: f64) -> String {
    format!("goal {least:.0} calls/s: {}, {most:.0}", verdict(most >= least))
}

impl Row {
    pub(crate) fn print_call(&self, empty: Option<&Measured>) {
        let Self { name, clients, measured, note, .. } = self;
        let ratio = empty.map_or_else(String::new, |empty| {
            format!("{:.1}", measured.percentile(50.0) / empty.percentile(50.0))
        });
        println!(
            "{name:<36} {clients:>7} {:>10} {:>10} {:>10.0} {ratio:>9} {} {note}{}",
            seconds(measured.percentile(50.0)),
            seconds(measured.percentile(99.0)),
            measured.per_second(),
            self.verdict(),
            measured.failures()
        );
    }

    pub(crate) fn print_search(&self) {
        let Self { name, measured, note, .. } = self;
        println!(
            "{name:<36} {:>7} {:>10} {:>10} {:<24} {note}{}",
            seconds(measured.first()),
            seconds(measured.percentile(50.0)),
            seconds(measured.percentile(99.0)),
            self.verdict(),
            measured.failures()
        );
    }

    fn is_missed(&self) -> bool {
        let slower = |most: f64| self.measured.percentile(50.0) > most;
        match self.goal {
            Some(Goal::Median(most)) => slower(most),
            Some(Goal::Slow(most)) => self.measured.percentile(99.0) > most,
            Some(Goal::MedianOrOpen(most)) => slower(most) && !self.note.contains("open"),
            Some(Goal::PerSecond(_)) | None => false,
        }
    }

    fn verdict(&self) -> String {
        let verdict = verdict(!self.is_missed());
        match self.goal {
            Some(Goal::Median(most) | Goal::MedianOrOpen(most)) => {
                format!("goal {}: {verdict}", seconds(most))
            }
            Some(Goal::Slow(most)) => format!("goal p99 {}: {verdict}", seconds(most)),
            Some(Goal::PerSecond(_)) | None => String::new(),
        }
    }

    /// The row in a few words, if its goal is missed.
    pub(crate) fn missed(&self) -> Option<String> {
        let took = seconds(self.measured.percentile(50.0));
        self.is_missed().then(|| format!("{}, {}, took {took}", self.name, self.verdict()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a hundred calls the 99th percentile is the second slowest, and of none there is none.
    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        let measured = Measured { seconds: (1..=100).rev().map(f64::from).collect(), ..Measured::default() };
        assert_eq!([50.0, 99.0, 100.0].map(|percent| measured.percentile(percent)), [50.0, 99.0, 100.0]);
        assert!(Measured::default().percentile(50.0).is_nan());
    }
}

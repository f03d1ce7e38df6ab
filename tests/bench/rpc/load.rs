//! Calls, one after the other and many at once, and how long they took.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use loadmaster_proto::wire::v1;
use loadmaster_proto::wire::v1::plan_service_client::PlanServiceClient;
use tonic::transport::Channel;

use crate::report::Goal;
use crate::rpc::call::{self, Call};
use crate::stats::quantile;
use crate::table::seconds;

/// Seconds of calls.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    /// Of each that was answered, in no order but for the first.
    seconds: Vec<f64>,
    /// Of all of them together.
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

    /// The errors that came instead of answers; empty where all were answered.
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
                measured.add(sent.elapsed().as_secs_f64(), error.map(|status| text(&status)));
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
        let Ok(own) = task.await else { continue };
        all.seconds.extend(own.seconds);
        for (error, count) in own.errors {
            *all.errors.entry(error).or_default() += count;
        }
    }
    all.took = began.elapsed().as_secs_f64();
    all
}

/// Searches that were not asked before, one after the other, and how good the last answer says that it is.
pub(crate) async fn once(
    channel: &Channel,
    request: &v1::RecommendPlanRequest,
    runs: u16,
) -> (Measured, String) {
    let mut client = PlanServiceClient::new(channel.clone());
    let (mut measured, mut found) = (Measured::default(), String::new());
    for _ in 0..runs {
        // An exact search draws no lots: the same problem, and another request.
        let request = loadmaster_proto::changed!(request.clone(), search.seed = call::fresh() as i64);
        let sent = Instant::now();
        let answer = client.recommend_plan(request).await;
        let seconds = sent.elapsed().as_secs_f64();
        measured.took += seconds;
        match answer {
            Ok(response) => match response.into_inner().into_plan() {
                Some(plan) => {
                    found = call::found(&plan);
                    measured.add(seconds, None);
                }
                None => measured.add(seconds, Some("no plan fits".to_owned())),
            },
            Err(status) => measured.add(seconds, Some(text(&status))),
        }
    }
    (measured, found)
}

fn text(status: &tonic::Status) -> String {
    let message: String = status.message().chars().take(120).collect();
    format!("{:?}: {message}", status.code())
}

/// Seconds that calls may take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Limit {
    /// Most seconds of the median.
    Median(f64),
    /// Most seconds of the slowest hundredth.
    Slow(f64),
    /// The same as the median's, for a search that may also say what is open.
    MedianOrOpen(f64),
}

impl Limit {
    /// Whether these calls keep it, the last of which found so much.
    pub(crate) fn goal(self, name: &str, measured: &Measured, found: &str) -> Goal {
        let (what, most, percent) = match self {
            Self::Median(most) | Self::MedianOrOpen(most) => ("p50", most, 50.0),
            Self::Slow(most) => ("p99", most, 99.0),
        };
        let goal =
            Goal::at_most(format!("{name}: {what}"), most, Some(measured.percentile(percent)), seconds);
        match self {
            Self::MedianOrOpen(_) if found.contains("open") => goal.decided(Some(true)),
            _ => goal,
        }
    }
}

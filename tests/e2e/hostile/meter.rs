//! What others notice meanwhile.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use loadmaster_proto::wire::v1;
use loadmaster_tests::{Planner, call};
use tonic::transport::{Channel, Endpoint};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

/// Fewest rounds of calls that tell anything, before an attack and during it.
const ROUNDS: usize = 100;

/// Seconds of calls of each kind.
type Waits = BTreeMap<&'static str, Vec<Duration>>;

/// What others call again and again.
#[derive(Debug, Clone, Default)]
pub(crate) struct Called {
    /// A search, each time with another seed so that no answer is known.
    pub(crate) search: Option<v1::RecommendPlanRequest>,
    /// A stored plan.
    pub(crate) plan: Option<String>,
    /// Their own address, where what each address may have is attacked.
    pub(crate) from: Option<IpAddr>,
}

/// Another caller, with a connection and a thread of its own, who calls for health and for something small again and
/// again: first without an attack, then during it. `make bench-hostile` prints how long both take.
pub(crate) struct Others {
    is_over: Arc<AtomicBool>,
    caller: JoinHandle<[Waits; 2]>,
}

impl Others {
    /// Begins to call for health and a list. What is to be compared has been called when this returns: an attack may begin.
    pub(crate) fn of(planner: &Planner) -> Self {
        Self::calling(planner, Called::default())
    }

    /// The same with further calls.
    pub(crate) fn calling(planner: &Planner, called: Called) -> Self {
        let (is_over, address) = (Arc::new(AtomicBool::new(false)), planner.address().to_owned());
        let until = Arc::clone(&is_over);
        let (begin, begun) = std::sync::mpsc::channel();
        let caller = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let channel = Endpoint::from_shared(address)
                    .expect("an address")
                    .local_address(called.from)
                    .connect()
                    .await
                    .expect("a connection");
                let before = rounds(&channel, &called, &AtomicBool::new(true)).await;
                begin.send(()).expect("somebody waits for that");
                [before, rounds(&channel, &called, &until).await]
            })
        });
        begun.recv().expect("others are served before an attack");
        Self { is_over, caller }
    }

    /// Ends it after so many rounds as tell something, and prints how long they took.
    ///
    /// # Panics
    /// When one of the calls failed.
    pub(crate) async fn were_served(self, meanwhile: &str) {
        self.is_over.store(true, Ordering::Relaxed);
        let waited = tokio::task::spawn_blocking(move || self.caller.join()).await.expect("no panic of ours");
        let [mut before, during] = waited.unwrap_or_else(|_| panic!("others were not served: {meanwhile}"));
        for (kind, waits) in during {
            let [usual, own] = [before.remove(kind).unwrap_or_default(), waits].map(Sorted::of);
            eprintln!(
                "{meanwhile}: {kind} took {:.1} ms at most, p99 {:.1} ms and median {:.1} ms of {} calls; p99 before {:.1} ms, \
                 ratio {:.1}",
                own.at(1.0),
                own.at(0.99),
                own.at(0.5),
                own.0.len(),
                usual.at(0.99),
                own.at(0.99) / usual.at(0.99),
            );
        }
    }
}

/// Milliseconds, ascending.
struct Sorted(Vec<f64>);

impl Sorted {
    fn of(waits: Vec<Duration>) -> Self {
        let mut milliseconds: Vec<f64> = waits.into_iter().map(|wait| wait.as_secs_f64() * 1e3).collect();
        milliseconds.sort_by(f64::total_cmp);
        Self(milliseconds)
    }

    /// What this share of the calls takes at most.
    fn at(&self, share: f64) -> f64 {
        let last = (self.0.len() as f64 * share).ceil() as usize;
        self.0.get(last.saturating_sub(1)).copied().unwrap_or(f64::NAN)
    }
}

/// Calls until it is over, and some times more. One after the other: no call waits for another.
async fn rounds(channel: &Channel, called: &Called, is_over: &AtomicBool) -> Waits {
    let mut health = HealthClient::new(channel.clone());
    let (mut waits, mut left) = (Waits::new(), ROUNDS);
    let mut note = |kind, begin: Instant| waits.entry(kind).or_default().push(begin.elapsed());
    while left > 0 {
        if is_over.load(Ordering::Relaxed) {
            left -= 1;
        }
        let begin = Instant::now();
        health.check(HealthCheckRequest::default()).await.unwrap_or_else(|status| panic!("health: {status}"));
        note("health", begin);
        let begin = Instant::now();
        let listed = call(channel, v1::ListModelsRequest { page_size: 1, ..Default::default() }).await;
        listed.unwrap_or_else(|status| panic!("a small call: {status}"));
        note("a small list", begin);
        if let Some(name) = &called.plan {
            let begin = Instant::now();
            let plan = call(channel, v1::GetPlanRequest { name: name.clone(), ..Default::default() }).await;
            plan.unwrap_or_else(|status| panic!("a plan: {status}"));
            note("a plan", begin);
        }
        if let Some(search) = &called.search {
            let begin = Instant::now();
            let search = loadmaster_proto::changed!(search.clone(), search.seed = seed(begin));
            call(channel, search).await.unwrap_or_else(|status| panic!("a small search: {status}"));
            note("a small search", begin);
        }
        // Who calls without a pause is busy himself.
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    waits
}

/// Another number at any other time.
fn seed(at: Instant) -> i64 {
    use std::hash::{BuildHasher, RandomState};
    (RandomState::new().hash_one(at) >> 1).cast_signed()
}

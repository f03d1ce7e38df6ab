//! What others notice meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use loadmaster_proto::wire::v1;
use loadmaster_proto::wire::v1::model_service_client::ModelServiceClient;
use loadmaster_tests::Planner;
use tonic::transport::Endpoint;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

/// Fewest rounds of calls that tell anything.
const ROUNDS: usize = 50;

/// Another caller, with a connection and a thread of its own, who asks for health and for something small again and
/// again. `make bench-hostile` prints how long that takes.
pub(crate) struct Others {
    is_over: Arc<AtomicBool>,
    caller: JoinHandle<Vec<Duration>>,
}

impl Others {
    /// Begins to ask.
    pub(crate) fn of(planner: &Planner) -> Self {
        let (is_over, address) = (Arc::new(AtomicBool::new(false)), planner.address().to_owned());
        let until = Arc::clone(&is_over);
        let caller = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(ask(address, &until))
        });
        Self { is_over, caller }
    }

    /// Ends it after so many rounds as tell something, and prints how long they took.
    ///
    /// # Panics
    /// When one of the calls failed.
    pub(crate) async fn were_served(self, meanwhile: &str) {
        self.is_over.store(true, Ordering::Relaxed);
        let waited = tokio::task::spawn_blocking(move || self.caller.join()).await.expect("no panic of ours");
        let mut rounds = waited.unwrap_or_else(|_| panic!("others were not served: {meanwhile}"));
        rounds.sort_unstable();
        let milliseconds = |round: Duration| round.as_secs_f64() * 1e3;
        eprintln!(
            "{meanwhile}: health and a small call took {:.1} ms at most, {:.1} ms in the median of {}",
            milliseconds(rounds[rounds.len() - 1]),
            milliseconds(rounds[rounds.len() / 2]),
            rounds.len()
        );
    }
}

/// Asks until it is over, and a few times more. Asked one after the other: no round waits for another.
async fn ask(address: String, is_over: &AtomicBool) -> Vec<Duration> {
    let channel = Endpoint::from_shared(address).expect("an address").connect().await.expect("a connection");
    let mut health = HealthClient::new(channel.clone());
    let mut models = ModelServiceClient::new(channel);
    let (mut rounds, mut left) = (Vec::new(), ROUNDS);
    while left > 0 {
        if is_over.load(Ordering::Relaxed) {
            left -= 1;
        }
        let begin = Instant::now();
        health.check(HealthCheckRequest::default()).await.unwrap_or_else(|status| panic!("health: {status}"));
        let listed = models.list_models(v1::ListModelsRequest { page_size: 1, ..Default::default() }).await;
        listed.unwrap_or_else(|status| panic!("a small call: {status}"));
        rounds.push(begin.elapsed());
        // Who asks without a pause is busy himself.
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    rounds
}

/// Others who ask now, while what was begun goes on.
///
/// # Panics
/// When one of their calls fails.
pub(crate) async fn others_are_served(planner: &Planner, meanwhile: &str) {
    Others::of(planner).were_served(meanwhile).await;
}

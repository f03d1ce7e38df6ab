//! How long lists of plans take with a history of 100,000 of them, beside an empty one:
//! `cargo run --release -p loadmaster --example history`.
//!
//! The store is asked, on a Postgres of its own, for pages of 50 rows; each question is asked 300 times. Printed are the median
//! and the 99th percentile in milliseconds, and both as multiples of those of the same question to an empty history.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "what fails here ends it")]

#[expect(dead_code, reason = "made for the tests of the store, which use all of it")]
#[path = "../tests/store/support/mod.rs"]
mod support;

use std::time::Instant;

use loadmaster::store::records::PageRequest;
use loadmaster::store::{Store, fields};
use loadmaster_filter::Query;
use support::samples::plan;
use support::store;

const PLANS: i32 = 100_000;
const CALLS: usize = 300;

/// What is asked, and in which order.
const QUESTIONS: [(&str, &str); 13] = [
    ("", ""),
    ("profile = p", ""),
    ("framework = megatron AND predicted_seconds < 1.5s", "predicted_seconds desc"),
    ("predicted_peak < 2GiB", "predicted_peak"),
    ("objective = pareto OR objective = min-cost", "create_time"),
    ("", "predicted_seconds desc, create_time"),
    ("NOT framework:*", "predicted_seconds"),
    ("seconds_error > 0.5 OR peak_error > 0.5", ""),
    ("measured_seconds > 0.5", "measured_seconds desc"),
    ("report_error > 0.5", "reported_seconds desc"),
    ("solver:17 AND create_time > 2026-01-01", "solver, predicted_seconds"),
    ("solver = nobody", ""),
    ("name = none OR device_count > 5000", "hourly_price desc, micro_batch_size, predicted_seconds desc"),
];

/// Plans that differ in what lists are asked for, made of one.
const FILL: &str = "
INSERT INTO plans (id, profile_id, model_id, content, create_time)
SELECT 'h' || n, profile_id, model_id,
       content || jsonb_build_object(
           'solver', 'solver/' || n % 1000,
           'asked', coalesce(content -> 'asked', '{}') || CASE n % 4 WHEN 0 THEN '{}'::jsonb
               ELSE jsonb_build_object('framework', (ARRAY['megatron', 'deepspeed', 'torchtitan'])[n % 4],
                                       'objective', (ARRAY['pareto', 'min_devices', 'min_iteration_time'])[n % 4]) END,
           'found', CASE n % 5 WHEN 0 THEN '{}'::jsonb
               ELSE jsonb_build_object('iteration', jsonb_build_object('seconds', 0.5 + n * 7919 % 1000003 / 500000.0)) END),
       now() - n * interval '1 second'
FROM plans CROSS JOIN generate_series($1, $1 + 4999) AS n WHERE id = $2";

/// A fifth of them were tried, and reported.
const TRY: &str = "
UPDATE plan_facts SET measured_ledger = 'allocated', measured_seconds = 1 + predicted_peak_bytes % 7 / 7.0,
                      measured_peak_bytes = predicted_peak_bytes * 2,
                      reported_seconds = 1 + predicted_peak_bytes % 5 / 5.0, reported_kind = device_kind
WHERE right(id, 1) IN ('3', '7')";

/// Milliseconds of each call, ascending. Pages further on, too: half of the calls follow the first page.
async fn measure(store: &Store, query: &Query) -> Vec<f64> {
    let mut times = Vec::with_capacity(CALLS);
    let mut after = None;
    for _ in 0..CALLS {
        let request = PageRequest { size: 50, after: after.take() };
        let start = Instant::now();
        let page = store.list_plans(query, &request).await.unwrap();
        times.push(start.elapsed().as_secs_f64() * 1_000.0);
        after = page.next;
    }
    times.sort_by(f64::total_cmp);
    times
}

async fn all(store: &Store) -> Vec<Vec<f64>> {
    let mut times = Vec::new();
    for (filter, order_by) in QUESTIONS {
        let query = Query::parse(fields::PLANS, filter, order_by).unwrap();
        times.push(measure(store, &query).await);
    }
    times
}

#[tokio::main]
async fn main() {
    let store = store().await;
    let (name, content) = plan(&store).await;
    let empty = all(&store).await;
    store.put_plan(&name, &content).await.unwrap();
    let start = Instant::now();
    for first in (1..=PLANS).step_by(5_000) {
        sqlx::query(FILL).bind(first).bind(name.id()).execute(store.pool()).await.unwrap();
    }
    println!("{PLANS} plans stored in {:.1} s", start.elapsed().as_secs_f64());
    sqlx::query(TRY).execute(store.pool()).await.unwrap();
    // As autovacuum does by itself, a while after.
    for statement in ["VACUUM ANALYZE plan_facts", "VACUUM ANALYZE plans"] {
        sqlx::query(statement).execute(store.pool()).await.unwrap();
    }
    let full = all(&store).await;
    println!("{:>8} {:>8} {:>7} {:>7}  filter | order_by", "median", "p99", "of empty", "");
    for (((filter, order_by), full), empty) in QUESTIONS.iter().zip(&full).zip(&empty) {
        let at = |times: &[f64], share: usize| times[times.len() * share / 100];
        let ratio = |share| at(full, share) / at(empty, share);
        println!(
            "{:>5.2} ms {:>5.2} ms {:>6.2}× {:>6.2}×  {filter} | {order_by}",
            at(full, 50),
            at(full, 99),
            ratio(50),
            ratio(99),
        );
    }
}

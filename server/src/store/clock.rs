//! Jumps of the database's clock, which leases, deadlines and heartbeats are times of.
//!
//! That clock may be set: by hand, by NTP, or by a machine that was suspended. A planner looks at it before each look at
//! leases, and compares it with its own monotonic clock.
//!
//! * **Back:** a time that is further in the future than whoever wrote it could mean is of the clock of before. It counts
//!   from now on: a lease and a deadline are as long as when they began.
//! * **Forward:** the clock went on by more than the planner waited. Every lease begins anew, every connected worker was
//!   heard of just now, every search was reported just now, and deadlines move by as much.
//!
//! Planners that share a database each see a jump. To begin anew twice changes nothing, and of those that move deadlines
//! one does.

use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::Store;
use super::columns::Time;
use super::error::{Result, retry};

/// What clocks may differ by: less than a heartbeat, and more than a look takes.
const TOLERANCE: Duration = Duration::from_secs(1);

/// A look, and whether something is of a clock that was ahead. `$1` is a lease, `$2` the tolerance.
const LOOK: &str = "
SELECT now(),
       EXISTS (SELECT FROM runs WHERE state = 'running'
                 AND (lease_expires_at > now() + make_interval(secs => $1 + $2) OR start_time > now() + make_interval(secs => $2)))
       OR EXISTS (SELECT FROM workers WHERE heartbeat_time > now() + make_interval(secs => $2))";

/// The clock went back: nothing is further ahead than what was granted.
const BACK: &str = "
WITH leased AS (
    UPDATE runs
    SET lease_expires_at = least(lease_expires_at, now() + make_interval(secs => $1)),
        deadline_at = CASE WHEN start_time > now() THEN now() + make_interval(secs => deadline_seconds) ELSE deadline_at END,
        start_time = least(start_time, now())
    WHERE state = 'running'
      AND (lease_expires_at > now() + make_interval(secs => $1 + $2) OR start_time > now() + make_interval(secs => $2))
)
UPDATE workers SET heartbeat_time = now() WHERE heartbeat_time > now() + make_interval(secs => $2)";

/// The clock went forward by `$3` seconds, and would say `$4` else: whose turn it is moves deadlines. Claims of afterwards have their
/// own.
const FORWARD: &str = "
WITH turn AS (
    INSERT INTO schedules AS of (name, begin_time) VALUES ('clock', now())
    ON CONFLICT (name) DO UPDATE SET begin_time = now()
    WHERE of.begin_time <= now() - interval '10 seconds' OR of.begin_time > now() RETURNING true
), leased AS (
    UPDATE runs
    SET lease_expires_at = greatest(lease_expires_at, now() + make_interval(secs => $1)),
        deadline_at = CASE WHEN start_time <= $4 THEN deadline_at + moved.by ELSE deadline_at END,
        start_time = CASE WHEN start_time <= $4 THEN start_time + moved.by ELSE start_time END
    FROM (SELECT make_interval(secs => $3 * (SELECT count(*) FROM turn)) AS by) AS moved
    WHERE state = 'running'
), searched AS (
    UPDATE operations SET search_time = now() WHERE state = 'running' AND search IS NOT NULL
)
UPDATE workers SET heartbeat_time = now()
WHERE state IN ('alive', 'cordoned') AND heartbeat_time < now() - make_interval(secs => $2)";

/// What a planner knows of the database's clock.
#[derive(Debug, Default)]
pub struct DatabaseClock {
    last: Option<Reading>,
}

/// What the database's clock said at a moment of the planner's between these two.
#[derive(Debug, Clone, Copy)]
struct Reading {
    database: Timestamp,
    sent: Instant,
    received: Instant,
}

impl DatabaseClock {
    /// Seconds by which the clock went forward since the last reading, at least, and what it would say without that; none where
    /// the planner waited as long.
    fn forward(&self, next: &Reading) -> Option<(f64, Timestamp)> {
        let last = self.last?;
        let waited = next.received.saturating_duration_since(last.sent);
        let ahead = next.database.duration_since(last.database).as_secs_f64() - waited.as_secs_f64();
        let else_now = last.database.checked_add(waited).unwrap_or(last.database);
        (ahead > TOLERANCE.as_secs_f64()).then_some((ahead, else_now))
    }
}

impl Store {
    /// Looks at the database's clock, and makes up for a jump of it: to be called before leases are judged.
    ///
    /// # Errors
    /// When the database fails; the next look finds the same jump.
    pub async fn follow_clock(&self, clock: &mut DatabaseClock, lease: Duration) -> Result<()> {
        let (lease, tolerance) = (lease.as_secs_f64(), TOLERANCE.as_secs_f64());
        let sent = Instant::now();
        let (Time(database), is_ahead): (Time, bool) =
            sqlx::query_as(LOOK).bind(lease).bind(tolerance).fetch_one(&self.pool).await?;
        let next = Reading { database, sent, received: Instant::now() };
        if is_ahead {
            retry(|| async {
                Ok(sqlx::query(BACK).bind(lease).bind(tolerance).execute(&self.pool).await.map(drop)?)
            })
            .await?;
            tracing::warn!("the database's clock went back; leases that became too long were shortened");
        }
        if let Some((ahead, else_now)) = clock.forward(&next) {
            retry(|| async {
                let forward =
                    sqlx::query(FORWARD).bind(lease).bind(tolerance).bind(ahead).bind(Time(else_now));
                Ok(forward.execute(&self.pool).await.map(drop)?)
            })
            .await?;
            tracing::warn!(seconds = ahead, "the database's clock jumped forward; leases were restarted");
        }
        clock.last = Some(next);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A slow answer is no jump, and neither is a planner that was stopped for a while.
    #[test]
    fn a_jump_is_what_waiting_does_not_explain() {
        let begin = Instant::now();
        let reading = |database: i64, sent: u64, received: u64| Reading {
            database: Timestamp::from_second(1_000 + database).unwrap(),
            sent: begin + Duration::from_secs(sent),
            received: begin + Duration::from_secs(received),
        };
        let clock = DatabaseClock { last: Some(reading(0, 10, 10)) };
        let forward = |next| clock.forward(&next).map(|(ahead, _)| ahead.round() as i64);
        assert_eq!(forward(reading(1, 11, 11)), None);
        assert_eq!(forward(reading(60, 11, 70)), None, "the answer took a minute");
        assert_eq!(forward(reading(3_600, 3_610, 3_610)), None, "nobody looked for an hour");
        assert_eq!(forward(reading(2, 11, 11)), None, "as far as clocks differ");
        assert_eq!(forward(reading(3_601, 11, 11)), Some(3_600));
        assert_eq!(forward(reading(-3_600, 11, 11)), None);
        assert_eq!(DatabaseClock::default().forward(&reading(3_600, 11, 11)), None);
    }
}

//! How often workers fill the log: a line for each worker and second.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use loadmaster_proto::name::WorkerName;

/// Time between two lines about one worker.
const PAUSE: Duration = Duration::from_secs(1);
/// Workers that are remembered: beyond them names may be made up, and have no lines for a second.
const MOST: usize = 1_024;

/// When the log last had a line about each worker, for lines that workers cause with messages of theirs.
#[derive(Debug, Default)]
pub(super) struct WorkerLines(Mutex<HashMap<WorkerName, LineNote>>);

#[derive(Debug, Clone, Copy)]
struct LineNote {
    at: Instant,
    /// Lines that were left out since.
    left_out: u64,
}

impl WorkerLines {
    /// How many lines about a worker were left out since its last one, where it may have a line now; none where this one is
    /// left out, too.
    pub(super) fn admit(&self, worker: &WorkerName) -> Option<u64> {
        self.admit_at(worker, Instant::now())
    }

    fn admit_at(&self, worker: &WorkerName, now: Instant) -> Option<u64> {
        let is_over = |told: &LineNote| now.saturating_duration_since(told.at) >= PAUSE;
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(told) = known.get_mut(worker) {
            if !is_over(told) {
                told.left_out = told.left_out.saturating_add(1);
                return None;
            }
            let left_out = told.left_out;
            *told = LineNote { at: now, left_out: 0 };
            return Some(left_out);
        }
        if known.len() >= MOST {
            known.retain(|_, told| !is_over(told));
        }
        if known.len() >= MOST {
            return None;
        }
        known.insert(worker.clone(), LineNote { at: now, left_out: 0 });
        Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(id: &str) -> WorkerName {
        WorkerName::from_id(id).unwrap()
    }

    /// However many there are to be, and whoever else has some.
    #[test]
    fn a_worker_has_one_line_in_a_second() {
        let (lines, now) = (WorkerLines::default(), Instant::now());
        let (loud, quiet) = (worker("loud"), worker("quiet"));
        assert_eq!(lines.admit_at(&loud, now), Some(0));
        for _ in 0..1_000 {
            assert_eq!(lines.admit_at(&loud, now), None);
        }
        assert_eq!(lines.admit_at(&quiet, now), Some(0));
        assert_eq!(lines.admit_at(&loud, now + PAUSE), Some(1_000));
        assert_eq!(lines.admit_at(&loud, now + PAUSE), None);
    }

    #[test]
    fn made_up_names_take_little_memory_and_few_lines() {
        let (lines, now) = (WorkerLines::default(), Instant::now());
        let names = (0..10 * MOST).map(|number| worker(&format!("w{number}")));
        let admitted = names.filter(|name| lines.admit_at(name, now).is_some()).count();
        assert_eq!((admitted, lines.0.lock().unwrap().len()), (MOST, MOST));
        assert_eq!(lines.admit_at(&worker("late"), now + PAUSE), Some(0));
        assert_eq!(lines.0.lock().unwrap().len(), 1);
    }
}

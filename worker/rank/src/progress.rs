//! Where the rank is, and telling the daemon about it.
//!
//! There is one rank per process, and libtorch calls back from threads of its own during backward
//! passes: hence a static.

use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use loadmaster_proto::measure::failure::Phase;
use loadmaster_proto::measure::rank::RankEvent;

use crate::ffi;

/// Progress within a phase is told this often.
const USUAL_PAUSE: Duration = Duration::from_millis(500);
/// A change of phase is told unless something was told this recently.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);

struct ProgressState {
    phase: Phase,
    layer: Option<usize>,
    done: u64,
    total: u64,
    told: Option<(Instant, Phase)>,
    /// Whether anybody wants to know.
    enabled: bool,
}

static STATE: Mutex<ProgressState> = Mutex::new(ProgressState {
    phase: Phase::Setup,
    layer: None,
    done: 0,
    total: 1,
    told: None,
    enabled: false,
});

fn state() -> MutexGuard<'static, ProgressState> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts telling; `total` passes are to be done.
pub fn start(total: u64) {
    let mut state = state();
    state.total = total.max(1);
    state.enabled = true;
    tell(&mut state);
}

/// The rank is at work in this phase, on this layer.
pub fn enter(phase: Phase, layer: Option<usize>) {
    let mut state = state();
    state.phase = phase;
    state.layer = layer;
    tell(&mut state);
}

/// The rank is waiting, but alive.
pub fn tick() {
    tell(&mut state());
}

/// One more pass is done.
pub fn pass_done() {
    let mut state = state();
    state.done += 1;
    tell(&mut state);
}

/// Phase and layer of the latest work.
pub fn whereabouts() -> (Phase, Option<usize>) {
    let state = state();
    (state.phase, state.layer)
}

fn tell(state: &mut ProgressState) {
    let now = Instant::now();
    let due = state.told.is_none_or(|(when, phase)| {
        let pause = if phase == state.phase { USUAL_PAUSE } else { SHORTEST_PAUSE };
        now.duration_since(when) >= pause
    });
    if state.enabled && due {
        state.told = Some((now, state.phase));
        let fraction = (state.done as f64 / state.total as f64).min(1.0);
        if let Err(error) = write(&RankEvent::Progress { fraction, phase: state.phase }) {
            // The daemon is gone. What is left of the run would only keep a device from the next one.
            eprintln!("loadmaster-rank: cannot write events: {error}");
            ffi::end(1);
        }
    }
}

/// Writes one event as one line to standard output.
///
/// # Errors
/// When no one reads it any more.
pub fn write(event: &RankEvent) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(event)?;
    line.push(b'\n');
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(&line)?;
    stdout.flush()
}

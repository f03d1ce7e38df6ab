//! What a test would leave behind when somebody ends it: its programs are in process groups of their own, which no signal to the
//! test reaches.

use std::collections::BTreeSet;
use std::process::exit;
use std::sync::{Mutex, Once, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use crate::interruption::{EXIT_INTERRUPTED, Interruption, is_heard_by_others};
use crate::kernel::is_alive;

/// Programs that run, each the first of its process group.
static RUNNING: Mutex<BTreeSet<Pid>> = Mutex::new(BTreeSet::new());
/// For so long they may end by themselves: less than whoever ends tests gives these.
const PATIENCE: Duration = Duration::from_secs(8);

/// A program was started. From the first one on signals end all of them, and then this program: where nobody else
/// hears signals, and ends it in another way.
pub(crate) fn begins(pid: Pid) {
    static LISTENING: Once = Once::new();
    LISTENING.call_once(listen);
    running(|all| all.insert(pid));
}

/// A program has ended.
pub(crate) fn ended(pid: Pid) {
    running(|all| all.remove(&pid));
}

fn running<T>(work: impl FnOnce(&mut BTreeSet<Pid>) -> T) -> T {
    work(&mut RUNNING.lock().unwrap_or_else(PoisonError::into_inner))
}

fn listen() {
    let (ready, is_ready) = mpsc::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("there can be a runtime");
        runtime.block_on(async {
            let interruption = Interruption::hear().expect("signals can be heard");
            // Nobody waits where this is dropped.
            let _ = ready.send(());
            interruption.came().await;
        });
        if !is_heard_by_others() {
            end_all();
            exit(EXIT_INTERRUPTED.into());
        }
    });
    // A signal that came before would leave the program behind that is started next.
    let _ = is_ready.recv();
}

fn end_all() {
    let all = running(|all| all.clone());
    for &pid in &all {
        // It may have ended meanwhile.
        let _ = kill(pid, Signal::SIGTERM);
    }
    let start = Instant::now();
    while all.iter().any(|&pid| is_alive(pid)) && start.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(20));
    }
    for &pid in &all {
        let _ = killpg(pid, Signal::SIGKILL);
    }
}

//! Who used the cores while ranks were at work on CPU slots.
//!
//! All that the CPUs did, less what this worker and its ranks did, was others'. The seconds of a run that had
//! to share its cores are too long; its bytes are what they are.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use loadmaster_proto::cluster::device::{Backend, Device};
use loadmaster_proto::measure::environment::Environment;

use super::judge::descends;
use crate::host;
use crate::process::kernel::{self, Process};

/// Others may use this share of the cores before a run's seconds are doubted.
const TOLERATED: f64 = 0.1;
/// And this many seconds of a core: a planner on the same host has something to do for every run, however short
/// the run is.
const TOLERATED_SECONDS: f64 = 0.2;

/// The cores that this worker's processes may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cores {
    /// The CPUs that the kernel may run them on.
    cpus: BTreeSet<u32>,
    /// How many of these they may use at once: fewer, where a container is given a share.
    usable: u32,
}

/// What was done on these CPUs since the host started, in ticks of the kernel's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Usage {
    /// When this was read.
    at: Instant,
    /// All ticks of all CPUs, idle ones too.
    elapsed: u64,
    /// Those in which a process ran, or another guest of the machine.
    busy: u64,
    /// Those in which this worker or a process of its runs did.
    own: u64,
}

impl Cores {
    /// Those of this process; none where the kernel does not say.
    pub(super) fn here() -> Option<Self> {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        let cpus = cpu_list(list)?;
        (!cpus.is_empty()).then(|| Self { cpus, usable: host::cores() })
    }

    /// What was done so far; none where the kernel does not say.
    pub(super) fn usage(&self) -> Option<Usage> {
        let at = Instant::now();
        let (elapsed, busy) = ticks(&std::fs::read_to_string("/proc/stat").ok()?, &self.cpus)?;
        Some(Usage { at, elapsed, busy, own: family_ticks(&kernel::processes(), std::process::id()) })
    }

    /// The share of the usable cores that others used between two moments, 0 to 1; none where no time passed.
    fn others_share(&self, before: &Usage, after: &Usage) -> Option<f64> {
        let since = |of: fn(&Usage) -> u64| of(after).saturating_sub(of(before)) as f64;
        let all = self.cpus.len() as f64;
        let (elapsed, usable) = (since(|of| of.elapsed) / all, f64::from(self.usable));
        let others = (since(|of| of.busy) - since(|of| of.own)) / elapsed;
        // What a container may not use itself, others may without doing harm.
        let share = (others - (all - usable).max(0.0)) / usable;
        (elapsed > 0.0).then(|| share.clamp(0.0, 1.0))
    }

    /// Writes into what a run's devices measured how it shared the cores.
    pub(super) fn stamp(
        &self,
        environment: &mut Environment,
        devices: &[Device],
        before: Option<&Usage>,
        after: Option<&Usage>,
    ) {
        let ranks = devices.iter().filter(|device| device.backend == Backend::Cpu).count() as u64;
        if ranks == 0 {
            return;
        }
        environment.cores = self.usable;
        environment.oversubscribed = ranks * u64::from(environment.threads) > u64::from(self.usable);
        let Some((before, after)) = before.zip(after) else { return };
        environment.others_share = self.others_share(before, after);
        let seconds = after.at.saturating_duration_since(before.at).as_secs_f64();
        environment.contended |= environment.others_share.is_some_and(|share| {
            share > TOLERATED && share * f64::from(self.usable) * seconds > TOLERATED_SECONDS
        });
    }
}

/// `0-3,8`.
fn cpu_list(text: &str) -> Option<BTreeSet<u32>> {
    let mut cpus = BTreeSet::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        cpus.extend(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?);
    }
    Some(cpus)
}

/// The ticks of these CPUs in the text of `/proc/stat`: all, and those in which they were busy.
fn ticks(stat: &str, cpus: &BTreeSet<u32>) -> Option<(u64, u64)> {
    let (mut all, mut busy, mut seen) = (0, 0, 0);
    for line in stat.lines() {
        let mut fields = line.split_whitespace();
        let cpu = fields.next().and_then(|name| name.strip_prefix("cpu")?.parse::<u32>().ok());
        if !cpu.is_some_and(|cpu| cpus.contains(&cpu)) {
            continue;
        }
        // The time of guests, which comes after these, is in `user` already.
        let ticks: Vec<u64> = fields.map_while(|ticks| ticks.parse().ok()).take(8).collect();
        let [user, nice, system, _idle, _waiting, _interrupts, _soft_interrupts, stolen] = ticks[..] else {
            return None;
        };
        all += ticks.iter().sum::<u64>();
        busy += user + nice + system + stolen;
        seen += 1;
    }
    (seen == cpus.len()).then_some((all, busy))
}

/// CPU time of a process and of all that it started, directly or not.
fn family_ticks(processes: &BTreeMap<u32, Process>, root: u32) -> u64 {
    let parent_of = |pid: u32| processes.get(&pid).map(|process| process.parent);
    let family = processes.iter().filter(|&(&pid, _)| descends(pid, root, parent_of));
    family.map(|(_, process)| process.cpu_ticks).sum()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use loadmaster_proto::bytes::Bytes;

    use super::*;

    fn cores(cpus: u32, usable: u32) -> Cores {
        Cores { cpus: (0..cpus).collect(), usable }
    }

    fn slots(count: u32, backend: Backend) -> Vec<Device> {
        let slot = |ordinal: u32| Device {
            id: format!("d{ordinal}"),
            backend,
            kind: String::new(),
            capacity: Bytes(1),
            physical: Bytes(1),
            uuid: String::new(),
            ordinal,
            driver_version: String::new(),
            pci_bus_id: String::new(),
        };
        (0..count).map(slot).collect()
    }

    /// What two cores did up to a moment, and up to some milliseconds later.
    fn usages(milliseconds: u64, busy: u64, own: u64) -> [Usage; 2] {
        let before = Usage { at: Instant::now(), elapsed: 700, busy: 300, own: 100 };
        let at = before.at + Duration::from_millis(milliseconds);
        [before, Usage { at, elapsed: 700 + milliseconds / 5, busy: 300 + busy, own: 100 + own }]
    }

    /// `ranks` of one thread on two cores for ten seconds, of which ranks used `own` and all together `busy`.
    fn stamped(ranks: u32, busy: u64, own: u64) -> Environment {
        stamped_after(10_000, ranks, busy, own)
    }

    fn stamped_after(milliseconds: u64, ranks: u32, busy: u64, own: u64) -> Environment {
        let mut environment = Environment { threads: 1, ..Environment::default() };
        let [before, after] = usages(milliseconds, busy, own);
        cores(2, 2).stamp(&mut environment, &slots(ranks, Backend::Cpu), Some(&before), Some(&after));
        environment
    }

    /// What was seen in practice: two ranks on two cores, of which others used 1.1.
    #[test]
    fn a_run_whose_cores_others_used_is_contended() {
        let busy_host = stamped(2, 2_000, 900);
        assert!(busy_host.contended && !busy_host.oversubscribed);
        assert_eq!((busy_host.cores, busy_host.others_share), (2, Some(0.55)));
        // A single rank has a core left, but not the host for itself.
        assert!(stamped(1, 2_000, 900).contended);
        let quiet = stamped(2, 1_980, 1_880);
        assert!(!quiet.contended && quiet.others_share == Some(0.05));
        // The kernel counts some ticks later than others.
        assert_eq!(stamped(2, 1_900, 1_903).others_share, Some(0.0));
    }

    /// What a planner beside the worker does for each run is no reason to doubt a short one.
    #[test]
    fn little_work_of_others_is_tolerated_in_a_short_run() {
        let short = stamped_after(500, 2, 90, 75);
        assert!(!short.contended && short.others_share == Some(0.15));
        assert!(stamped_after(500, 2, 100, 75).contended, "a quarter of a second in half of one");
        assert!(stamped_after(2_000, 2, 360, 300).contended, "the same share of a longer run");
    }

    #[test]
    fn ranks_that_outnumber_the_cores_are_oversubscribed() {
        assert!(!stamped(2, 2_000, 2_000).oversubscribed);
        let alone = stamped(4, 2_000, 2_000);
        assert!(alone.oversubscribed && !alone.contended);
    }

    /// Others are welcome to what a container may not use.
    #[test]
    fn a_container_with_two_of_eight_cores_shares_the_host() {
        let at = Instant::now();
        let [before, after] =
            [(0, 0, 0), (8_000, 5_000, 1_900)].map(|(elapsed, busy, own)| Usage { at, elapsed, busy, own });
        assert_eq!(cores(8, 2).others_share(&before, &after), Some(0.0));
        let full = Usage { busy: 8_000, ..after };
        let share = cores(8, 2).others_share(&before, &full).unwrap();
        assert!((share - 0.05).abs() < 1e-12, "{share}");
    }

    #[test]
    fn gpus_and_a_silent_kernel_say_nothing() {
        let [usage, _] = usages(5, 1, 0);
        let mut environment = Environment::default();
        cores(2, 2).stamp(&mut environment, &slots(2, Backend::Cuda), Some(&usage), Some(&usage));
        assert_eq!(environment, Environment::default());
        cores(2, 2).stamp(&mut environment, &slots(2, Backend::Cpu), Some(&usage), Some(&usage));
        assert_eq!((environment.cores, environment.others_share), (2, None), "no time passed");
    }

    #[test]
    fn only_the_cpus_of_this_process_count() {
        let stat = "cpu  1000 0 0 0 0 0 0 0 0 0\ncpu0 10 2 3 80 1 1 1 2 9 0\ncpu1 5 0 5 90 0 0 0 0 0 0\n\
                    cpu2 500 0 0 0 0 0 0 0 0 0\nintr 7 0\n";
        assert_eq!(ticks(stat, &[0, 1].into()), Some((200, 27)));
        assert_eq!(ticks(stat, &[0, 7].into()), None, "one is not there");
        assert_eq!(ticks("cpu0 1 2\n", &[0].into()), None);
        assert_eq!(cpu_list("\t0-2,5\n"), Some([0, 1, 2, 5].into()));
        assert_eq!(cpu_list("x"), None);
    }

    #[test]
    fn all_generations_of_a_run_are_the_workers_own() {
        let process = |parent, cpu_ticks| Process { parent, has_ended: false, cpu_ticks };
        let processes = [
            (1, process(0, 1_000_000)),
            (10, process(1, 1)),
            (11, process(10, 20)),
            (12, process(11, 300)),
            (20, process(1, 4_000)),
        ];
        assert_eq!(family_ticks(&processes.into(), 10), 321);
    }

    /// The kernel that this runs on says all that is needed: what a child computes is this process's own, while it
    /// computes and once it was waited for.
    #[test]
    fn what_a_child_computes_is_our_own() {
        let cores = Cores::here().unwrap();
        let own = || cores.usage().unwrap().own;
        let before = own();
        let mut child = std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        // However busy the host is, it computes for a tenth of a second some day.
        while own() < before + 10 {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let alive = own();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(own() + 2 >= alive, "but for ticks that were counted by halves");
        let usage = cores.usage().unwrap();
        assert!(usage.elapsed >= usage.busy && cores.usable > 0);
    }
}

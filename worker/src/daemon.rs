//! The daemon: one loop that feeds events to the state and carries out its actions.
//!
//! A [`Runner`] takes a run from its lease to its end: its devices are looked at, its processes work, its devices are looked at
//! again.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use loadmaster_proto::WORKER_PROTOCOL_VERSION;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::measure::run::{RunSpec, Task};
use loadmaster_proto::name::{WorkerName, is_host};
use loadmaster_proto::wire::{v1, worker_v1};
use sd_notify::NotifyState;
use tokio::select;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, error, info, info_span};

use crate::config::command::Commands;
use crate::fatal::Fatal;
use crate::health::Health;
use crate::link::{Link, LinkEvent};
use crate::process::folder::WorkFolder;
use crate::process::{folder, group};
use crate::ranks::Supervisor;
use crate::run::{Claim, Contact, Job, Outcome, Progress, handed_back, not_started};
use crate::settings::Settings;
use crate::state::{Action, Event, State};
use crate::{command, host, inventory, probe};

/// Reports of progress that wait to be looked at; more are dropped.
const PROGRESS: usize = 256;
/// When to look at the time if the state has no wish, and when a service manager is told at the latest that the daemon lives.
const IDLE: Duration = Duration::from_secs(10);

/// Runs the daemon until it is stopped.
///
/// # Errors
/// See [`Fatal`].
pub(crate) fn run(settings: Settings) -> Result<(), Fatal> {
    // One thread, the main one: the kernel kills a rank when the *thread* that started it ends.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the async runtime")?;
    let result = runtime.block_on(serve(settings));
    // A look-up of a host name may still be running; no one waits for it.
    runtime.shutdown_background();
    result
}

async fn serve(settings: Settings) -> Result<(), Fatal> {
    group::adopt_orphans().context(
        "the worker cannot become the parent of orphaned processes (PR_SET_CHILD_SUBREAPER), so it cannot \
         stop these processes",
    )?;
    let host_memory = inventory::host_memory(settings.host_memory, host::memory_bytes())?;
    let devices =
        inventory::devices(settings.cpu_slots, settings.gpus.as_ref(), settings.gpu_shares, host_memory)?;
    let copy_pace = inventory::copy_pace(settings.cpu_links, &devices)?;
    let program = probe::rank_program(settings.rank.as_deref())?;
    let probe = probe::probe(&program, &inventory::gpu_uuids(&devices)).await?;
    inventory::check_usable(&devices, probe.cuda_devices)?;
    let worker = match settings.name {
        Some(name) => name,
        None => host::default_worker_name()
            .context("the host name is not a valid worker name. Name the worker with --name.")?,
    };
    let slots = u32::try_from(devices.len()).unwrap_or(u32::MAX);
    let supervisor = Supervisor {
        program,
        folder: WorkFolder::create(settings.work_dir.as_deref(), &command::end_left)?,
        threads: (host::cores() / slots.max(1)).max(1),
        slots_at_once: host::cores().min(slots),
        hang_timeout: settings.hang_timeout,
        copy_pace,
    };
    let health = Health::new(&devices, settings.allow_shared_devices);
    for device in &devices {
        info!(device.id, device.kind, capacity_bytes = device.capacity.0, device.uuid, "offering a device");
    }
    if host_memory > Bytes(0) {
        info!(offered_bytes = host_memory.0, "offering CPU (host) memory");
    }
    for (name, command) in &settings.commands {
        info!(command.name = %name, command.program = command.argv.first(), "offering a custom profiler");
    }
    info!(%worker, libtorch.version = probe.libtorch_version, devices = devices.len(), "started");

    let commands = settings.commands.keys().map(ToString::to_string).collect();
    let gpu_links = inventory::gpu_links(&devices).iter().map(Into::into).collect();
    let runner = Runner { supervisor, commands: settings.commands, health };
    let (progress_sender, progress) = mpsc::channel(PROGRESS);
    let mut daemon = Daemon {
        introduction: Introduction {
            worker,
            libtorch_version: probe.libtorch_version,
            cuda_version: probe.cuda_version,
            session_id: format!("{:032x}", rand::random::<u128>()),
            commands,
            gpu_links,
        },
        state: State::new(devices, host_memory, settings.drain_timeout),
        link: Link::new(settings.server),
        runner: Arc::new(runner),
        runs: JoinSet::new(),
        running: HashMap::new(),
        stops: HashMap::new(),
        progress_sender,
        progress,
        terminate: signal(SignalKind::terminate()).context("no SIGTERM")?,
        interrupt: signal(SignalKind::interrupt()).context("no SIGINT")?,
        refusal: None,
    };
    // A planner that is away is no reason to wait: the daemon works, and dials until it is there.
    tell_manager(&[NotifyState::Ready, NotifyState::Status("dialling the planner")]);
    daemon.serve().await;
    tell_manager(&[NotifyState::Stopping]);
    let Daemon { link, runner, refusal, .. } = daemon;
    link.close().await;
    // No run is left that could have a share in it.
    if let Some(runner) = Arc::into_inner(runner) {
        runner.supervisor.folder.remove();
    }
    info!("stopped; no process or folder is left");
    refusal.map_or(Ok(()), |why| Err(Fatal::Refused(why)))
}

/// Tells the service manager that started this daemon, if one did and wants to know (`sd_notify`).
fn tell_manager(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "could not notify the service manager");
    }
}

struct Introduction {
    worker: WorkerName,
    libtorch_version: String,
    cuda_version: String,
    session_id: String,
    commands: Vec<String>,
    /// What the driver knows of the links between the GPUs.
    gpu_links: Vec<v1::GpuLink>,
}

struct Daemon {
    introduction: Introduction,
    state: State,
    link: Link,
    runner: Arc<Runner>,
    runs: JoinSet<Outcome>,
    running: HashMap<Id, Claim>,
    stops: HashMap<Claim, CancellationToken>,
    progress_sender: mpsc::Sender<Progress>,
    progress: mpsc::Receiver<Progress>,
    terminate: Signal,
    interrupt: Signal,
    refusal: Option<String>,
}

impl Daemon {
    async fn serve(&mut self) {
        loop {
            let event = self.next().await;
            tell_manager(&[NotifyState::Watchdog]);
            let Some(event) = event else { continue };
            for action in self.state.on(event, Instant::now()) {
                match action {
                    Action::Send(message) => self.link.send(message),
                    Action::Start(job) => self.start(*job),
                    Action::Kill(claim) => {
                        if let Some(stop) = self.stops.get(&claim) {
                            stop.cancel();
                        }
                    }
                    Action::Exit => return,
                }
            }
        }
    }

    /// The next event for the state, if what happened is one.
    async fn next(&mut self) -> Option<Event> {
        let now = Instant::now();
        let wake = self.state.wake().unwrap_or_else(|| now + IDLE);
        self.link.limit_wait(self.state.longest_wait(now));
        select! {
            _ = self.terminate.recv() => Some(Event::Stop),
            _ = self.interrupt.recv() => Some(Event::Stop),
            Some(ended) = self.runs.join_next_with_id() => self.ended(ended),
            Some(Progress { claim, fraction, phase }) = self.progress.recv() => {
                Some(Event::Progress { claim, fraction, phase })
            }
            event = self.link.next() => self.linked(event),
            () = sleep_until(wake.into()) => Some(Event::Tick),
        }
    }

    fn linked(&mut self, event: LinkEvent) -> Option<Event> {
        match event {
            LinkEvent::Due => {
                if self.refusal.is_none() {
                    self.link.open(self.hello());
                }
                None
            }
            LinkEvent::Welcomed(terms) => {
                tell_manager(&[NotifyState::Status("connected")]);
                Some(Event::Welcomed(terms))
            }
            LinkEvent::Message(message) => Some(Event::Planner(message)),
            LinkEvent::Lost => {
                tell_manager(&[NotifyState::Status("the planner is not reachable; reconnecting")]);
                Some(Event::Lost)
            }
            LinkEvent::Refused(why) => {
                error!("the planner rejected this worker: {why}");
                self.refusal = Some(why);
                Some(Event::Refused)
            }
        }
    }

    fn hello(&self) -> worker_v1::Hello {
        worker_v1::Hello {
            protocol_version: WORKER_PROTOCOL_VERSION,
            worker: self.introduction.worker.to_string(),
            // A kernel accepts any text. The planner names the node after the worker where there is no host name.
            host: Some(host::host_name()).filter(|name| is_host(name)).unwrap_or_default(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            libtorch_version: self.introduction.libtorch_version.clone(),
            cuda_version: self.introduction.cuda_version.clone(),
            thread_count: i32::try_from(self.runner.supervisor.threads).unwrap_or(i32::MAX),
            core_count: i32::try_from(host::cores()).unwrap_or(i32::MAX),
            devices: self.state.devices().iter().map(Into::into).collect(),
            held_runs: self.state.held_runs(),
            session_id: self.introduction.session_id.clone(),
            custom_profilers: self.introduction.commands.clone(),
            gpu_links: self.introduction.gpu_links.clone(),
            host_memory_bytes: self.state.host_memory().to_wire(),
            copy_bandwidth: Some(self.runner.supervisor.copy_pace)
                .filter(|pace| !pace.is_free())
                .map(Into::into),
        }
    }

    fn start(&mut self, job: Job) {
        let claim = job.lease.claim.clone();
        let stop = CancellationToken::new();
        let contact =
            Contact { claim: claim.clone(), stop: stop.clone(), progress: self.progress_sender.clone() };
        let runner = Arc::clone(&self.runner);
        let span = info_span!("run", run.id = claim.run.id(), lease.token = claim.token);
        let task = async move { runner.run(job, &contact).await };
        let handle = self.runs.spawn(task.instrument(span));
        self.running.insert(handle.id(), claim.clone());
        self.stops.insert(claim, stop);
    }

    fn ended(&mut self, ended: Result<(Id, Outcome), JoinError>) -> Option<Event> {
        let (id, outcome) = match ended {
            Ok(ended) => ended,
            Err(defect) => {
                error!("the supervision of a run failed: {defect}");
                let message = "a defect of the worker interrupted this run. See the worker's log.";
                (defect.id(), Outcome::Failed(not_started(message)))
            }
        };
        let claim = self.running.remove(&id)?;
        self.stops.remove(&claim);
        Some(Event::Ended { claim, outcome })
    }
}

#[derive(Debug)]
pub(crate) struct Runner {
    /// Starts Loadmaster's own ranks.
    pub(crate) supervisor: Supervisor,
    /// Training commands, for runs that name one.
    pub(crate) commands: Commands,
    /// Looks at the devices.
    pub(crate) health: Health,
}

impl Runner {
    /// Works on a run until none of its processes is left.
    pub(crate) async fn run(&self, job: Job, contact: &Contact) -> Outcome {
        let before = match self.health.before(&job.lease.devices).await {
            Ok(before) => before,
            Err(refusal) => return Outcome::Failed(refusal),
        };
        let devices = job.lease.devices.clone();
        let Job { lease, task } = job;
        let outcome = match task {
            Task::Train(spec) if spec.command.is_some() => {
                self.command(&Job { lease, task: *spec }, contact).await
            }
            task => self.supervisor.run(&Job { lease, task }, contact).await,
        };
        self.health.after(&devices, before, outcome).await
    }

    async fn command(&self, job: &Job<RunSpec>, contact: &Contact) -> Outcome {
        let Some((name, command)) =
            job.task.command.as_ref().and_then(|name| self.commands.get_key_value(name))
        else {
            let name = job.task.command.as_ref().map(ToString::to_string).unwrap_or_default();
            return Outcome::Failed(handed_back(format!(
                "this worker no longer offers the custom profiler {name}: its configuration has changed"
            )));
        };
        let folder = match self.supervisor.folder.run_folder() {
            Ok(folder) => folder,
            Err(error) => return Outcome::Failed(handed_back(format!("no folder for the run: {error}"))),
        };
        let path: &Path = folder.path();
        let outcome = command::run(name, command, job, path, contact).await;
        let path = path.to_owned();
        folder::remove(folder, &path);
        outcome
    }
}

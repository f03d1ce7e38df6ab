//! Real neighbours, over Unix sockets in a private folder.
//!
//! Stage s listens on `stage-{s}.sock`; stage s + 1 connects to it, and so does the last stage to stage
//! 0 if they share a tied weight. Who connects says hello with its stage index.

use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use loadmaster_proto::rank::RankSpec;
use loadmaster_proto::run::SoloStage;
use tch::Tensor;

use super::frame::{Frame, Header, Purpose};
use super::link::{Link, Lost};
use super::{Crossing, Forms, Neighbours, host, unexpected};
use crate::error::RankError;
use crate::progress;

/// How long to wait before looking again whether a neighbour is there.
const PAUSE: Duration = Duration::from_millis(2);

/// Real neighbours.
#[derive(Debug)]
pub struct Sockets {
    forms: Forms,
    previous: Option<Link>,
    next: Option<Link>,
    tied: Option<Link>,
}

/// A stage whose later neighbours can already reach it.
#[derive(Debug)]
pub struct Listening {
    listener: Option<UnixListener>,
}

impl Listening {
    /// Listens for the stages after this one. The last stage has none.
    ///
    /// # Errors
    /// When the folder does not take a socket.
    pub fn bind(folder: &Path, position: &SoloStage) -> Result<Self, RankError> {
        if position.stage_index + 1 == position.stage_count {
            return Ok(Self { listener: None });
        }
        let path = socket(folder, position.stage_index);
        let listener = UnixListener::bind(&path)
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
            .map_err(|error| RankError::Other(format!("cannot listen on {}: {error}", path.display())))?;
        Ok(Self { listener: Some(listener) })
    }

    /// Connects to the stages before this one and waits for those after it.
    ///
    /// # Errors
    /// When one does not come in time.
    pub fn connect(self, folder: &Path, spec: &RankSpec, forms: Forms) -> Result<Sockets, RankError> {
        // Cannot fail on a checked specification.
        let patience = Duration::try_from_secs_f64(spec.neighbour_timeout_seconds).unwrap_or_default();
        let deadline = Instant::now() + patience;
        let own = spec.position.stage_index;
        let lost = Lost::default();
        let start = |stream, neighbour, incoming| {
            Link::start(stream, neighbour, incoming, lost.clone())
                .map_err(|error| RankError::Other(format!("cannot talk to the {neighbour}: {error}")))
        };

        let mut sockets = Sockets { forms: forms.clone(), previous: None, next: None, tied: None };
        if !forms.inputs.is_empty() {
            let stream = reach(&socket(folder, own.saturating_sub(1)), Purpose::Hello, own, deadline)?;
            sockets.previous = Some(start(stream, "previous stage", (Crossing::Activation, forms.inputs))?);
        }
        if forms.outputs.is_empty() && !forms.tied.is_empty() {
            let stream = reach(&socket(folder, 0), Purpose::HelloTied, own, deadline)?;
            sockets.tied = Some(start(stream, "first stage", (Crossing::TiedGradient, forms.tied.clone()))?);
        }
        let Some(listener) = self.listener else { return Ok(sockets) };
        let mut next_form = Some(forms.outputs).filter(|forms| !forms.is_empty());
        let mut tied_form = Some(forms.tied).filter(|forms| !forms.is_empty());
        while next_form.is_some() || tied_form.is_some() {
            let mut stream = accept(&listener, deadline)?;
            let hello = hear(&mut stream, deadline)?;
            match (hello.purpose, hello.micro_batch) {
                (Purpose::Hello, stage) if stage == own + 1 => {
                    if let Some(form) = next_form.take() {
                        sockets.next = Some(start(stream, "next stage", (Crossing::Gradient, form))?);
                    }
                }
                (Purpose::HelloTied, stage) if stage + 1 == spec.position.stage_count => {
                    if let Some(form) = tied_form.take() {
                        sockets.tied = Some(start(stream, "last stage", (Crossing::TiedGradient, form))?);
                    }
                }
                (purpose, stage) => {
                    return Err(RankError::Protocol(format!(
                        "stage {stage} said {purpose:?} to stage {own}, which it has nothing to do with"
                    )));
                }
            }
        }
        Ok(sockets)
    }
}

impl Sockets {
    fn link(&self, crossing: Crossing, incoming: bool) -> Result<&Link, RankError> {
        let link = match (crossing, incoming) {
            (Crossing::Activation, true) | (Crossing::Gradient, false) => &self.previous,
            (Crossing::Activation, false) | (Crossing::Gradient, true) => &self.next,
            (Crossing::TiedGradient, _) => &self.tied,
        };
        link.as_ref().ok_or_else(|| unexpected(crossing))
    }
}

impl Neighbours for Sockets {
    fn receive(&mut self, crossing: Crossing, micro_batch: u32) -> Result<Vec<Tensor>, RankError> {
        let link = self.link(crossing, true)?;
        let mut tensors = Vec::new();
        for _ in self.forms.incoming(crossing) {
            let frame = link.receive()?;
            if frame.header.micro_batch != micro_batch {
                return Err(RankError::Protocol(format!(
                    "expected {crossing:?} of micro-batch {micro_batch}, got that of {}",
                    frame.header.micro_batch
                )));
            }
            tensors.push(host::to_device(&frame.bytes, &frame.header.form, self.forms.device)?);
        }
        Ok(tensors)
    }

    fn send(&mut self, crossing: Crossing, micro_batch: u32, tensors: Vec<Tensor>) -> Result<(), RankError> {
        let link = self.link(crossing, false)?;
        for tensor in tensors {
            let form = super::Form { kind: tensor.f_kind()?, shape: tensor.size() };
            let bytes = host::to_host(&tensor)?;
            drop(tensor);
            let header = Header { purpose: Purpose::Tensor(crossing), micro_batch, form };
            link.send(Frame { header, bytes })?;
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), RankError> {
        let Self { previous, next, tied, .. } = *self;
        [previous, next, tied].into_iter().flatten().try_for_each(Link::finish)
    }
}

fn socket(folder: &Path, stage: u32) -> PathBuf {
    folder.join(format!("stage-{stage}.sock"))
}

/// Connects as soon as the other stage listens, and says hello.
fn reach(path: &Path, hello: Purpose, own: u32, deadline: Instant) -> Result<UnixStream, RankError> {
    loop {
        match UnixStream::connect(path) {
            Ok(mut stream) => {
                return Header::bare(hello, own)
                    .write(&mut stream)
                    .map(|()| stream)
                    .map_err(|error| RankError::LostNeighbour(format!("lost {}: {error}", path.display())));
            }
            Err(error) => {
                pause(deadline).map_err(|()| {
                    RankError::LostNeighbour(format!("nobody listens on {}: {error}", path.display()))
                })?;
            }
        }
    }
}

fn accept(listener: &UnixListener, deadline: Instant) -> Result<UnixStream, RankError> {
    let gone = |error: String| RankError::LostNeighbour(format!("no later stage connected: {error}"));
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).map_err(|error| gone(error.to_string()))?;
                return Ok(stream);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                pause(deadline).map_err(|()| gone("time is up".to_owned()))?;
            }
            Err(error) => return Err(gone(error.to_string())),
        }
    }
}

/// Reads the hello of who has connected.
fn hear(stream: &mut UnixStream, deadline: Instant) -> Result<Header, RankError> {
    let gone = |error: io::Error| RankError::LostNeighbour(format!("a later stage said no hello: {error}"));
    let left = deadline.saturating_duration_since(Instant::now()).max(PAUSE);
    stream.set_read_timeout(Some(left)).map_err(gone)?;
    let hello = Header::read(stream).map_err(gone)?;
    stream.set_read_timeout(None).map_err(gone)?;
    Ok(hello)
}

fn pause(deadline: Instant) -> Result<(), ()> {
    if Instant::now() >= deadline {
        return Err(());
    }
    progress::tick();
    std::thread::sleep(PAUSE);
    Ok(())
}

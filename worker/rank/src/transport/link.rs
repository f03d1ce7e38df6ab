//! A connection to one neighbour: a thread that writes, a thread that reads, queues between them and
//! the stage.
//!
//! Neither direction ever blocks the other, so no order of passes can deadlock: the stage waits only for
//! what it receives, and the order of the schedule makes sure that this comes.

use std::io::{self, BufReader};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use super::Crossing;
use super::frame::{Frame, write_goodbye};
use crate::error::RankError;
use crate::progress;
use crate::tensor::Form;

/// Frames that are read ahead. Host memory outside the device's capacity holds them.
const READ_AHEAD: usize = 2;
/// How often a waiting stage says that it lives.
const WAITING_PAUSE: Duration = Duration::from_millis(100);

/// Set by whichever thread notices first that a neighbour is gone.
pub(super) type Lost = Arc<OnceLock<RankLoss>>;

/// How a neighbour was lost.
#[derive(Debug, Clone)]
pub(super) enum RankLoss {
    /// The stream ended or broke.
    Gone(String),
    /// It sent something else than agreed.
    Protocol(String),
}

impl RankLoss {
    pub(super) fn error(&self) -> RankError {
        match self {
            Self::Gone(message) => RankError::LostNeighbour(message.clone()),
            Self::Protocol(message) => RankError::Protocol(message.clone()),
        }
    }

    fn of(neighbour: &str, error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::InvalidData {
            Self::Protocol(format!("the {neighbour} violates the protocol: {error}"))
        } else {
            Self::Gone(format!("lost the {neighbour}: {error}"))
        }
    }
}

/// A connection to one neighbour.
#[derive(Debug)]
pub(super) struct Link {
    outgoing: Sender<Frame>,
    incoming: Receiver<Frame>,
    writer: JoinHandle<()>,
    lost: Lost,
}

impl Link {
    /// Starts the threads of a connection over which tensors of these forms come in turn for this purpose.
    pub(super) fn start(
        stream: UnixStream,
        neighbour: String,
        incoming: (Crossing, Vec<Form>),
        lost: Lost,
    ) -> io::Result<Self> {
        let (outgoing, to_write) = mpsc::channel();
        let (read, from_reader) = mpsc::sync_channel(READ_AHEAD);
        let writing = stream.try_clone()?;
        let (lost_writing, reader) = (lost.clone(), neighbour.clone());
        let writer = std::thread::Builder::new().name(format!("to {neighbour}")).spawn(move || {
            if let Err(error) = write_all(writing, &to_write) {
                let _ = lost_writing.set(RankLoss::of(&reader, &error));
            }
        })?;
        let lost_reading = lost.clone();
        // Not joined: it may wait for a neighbour for whose last word no one here cares.
        std::thread::Builder::new().name(format!("from {neighbour}")).spawn(move || {
            let (crossing, forms) = incoming;
            let mut stream = BufReader::new(stream);
            for form in forms.iter().cycle() {
                match Frame::read(&mut stream, crossing, form) {
                    Ok(Some(frame)) => {
                        if read.send(frame).is_err() {
                            break;
                        }
                    }
                    Ok(None) => break,
                    Err(error) => {
                        let _ = lost_reading.set(RankLoss::of(&neighbour, &error));
                        break;
                    }
                }
            }
        })?;
        Ok(Self { outgoing, incoming: from_reader, writer, lost })
    }

    /// Queues a frame. Never waits.
    pub(super) fn send(&self, frame: Frame) -> Result<(), RankError> {
        self.outgoing.send(frame).map_err(|_| self.loss())
    }

    /// Waits for the next frame.
    pub(super) fn receive(&self) -> Result<Frame, RankError> {
        loop {
            match self.incoming.recv_timeout(WAITING_PAUSE) {
                Ok(frame) => return Ok(frame),
                Err(RecvTimeoutError::Disconnected) => return Err(self.loss()),
                Err(RecvTimeoutError::Timeout) => {
                    // Another neighbour may be the one that is gone.
                    if let Some(loss) = self.lost.get() {
                        return Err(loss.error());
                    }
                    progress::tick();
                }
            }
        }
    }

    /// Waits until everything is written.
    pub(super) fn finish(self) -> Result<(), RankError> {
        let Self { outgoing, writer, lost, incoming } = self;
        drop(outgoing);
        let written = writer.join().is_ok();
        drop(incoming);
        match lost.get() {
            Some(loss) => Err(loss.error()),
            None if written => Ok(()),
            None => Err(RankError::Other("the thread that writes to a neighbour failed".to_owned())),
        }
    }

    fn loss(&self) -> RankError {
        let message = || RankLoss::Gone("a neighbour rank ended before all data was sent".to_owned());
        self.lost.get().cloned().unwrap_or_else(message).error()
    }
}

fn write_all(mut stream: UnixStream, frames: &Receiver<Frame>) -> io::Result<()> {
    for frame in frames {
        frame.write(&mut stream)?;
    }
    // A neighbour that needed nothing more may be gone already.
    let _ = write_goodbye(&mut stream);
    Ok(())
}

//! Real neighbours: a connection to every rank of another stage with which rows are exchanged.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::os::unix::net::UnixStream;

use tch::Tensor;

use super::frame::Frame;
use super::link::{Link, Lost};
use super::route::{Place, Route, Routes};
use super::{Crossing, Forms, Neighbours, unexpected};
use crate::error::RankError;
use crate::peers::{Appointment, Tie};
use crate::tensor::{Form, to_device, to_host};

/// Real neighbours.
#[derive(Debug)]
pub struct Sockets {
    plan: Plan,
    links: BTreeMap<Appointment, Link>,
}

/// What must be known to connect: who exchanges which rows with this rank.
#[derive(Debug)]
pub(crate) struct Plan {
    forms: Forms,
    activations: Routes,
    gradients: Routes,
    tied: Routes,
}

impl Plan {
    /// The exchanges of a rank in its pipeline.
    pub(crate) fn of(place: &Place<'_>, forms: Forms) -> Self {
        Self {
            activations: place.routes(Crossing::Activation),
            gradients: place.routes(Crossing::Gradient),
            tied: if forms.tied.is_empty() {
                Routes::default()
            } else {
                place.routes(Crossing::TiedGradient)
            },
            forms,
        }
    }

    /// Who must be met for them.
    pub(crate) fn appointments(&self) -> BTreeSet<Appointment> {
        [Crossing::Activation, Crossing::Gradient, Crossing::TiedGradient]
            .into_iter()
            .flat_map(|crossing| {
                let routes = self.routes(crossing);
                routes.incoming.iter().chain(&routes.outgoing).map(move |route| (tie(crossing), route.peer))
            })
            .collect()
    }

    /// Starts talking over the connections that were made.
    ///
    /// # Errors
    /// When one is missing, or a thread cannot be started.
    pub(crate) fn start(self, met: &mut BTreeMap<Appointment, UnixStream>) -> Result<Sockets, RankError> {
        let lost = Lost::default();
        let mut links = BTreeMap::new();
        for appointment in self.appointments() {
            let (_, peer) = appointment;
            let stream =
                met.remove(&appointment).ok_or_else(|| RankError::Other(format!("{peer} is missing")))?;
            let link = Link::start(stream, peer.to_string(), self.expected(appointment), lost.clone())
                .map_err(|error| RankError::Other(format!("cannot communicate with {peer}: {error}")))?;
            links.insert(appointment, link);
        }
        Ok(Sockets { plan: self, links })
    }

    /// What comes over a connection, in turn: one kind of crossing, or nothing.
    fn expected(&self, (tie_of, peer): Appointment) -> (Crossing, Vec<Form>) {
        let crossings = [Crossing::Activation, Crossing::Gradient, Crossing::TiedGradient];
        for crossing in crossings.into_iter().filter(|&crossing| tie(crossing) == tie_of) {
            let routes = &self.routes(crossing).incoming;
            if let Some(Route { rows, .. }) = routes.iter().find(|route| route.peer == peer) {
                let forms = self.forms.incoming(crossing).iter();
                return (crossing, forms.map(|form| form.with_rows(rows)).collect());
            }
        }
        (Crossing::Activation, Vec::new())
    }

    fn routes(&self, crossing: Crossing) -> &Routes {
        match crossing {
            Crossing::Activation => &self.activations,
            Crossing::Gradient => &self.gradients,
            Crossing::TiedGradient => &self.tied,
        }
    }
}

fn tie(crossing: Crossing) -> Tie {
    match crossing {
        Crossing::Activation | Crossing::Gradient => Tie::Neighbour,
        Crossing::TiedGradient => Tie::SharedWeight,
    }
}

impl Sockets {
    fn link(&self, crossing: Crossing, route: &Route) -> Result<&Link, RankError> {
        self.links.get(&(tie(crossing), route.peer)).ok_or_else(|| unexpected(crossing))
    }

    fn receive_one(&self, crossing: Crossing, micro_batch: u32, form: &Form) -> Result<Tensor, RankError> {
        let routes = self.plan.routes(crossing);
        let mut whole = Vec::new();
        for route in &routes.incoming {
            let frame = self.link(crossing, route)?.receive()?;
            if frame.micro_batch != micro_batch {
                return Err(RankError::Protocol(format!(
                    "expected {crossing:?} of micro-batch {micro_batch}, received micro-batch {}",
                    frame.micro_batch
                )));
            }
            // Routes are in order of the rows, so that what one sender has of them follows the last.
            if whole.is_empty() {
                whole = frame.bytes;
            } else {
                whole.extend_from_slice(&frame.bytes);
            }
        }
        Ok(to_device(&whole, form, self.plan.forms.device)?)
    }
}

impl Neighbours for Sockets {
    fn receive(&mut self, crossing: Crossing, micro_batch: u32) -> Result<Vec<Tensor>, RankError> {
        let forms = self.plan.forms.incoming(crossing);
        if self.plan.routes(crossing).incoming.is_empty() || forms.is_empty() {
            return Err(unexpected(crossing));
        }
        forms.iter().map(|form| self.receive_one(crossing, micro_batch, form)).collect()
    }

    fn send(&mut self, crossing: Crossing, micro_batch: u32, tensors: Vec<Tensor>) -> Result<(), RankError> {
        let routes = self.plan.routes(crossing);
        for tensor in tensors {
            // Another rank serves everybody: nothing of this one's copy is needed.
            if routes.outgoing.is_empty() {
                continue;
            }
            let form = Form { kind: tensor.f_kind()?, shape: tensor.size() };
            let bytes = to_host(&tensor)?;
            drop(tensor);
            for route in &routes.outgoing {
                let form = form.with_rows(&route.rows);
                let bytes = part(&bytes, &routes.held, &route.rows)?.to_vec();
                self.link(crossing, route)?.send(Frame { crossing, micro_batch, form, bytes })?;
            }
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), RankError> {
        self.links.into_values().try_for_each(Link::finish)
    }
}

/// The bytes of `rows`, from those of the rows that are held.
fn part<'a>(bytes: &'a [u8], held: &Range<i64>, rows: &Range<i64>) -> Result<&'a [u8], RankError> {
    let count = usize::try_from(held.end - held.start).unwrap_or_default().max(1);
    let width = bytes.len() / count;
    let at = |row: i64| usize::try_from(row - held.start).ok().map(|row| row * width);
    at(rows.start).zip(at(rows.end)).and_then(|(start, end)| bytes.get(start..end)).ok_or_else(|| {
        RankError::Other(format!(
            "rows {rows:?} of a tensor must be sent, but this rank has only rows {held:?}"
        ))
    })
}

//! Copies of a stage, predicted and measured: bytes each way, waiting seconds, and bytes in CPU memory, for each link.
//!
//! Copies of memory optimizations and of chunks are treated alike. Most of these figures may be 0, so an error is a difference in
//! bytes or seconds, not a ratio. No calibration factor is made of them:
//!
//! * Bytes follow from the plan exactly. A difference is a defect, and `plan errors` reports it.
//! * A wait is the rest of a copy that no pass covers. A copy that takes a tenth longer may turn no wait into a long one, so a
//!   factor on waits has no meaning.
//! * The seconds of an iteration are calibrated, and already contain its waits.
//!
//! Chunks that moved otherwise because less memory was free than planned are left out, and so are waits of disturbed trials and
//! of plans with calibrated seconds. Better copy rates come from profiles and link measurements.

use std::collections::BTreeMap;

use loadmaster_proto::accounting::Accounting;
use loadmaster_proto::measure::chunked::ChunkRun;
use loadmaster_proto::measure::offload::Offload;

use super::{Link, Quantity};

/// What was counted of a stage's copies, or is predicted of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counters<'a> {
    /// Of memory optimizations; none without any.
    pub(super) offload: Option<&'a Offload>,
    /// Of chunks; none without any.
    pub(super) chunks: Option<&'a ChunkRun>,
}

/// One figure, predicted and measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Figure {
    pub(super) quantity: Quantity,
    /// Bytes or seconds.
    pub(super) predicted: f64,
    /// In the same unit.
    pub(super) measured: f64,
}

/// What one kind of copies of a stage goes between.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Between {
    /// The device and the host, by memory optimizations.
    Host,
    /// The device and that of another stage, by memory optimizations.
    Stage(u32),
    /// The device and the host, by chunks.
    Chunks,
    /// The ranks that share chunks.
    Ranks,
}

/// An iteration's.
#[derive(Debug, Clone, Copy, Default)]
struct Copies {
    out_bytes: u64,
    in_bytes: u64,
    /// None where no one counts them.
    waited_seconds: Option<f64>,
}

impl Between {
    fn link(self) -> Link {
        match self {
            Self::Host | Self::Chunks => Link::Host,
            Self::Stage(_) | Self::Ranks => Link::Peers,
        }
    }
}

impl Counters<'_> {
    /// What is predicted here beside what was measured. Where only one side has copies the other one had none: that is 0, not
    /// unknown. Nothing where one of them was not counted at all: by training commands.
    pub(super) fn beside(self, measured: Counters<'_>) -> Vec<Figure> {
        let is_counted = |of: Counters<'_>| (of.offload.is_some(), of.chunks.is_some());
        if is_counted(self) != is_counted(measured) {
            return Vec::new();
        }
        let (expected, counted) = (self.copies(), measured.copies());
        let mut between: Vec<Between> = expected.keys().chain(counted.keys()).copied().collect();
        between.sort_unstable();
        between.dedup();
        let at_host = self.host_bytes().zip(measured.host_bytes()).filter(|both| *both != (0, 0));
        let mut figures: Vec<Figure> = at_host.map(peak_at_host).into_iter().collect();
        for between in between {
            let none = Copies::default();
            let [expected, counted] = [&expected, &counted].map(|of| *of.get(&between).unwrap_or(&none));
            let quantity = Quantity::CopiedBytes(between.link());
            let ways = [(expected.out_bytes, counted.out_bytes), (expected.in_bytes, counted.in_bytes)];
            figures.extend(ways.map(|(predicted, measured)| Figure {
                quantity,
                predicted: predicted as f64,
                measured: measured as f64,
            }));
            if expected.waited_seconds.or(counted.waited_seconds).is_some() {
                figures.push(Figure {
                    quantity: Quantity::WaitedSeconds(between.link()),
                    predicted: expected.waited_seconds.unwrap_or(0.0),
                    measured: counted.waited_seconds.unwrap_or(0.0),
                });
            }
        }
        figures
    }

    /// The most bytes that are at the host: chunks take theirs at once.
    fn host_bytes(self) -> Option<u64> {
        let of_chunks = self.chunks.map(|chunks| chunks.host_bytes.0);
        of_chunks.or_else(|| self.offload.map(|offload| offload.host_peak.0))
    }

    fn copies(self) -> BTreeMap<Between, Copies> {
        let of_actions = self.offload.into_iter().flat_map(|offload| &offload.copies).map(|of| {
            let between = of.peer.map_or(Between::Host, Between::Stage);
            let waited_seconds = Some(of.waited_seconds);
            (between, Copies { out_bytes: of.out_bytes, in_bytes: of.in_bytes, waited_seconds })
        });
        of_actions.chain(self.chunks.into_iter().flat_map(of_chunks)).collect()
    }
}

/// What goes up and down, and what ranks that share chunks exchange, for which no waits are counted.
fn of_chunks(chunks: &ChunkRun) -> impl Iterator<Item = (Between, Copies)> {
    let linked = Copies {
        out_bytes: chunks.down_bytes,
        in_bytes: chunks.up_bytes,
        waited_seconds: Some(chunks.fetch_seconds + chunks.leave_seconds),
    };
    let shared =
        Copies { out_bytes: chunks.scattered_bytes, in_bytes: chunks.gathered_bytes, waited_seconds: None };
    let is_shared = shared.out_bytes > 0 || shared.in_bytes > 0;
    [(Between::Chunks, linked)].into_iter().chain(is_shared.then_some((Between::Ranks, shared)))
}

fn peak_at_host((predicted, measured): (u64, u64)) -> Figure {
    let quantity = Quantity::PeakBytes(Accounting::Host);
    Figure { quantity, predicted: predicted as f64, measured: measured as f64 }
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::bytes::Bytes;
    use loadmaster_proto::measure::offload::CopyCount;

    use super::*;

    fn copies(peer: Option<u32>, out_bytes: u64, in_bytes: u64, waited_seconds: f64) -> CopyCount {
        CopyCount { peer, out_bytes, in_bytes, waited_seconds }
    }

    fn offload(host_peak: u64, copies: &[CopyCount]) -> Offload {
        Offload { host_peak: Bytes(host_peak), peer_pool_peak: Bytes(0), copies: copies.to_vec() }
    }

    fn of_actions(offload: &Offload) -> Counters<'_> {
        Counters { offload: Some(offload), chunks: None }
    }

    fn figure(quantity: Quantity, predicted: f64, measured: f64) -> Figure {
        Figure { quantity, predicted, measured }
    }

    const AT_HOST: Quantity = Quantity::PeakBytes(Accounting::Host);

    /// Each place has a figure for each way and one for its waits, beside the same place's.
    #[test]
    fn every_link_has_both_ways_and_its_waits() {
        use Quantity::{CopiedBytes, WaitedSeconds};
        let predicted = offload(64, &[copies(None, 10, 12, 0.0), copies(Some(2), 7, 7, 0.5)]);
        let measured = offload(60, &[copies(None, 10, 12, 0.25), copies(Some(2), 8, 7, 0.25)]);
        assert_eq!(
            of_actions(&predicted).beside(of_actions(&measured)),
            [
                figure(AT_HOST, 64.0, 60.0),
                figure(CopiedBytes(Link::Host), 10.0, 10.0),
                figure(CopiedBytes(Link::Host), 12.0, 12.0),
                figure(WaitedSeconds(Link::Host), 0.0, 0.25),
                figure(CopiedBytes(Link::Peers), 7.0, 8.0),
                figure(CopiedBytes(Link::Peers), 7.0, 7.0),
                figure(WaitedSeconds(Link::Peers), 0.5, 0.25),
            ]
        );
    }

    /// Copies that are predicted and never made, or the other way round, are errors, not unknown.
    #[test]
    fn copies_of_one_side_alone_are_beside_nothing() {
        let (some, none) = (offload(0, &[copies(Some(1), 5, 6, 0.125)]), offload(0, &[]));
        let peers = Quantity::CopiedBytes(Link::Peers);
        let waited = Quantity::WaitedSeconds(Link::Peers);
        let told = of_actions(&some).beside(of_actions(&none));
        assert_eq!(told, [figure(peers, 5.0, 0.0), figure(peers, 6.0, 0.0), figure(waited, 0.125, 0.0)]);
        let told = of_actions(&none).beside(of_actions(&some));
        assert_eq!(told, [figure(peers, 0.0, 5.0), figure(peers, 0.0, 6.0), figure(waited, 0.0, 0.125)]);
    }

    /// What was not counted is no 0: a training command counts nothing, and earlier plans predict nothing.
    #[test]
    fn what_was_not_counted_is_not_compared() {
        let some = offload(1, &[copies(None, 5, 5, 0.0)]);
        let nothing = Counters { offload: None, chunks: None };
        assert_eq!(of_actions(&some).beside(nothing), []);
        assert_eq!(nothing.beside(of_actions(&some)), []);
        assert_eq!(nothing.beside(nothing), []);
    }

    /// Chunks go over the host's link, and between the ranks that share them; what passes have at the host is copied beside them.
    #[test]
    fn chunks_are_counted_as_actions_are() {
        use Quantity::{CopiedBytes, WaitedSeconds};
        let run = |up_bytes, gathered_bytes, fetch_seconds| ChunkRun {
            host_bytes: Bytes(99),
            up_bytes,
            down_bytes: 3,
            gathered_bytes,
            scattered_bytes: 2 * gathered_bytes,
            fetch_seconds,
            leave_seconds: 0.5,
            step_seconds: 9.0,
            ..ChunkRun::default()
        };
        let kept = offload(40, &[copies(None, 1, 1, 0.0)]);
        let (predicted, measured) = (run(8, 4, 0.25), run(9, 4, 0.0));
        let of = |chunks| Counters { offload: Some(&kept), chunks: Some(chunks) };
        assert_eq!(
            of(&predicted).beside(of(&measured)),
            [
                figure(AT_HOST, 99.0, 99.0),
                figure(CopiedBytes(Link::Host), 1.0, 1.0),
                figure(CopiedBytes(Link::Host), 1.0, 1.0),
                figure(WaitedSeconds(Link::Host), 0.0, 0.0),
                figure(CopiedBytes(Link::Host), 3.0, 3.0),
                figure(CopiedBytes(Link::Host), 8.0, 9.0),
                figure(WaitedSeconds(Link::Host), 0.75, 0.5),
                figure(CopiedBytes(Link::Peers), 8.0, 8.0),
                figure(CopiedBytes(Link::Peers), 4.0, 4.0),
            ]
        );
        let alone = run(8, 0, 0.0);
        let of = |chunks| Counters { offload: None, chunks: Some(chunks) };
        assert_eq!(of(&alone).beside(of(&alone)).len(), 4, "one rank exchanges nothing with others");
    }
}

//! What is done to a block (MPress, III-D): what delays its stage least.
//!
//! A copy is hidden as long as both its ways fit between the block's uses. The rule sees neither the queue of a link nor
//! the bytes in transit; the simulation does that the plan is held to.

#[cfg(test)]
mod tests;

/// What may be done to a block, and how long that takes; none of what cannot be done to it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Costs {
    /// From the end of the step that leaves it to the start of the one that needs it.
    pub interval_seconds: f64,
    /// To the host and back.
    pub host_seconds: Option<f64>,
    /// To its peers and back.
    pub peer_seconds: Option<f64>,
    /// Computing it once more.
    pub again_seconds: Option<f64>,
}

/// What is done to a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Choice {
    /// It goes to the host.
    Host,
    /// It is recomputed.
    Recompute,
    /// It goes to peers.
    Peers,
}

impl Costs {
    /// What a choice adds to the time of the stage; none where it cannot be made.
    pub fn added(&self, choice: Choice) -> Option<f64> {
        let beyond = |seconds: f64| (seconds - self.interval_seconds).max(0.0);
        match choice {
            Choice::Host => self.host_seconds.map(beyond),
            Choice::Peers => self.peer_seconds.map(beyond),
            Choice::Recompute => self.again_seconds,
        }
    }

    /// What adds least. Of equal ones the host comes first where it adds nothing, as it takes no one's memory; then
    /// recomputing, which takes no peer's; then peers.
    pub fn least(&self) -> Option<Choice> {
        if self.added(Choice::Host) == Some(0.0) {
            return Some(Choice::Host);
        }
        let in_order = [Choice::Recompute, Choice::Peers, Choice::Host];
        let added = in_order.into_iter().filter_map(|choice| Some((choice, self.added(choice)?)));
        added.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(choice, _)| choice)
    }
}

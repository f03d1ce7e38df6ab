//! What a stage hands to another.

use super::Handover;
use super::event_loop::{CopyEventLoop, Stage};
use super::lanes::What;
use crate::Overlap;

impl CopyEventLoop<'_> {
    /// Seconds over an edge.
    pub(super) fn crossing(&self, handed: Handover) -> f64 {
        let edge = self.tables.of.edges[handed.edge as usize];
        if handed.is_backward { edge.backward } else { edge.forward }
    }

    /// Ends a step and hands on what came out of it.
    pub(super) fn end_step(&mut self, device: usize, start: f64, end: f64) {
        let step = self.tables.of.devices[device].steps[self.devices[device].step];
        let sends = step.gives.map(|handed| (handed, self.crossing(handed)));
        let own = &mut self.devices[device];
        own.time = end;
        own.times.busy += end - start;
        own.step += 1;
        own.at = Stage::Leaving;
        if self.keep.steps {
            own.times.steps.push((start, end));
        }
        let Some((handed, sends)) = sends else { return };
        let sent = &mut own.sent[usize::from(handed.is_backward)];
        let from = match self.tables.of.overlap {
            Overlap::Computing => {
                let from = end.max(*sent);
                *sent = from + sends;
                from
            }
            // Whoever receives pays for the way itself if it cannot compute meanwhile.
            Overlap::Nothing => {
                *sent = end;
                own.time = end + sends;
                end
            }
        };
        let at = self.tables.at(handed);
        self.arrivals[at] = *sent;
        let taker = self.tables.takers[at];
        if (taker as usize) < self.devices.len() && taker as usize != device {
            self.awake.push(taker);
        }
        let over = from + sends;
        if over <= from {
            // What takes no time takes nothing of a way: its end, which comes first at a moment, would find no beginning.
            return;
        }
        for &route in &self.tables.routes[2 * handed.edge as usize + usize::from(handed.is_backward)] {
            self.happens_at(from, device as u32, What::Crosses { route });
            self.happens_at(over, device as u32, What::Crossed { route });
        }
    }
}

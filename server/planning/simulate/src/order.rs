//! The order of the passes on each device.

use loadmaster_proto::training::Schedule;
use loadmaster_proto::training::schedule::Pass;

/// Who passes what when.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Order {
    /// All forward, then all backward passes.
    Gpipe,
    /// One forward, one backward, with a flush at the end of each iteration.
    OneFOneB,
    /// 1F1B with several chunks of the chain on each device, chunk k on device k mod `devices`, in the order of
    /// Megatron-LM's interleaved schedule: chunks and micro-batches are multiples of the devices.
    Interleaved {
        /// Devices of the pipeline.
        devices: u32,
    },
    /// 1F1B that never flushes: every micro-batch updates the weights, and each in flight keeps the version that
    /// it went forward with.
    PipeDream,
}

impl From<Schedule> for Order {
    fn from(schedule: Schedule) -> Self {
        match schedule {
            Schedule::Gpipe => Self::Gpipe,
            Schedule::OneFOneB => Self::OneFOneB,
            Schedule::PipeDream => Self::PipeDream,
        }
    }
}

/// A pass of a stage, or of a chunk, on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// Index of the stage or chunk in the chain's order.
    pub stage: u32,
    /// Which pass.
    pub pass: Pass,
}

impl Order {
    /// The turns of every device, in order.
    pub fn turns(self, stages: usize, micro_batches: u32) -> Vec<Vec<Turn>> {
        let count = u32::try_from(stages).unwrap_or(u32::MAX);
        let of_stage = |schedule: Schedule| {
            (0..count)
                .map(|stage| {
                    let passes = schedule.passes(count, stage, micro_batches);
                    passes.into_iter().map(|pass| Turn { stage, pass }).collect()
                })
                .collect()
        };
        match self {
            Self::Gpipe => of_stage(Schedule::Gpipe),
            // Without a flush the order is the same, only that it goes on.
            Self::OneFOneB | Self::PipeDream => of_stage(Schedule::OneFOneB),
            Self::Interleaved { devices } => {
                (0..devices).map(|device| interleaved(device, devices, count, micro_batches)).collect()
            }
        }
    }
}

/// Megatron-LM's `forward_backward_pipelining_with_interleaving`: micro-batches go in groups of as many as there
/// are devices through one chunk after another; `2 (p − r − 1) + (v − 1) p` forward passes come first.
fn interleaved(device: u32, devices: u32, stages: u32, micro_batches: u32) -> Vec<Turn> {
    let chunks = stages / devices.max(1);
    let total = micro_batches.saturating_mul(chunks);
    let group = devices.saturating_mul(chunks).max(1);
    // The chunk and the micro-batch of a device's pass number `index`.
    let place = |index: u32| (index % group / devices, index / group * devices + index % devices);
    let forward = |index: u32| {
        let (chunk, micro_batch) = place(index);
        Turn { stage: chunk * devices + device, pass: Pass::Forward(micro_batch) }
    };
    let backward = |index: u32| {
        let (chunk, micro_batch) = place(index);
        Turn { stage: (chunks - 1 - chunk) * devices + device, pass: Pass::Backward(micro_batch) }
    };
    let warm_up = (2 * (devices - device - 1) + chunks.saturating_sub(1) * devices).min(total);
    let mut turns: Vec<Turn> = (0..warm_up).map(forward).collect();
    for index in warm_up..total {
        turns.push(forward(index));
        turns.push(backward(index - warm_up));
    }
    turns.extend((total - warm_up..total).map(backward));
    turns
}

/// By stage: the most micro-batches between their forward and backward pass at once. A device passes one after
/// another, so that the order is all that counts.
pub(super) fn in_flight(turns: &[Vec<Turn>], stages: usize) -> Vec<u32> {
    let (mut open, mut most) = (vec![0_u32; stages], vec![0_u32; stages]);
    for turn in turns.iter().flatten() {
        let stage = turn.stage as usize;
        if let (Some(open), Some(most)) = (open.get_mut(stage), most.get_mut(stage)) {
            count(open, most, turn.pass);
        }
    }
    most
}

/// By device: the same over all of its chunks. They are not full at the same moment, so that it may be less than
/// what its chunks have at most, added up.
pub(super) fn at_once(turns: &[Vec<Turn>]) -> Vec<u32> {
    let of_device = |turns: &Vec<Turn>| {
        let (mut open, mut most) = (0, 0);
        turns.iter().for_each(|turn| count(&mut open, &mut most, turn.pass));
        most
    };
    turns.iter().map(of_device).collect()
}

fn count(open: &mut u32, most: &mut u32, pass: Pass) {
    match pass {
        Pass::Forward(_) => *open += 1,
        Pass::Backward(_) => *open = open.saturating_sub(1),
    }
    *most = (*most).max(*open);
}

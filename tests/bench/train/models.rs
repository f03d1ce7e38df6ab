//! The machine, the models, and plans for them.

use std::fmt;

use anyhow::{Result, bail};

use crate::table::mib;
use crate::train::rule::{PEER, RECOMPUTE};
use crate::trial::scene::{Answer, Profiled, Scene};

/// CPU slots of the worker.
pub(crate) const SLOTS: usize = 4;
/// Of copies, as the worker paces them and requests give them.
pub(crate) const RATES: &str = "host=1GB/s,peer=4GB/s";
/// Samples of a micro-batch.
const MICRO_BATCH_SIZE: u32 = 4;
/// Exit code of a request that makes no sense.
const USAGE: i32 = 2;

/// How large everything is.
#[derive(Debug, Clone)]
pub(crate) struct Setting {
    /// Options of `profile run` that name the model, but for its blocks.
    model: &'static str,
    micro_batches: u32,
    /// Of a slot.
    pub(crate) capacity_bytes: u64,
    /// Of a search.
    search_time: &'static str,
    /// Most blocks of a model that is tried.
    pub(crate) most_blocks: u32,
    /// Rules whose largest models all are trained with: all that may do more train them, too.
    pub(crate) sized_by: &'static [&'static str],
    /// Of the model whose copies are to be hidden.
    pub(crate) hidden_blocks: u32,
}

/// Layers that take tens of milliseconds, and slots that hold a few of them.
pub(crate) const WHOLE: Setting = Setting {
    model: "--hidden-size 256 --heads 4 --sequence-length 128 --vocabulary-size 512",
    micro_batches: 8,
    capacity_bytes: 72 << 20,
    search_time: "20s",
    most_blocks: 128,
    sized_by: &[PEER, RECOMPUTE],
    hidden_blocks: 4,
};

/// The same, so small that all of it takes a minute.
pub(crate) const QUICK: Setting = Setting {
    model: "--hidden-size 64 --heads 4 --sequence-length 32 --vocabulary-size 128",
    micro_batches: 4,
    capacity_bytes: 3 << 20,
    search_time: "5s",
    most_blocks: 10,
    sized_by: &[RECOMPUTE],
    hidden_blocks: 2,
};

impl Setting {
    /// That blocks may take, three times as much as all slots have: that of a DGX-1 beside its eight GPUs.
    pub(crate) fn host_bytes(&self) -> u64 {
        3 * SLOTS as u64 * self.capacity_bytes
    }

    /// The same as an option has it.
    pub(crate) fn host(&self) -> String {
        format!("{}B", self.host_bytes())
    }

    /// So many slots.
    pub(crate) fn slots(&self, count: usize) -> Slots {
        Slots { count, capacity_bytes: self.capacity_bytes }
    }

    /// A planner, and a worker whose copies are paced.
    pub(crate) fn scene(&self, slots: Slots, rates: &str) -> Scene {
        // More than requests may take: what a plan takes is measured, not what a worker refuses.
        let host = format!("{}B", 2 * self.host_bytes());
        Scene::start(&slots.to_string(), &["--host-memory", &host, "--cpu-links", rates])
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{SLOTS} CPU slots of {}, {} of the host's memory, copies at {RATES}; GPT-2, Adam, fp32, 1F1B, {} micro-batches of \
             {MICRO_BATCH_SIZE} samples; bytes of the allocated ledger, of the fullest stage the device's, of all stages together \
             the host's and those set aside for others",
            mib(self.capacity_bytes),
            mib(self.host_bytes()),
            self.micro_batches,
        )
    }
}

/// Equal devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slots {
    pub(crate) count: usize,
    pub(crate) capacity_bytes: u64,
}

impl fmt::Display for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}B", self.count, self.capacity_bytes)
    }
}

/// Models of any number of blocks, profiled as they are asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Models<'a> {
    pub(crate) scene: &'a Scene,
    pub(crate) setting: &'a Setting,
}

impl Models<'_> {
    /// Profiles the model of so many blocks, unless that is done. Its layers are those of the others, and measured once.
    pub(crate) fn profile(&self, blocks: u32) -> Result<Profiled> {
        let Setting { model, micro_batches, .. } = self.setting;
        // PipeDream knows no weight that two stages share, and all rules are to train the same models.
        let options = format!(
            "--model gpt2 --untied-head --blocks {blocks} {model} --micro-batch-size {MICRO_BATCH_SIZE} \
             --micro-batches {micro_batches} --optimizer adam --schedule 1f1b"
        );
        self.scene.profile(&format!("blocks-{blocks}"), &options)
    }

    /// Parameters of the model of so many blocks; 0 of none.
    pub(crate) fn parameters(&self, blocks: u32) -> Result<u64> {
        if blocks > 0 { Ok(self.profile(blocks)?.parameters) } else { Ok(0) }
    }

    /// Asks for a plan on so many slots.
    pub(crate) fn recommend(&self, blocks: u32, slots: Slots, more: &[&str]) -> Result<Answer> {
        self.profile(blocks)?;
        let [size, times] = [MICRO_BATCH_SIZE, self.setting.micro_batches].map(|number| number.to_string());
        // Recorded sizes are predicted to the byte: there is nothing to keep free.
        let mut options =
            vec!["--safety-margin", "0", "--search-time", self.setting.search_time, "--timeout", "5m"];
        options.extend(["--micro-batch-size", &size, "--micro-batches", &times]);
        options.extend(more);
        self.scene.recommend(&format!("blocks-{blocks}"), &slots.to_string(), &options)
    }

    /// The same, of what the planner knows how to do: there is a plan, or there is none.
    ///
    /// # Errors
    /// Also when the planner refuses to be asked this.
    pub(crate) fn plan(&self, blocks: u32, slots: Slots, more: &[&str]) -> Result<Answer> {
        match self.recommend(blocks, slots, more)? {
            Err(refused) if refused.code == USAGE => {
                bail!("plan recommend {}: {}", more.join(" "), refused.message)
            }
            answer => Ok(answer),
        }
    }
}

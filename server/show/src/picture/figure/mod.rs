//! What the pictures show: values made of messages, with every text, grouping and omission decided. How it
//! looks is decided by those who draw them.

pub(super) mod facts;
pub(super) mod front;
pub(super) mod lists;
pub(super) mod memory;
pub(super) mod pass;
pub(super) mod pieces;
pub(super) mod placement;
pub(super) mod residency;
pub(super) mod schedule;
pub(super) mod step_bytes;
pub(super) mod timeline;

use front::Front;
use memory::Memory;
use placement::Placement;
use residency::Residency;
use schedule::Schedule;
use step_bytes::StepBytes;
use timeline::MemoryTimeline;

/// One picture.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Figure {
    /// The stages on the devices.
    Placement(Placement),
    /// The memory of the devices.
    Memory(Memory),
    /// One iteration.
    Schedule(Schedule),
    /// What devices hold in that iteration.
    MemoryTimeline(MemoryTimeline),
    /// Where chunks are, step by step.
    Residency(Residency),
    /// What the device holds meanwhile.
    StepBytes(StepBytes),
    /// Memory against time.
    Front(Front),
    Table(Table),
}

impl Figure {
    /// What is to be known about it, for people.
    pub(super) fn notes(&self) -> &[String] {
        match self {
            Self::Placement(Placement { notes, .. })
            | Self::Memory(Memory { notes, .. })
            | Self::Schedule(Schedule { notes, .. })
            | Self::MemoryTimeline(MemoryTimeline { notes, .. })
            | Self::Residency(Residency { notes, .. })
            | Self::StepBytes(StepBytes { notes, .. })
            | Self::Front(Front { notes, .. })
            | Self::Table(Table { notes, .. }) => notes,
        }
    }

    /// What it shows, in a sentence; empty where its heading says all.
    pub(super) fn summary(&self) -> &str {
        match self {
            Self::Placement(Placement { summary, .. })
            | Self::Schedule(Schedule { summary, .. })
            | Self::Residency(Residency { summary, .. })
            | Self::Front(Front { summary, .. }) => summary,
            Self::Memory(_) | Self::MemoryTimeline(_) | Self::StepBytes(_) | Self::Table(_) => "",
        }
    }
}

/// Cells under a header.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Table {
    pub head: Vec<String>,
    /// Rows of as many cells.
    pub rows: Vec<Vec<String>>,
    /// What is to be known about it, for people.
    pub notes: Vec<String>,
}

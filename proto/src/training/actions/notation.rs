//! Actions as people write them: `0/3..5@0,1=activations:host:1,2`.

use std::fmt;
use std::str::FromStr;

use super::{Action, Block, Destination, Optimization, StageActions, Stripe, Swap};
use crate::choice::Choice;
use crate::model::MAX_LAYERS;

/// An action of a stage of a pipeline.
///
/// ```
/// use loadmaster_proto::training::actions::StagedAction;
///
/// for text in [
///     "0/3..5=recompute",
///     "0/3=activations:host",
///     "1/3..5@0,2=activations:2@60%,3@40%:1,2",
///     "2/0..9=optimizer:host:0,4",
/// ] {
///     assert_eq!(text.parse::<StagedAction>()?.to_string(), text);
/// }
/// # Ok::<(), loadmaster_proto::training::actions::ParseActionError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StagedAction {
    /// Index of the stage.
    pub stage: u32,
    /// What it does.
    pub action: Action,
}

/// A text that is no action.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a memory optimization: {why}. Use STAGE/LAYERS[@SLOTS]=recompute or \
     STAGE/LAYERS[@SLOTS]=BLOCK:TO[:AFTER,BEFORE], for example 0/3..5=recompute, 0/0..5=activations:host:1,2 or \
     1/6@0=optimizer:2@60%,3@40%"
)]
pub struct ParseActionError {
    text: String,
    why: String,
}

impl FromStr for StagedAction {
    type Err = ParseActionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).map_err(|why| ParseActionError { text: text.to_owned(), why })
    }
}

fn parse(text: &str) -> Result<StagedAction, String> {
    let (place, optimization) = text.split_once('=').ok_or("`=` and an action are missing")?;
    let (stage, layers) = place.split_once('/').ok_or("`/` between stage and layers is missing")?;
    let (layers, slots) = match layers.split_once('@') {
        Some((_, "")) => {
            return Err("no micro-batch slot follows `@`. Remove `@` to select all slots".to_owned());
        }
        Some((layers, slots)) => (layers, numbers(slots)?),
        None => (layers, Vec::new()),
    };
    let (first, last) = layers.split_once("..").unwrap_or((layers, layers));
    Ok(StagedAction {
        stage: number(stage)?,
        action: Action {
            first_layer: number(first)?,
            last_layer: number(last)?,
            slots,
            optimization: parse_optimization(optimization)?,
        },
    })
}

/// How recomputing is written.
const AGAIN: &str = "recompute";

fn parse_optimization(text: &str) -> Result<Optimization, String> {
    if text == AGAIN {
        return Ok(Optimization::Recompute);
    }
    let mut parts = text.split(':');
    if parts.clone().any(|part| part == AGAIN) {
        let why = "recompute has no block and no destination. Use STAGE/LAYERS=recompute";
        return Err(why.to_owned());
    }
    let block = parts.next().unwrap_or_default();
    let block = Block::parse(block).map_err(|unknown| format!("expected recompute or a block: {unknown}"))?;
    let to = parts.next().ok_or(
        "the destination of the block is missing. Use host, or peer stages with shares, as in 2@60%,3@40%",
    )?;
    let (release_after, fetch_before) = match parts.next().map(numbers).transpose()?.as_deref() {
        None => (0, 0),
        Some(&[after, before]) => (after, before),
        Some(_) => return Err("AFTER,BEFORE must be two numbers of schedule steps, as in :1,2".to_owned()),
    };
    if parts.next().is_some() {
        return Err("something follows AFTER,BEFORE".to_owned());
    }
    let to = if to == "host" { Destination::Host } else { Destination::Peers(stripes(to)?) };
    Ok(Optimization::Swap(Swap { block, to, release_after, fetch_before }))
}

fn stripes(text: &str) -> Result<Vec<Stripe>, String> {
    let stripe = |text: &str| {
        let Some((stage, share)) = text.split_once('@') else {
            return Ok(Stripe { stage: number(text)?, share: Stripe::WHOLE });
        };
        let percent: f64 = share
            .strip_suffix('%')
            .and_then(|share| share.parse().ok())
            .ok_or("a share is a percentage, as in 2@60%")?;
        let share = (percent * f64::from(Stripe::WHOLE) / 100.0).round();
        if !(0.0..=f64::from(Stripe::WHOLE)).contains(&share) {
            return Err(format!("{percent}% is not a valid share of a block. Use 0.01% to 100%"));
        }
        // Within the whole, so that nothing is lost.
        Ok(Stripe { stage: number(stage)?, share: share as u32 })
    };
    text.split(',').map(stripe).collect()
}

fn numbers(text: &str) -> Result<Vec<u32>, String> {
    text.split(',').map(number).collect()
}

fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text:?} is not a number"))
}

impl fmt::Display for StagedAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.stage, self.action)
    }
}

/// Without its stage: `3..5@0,1=activations:host:1,2`.
impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.first_layer)?;
        if self.last_layer != self.first_layer {
            write!(f, "..{}", self.last_layer)?;
        }
        for (position, slot) in self.slots.iter().enumerate() {
            write!(f, "{}{slot}", if position == 0 { '@' } else { ',' })?;
        }
        match &self.optimization {
            Optimization::Recompute => write!(f, "={AGAIN}"),
            Optimization::Swap(swap) => write!(f, "={swap}"),
        }
    }
}

impl fmt::Display for Swap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.block)?;
        match &self.to {
            Destination::Host => write!(f, "host")?,
            Destination::Peers(stripes) => {
                for (position, Stripe { stage, share }) in stripes.iter().enumerate() {
                    let comma = if position == 0 { "" } else { "," };
                    if *share == Stripe::WHOLE {
                        write!(f, "{comma}{stage}")?;
                    } else {
                        write!(f, "{comma}{stage}@{}", Stripe::percent((*share).into()))?;
                    }
                }
            }
        }
        match (self.release_after, self.fetch_before) {
            (0, 0) => Ok(()),
            (after, before) => write!(f, ":{after},{before}"),
        }
    }
}

impl StageActions {
    /// The actions of each stage up to the last one that does anything, pools left to be chosen.
    pub fn by_stage(actions: Vec<StagedAction>) -> Vec<Self> {
        let last = actions.iter().map(|of| of.stage as usize).max();
        // A stage has a layer at least. Larger numbers are rejected by a later check of the plan.
        let count = last.map_or(0, |last| last.saturating_add(1).min(MAX_LAYERS));
        let mut all = vec![Self::default(); count];
        for StagedAction { stage, action } in actions {
            if let Some(of) = all.get_mut((stage as usize).min(MAX_LAYERS - 1)) {
                of.actions.push(action);
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_action_says_why() {
        for (text, why) in [
            ("0/3", "an action are missing"),
            ("3=recompute", "`/` between"),
            ("0/x=recompute", "\"x\" is not a number"),
            ("0/3=x", "activations, inputs"),
            ("0/3@=recompute", "no micro-batch slot follows `@`"),
            ("0/3=activations", "the destination of the block is missing"),
            ("0/3=weights:recompute", "recompute has no block and no destination"),
            ("0/3=recompute:weights", "recompute has no block and no destination"),
            ("0/3=activations:recompute:0,0", "Use STAGE/LAYERS=recompute"),
            ("0/3=activations:host:1", "two numbers of schedule steps"),
            ("0/3=activations:host:1,2:3", "follows AFTER,BEFORE"),
            ("0/3=activations:2@0.6", "percentage"),
            ("0/3=activations:2@160%", "not a valid share"),
        ] {
            let error = text.parse::<StagedAction>().unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("for example"), "{text}: {error}");
        }
    }

    #[test]
    fn actions_find_their_stages() {
        let parse = |text: &str| text.parse::<StagedAction>().unwrap();
        let staged = vec![parse("2/6=recompute"), parse("0/0..1=gradients:host"), parse("2/7=inputs:1")];
        let all = StageActions::by_stage(staged);
        assert_eq!(all.iter().map(|of| of.actions.len()).collect::<Vec<_>>(), [1, 0, 2]);
        assert!(StageActions::by_stage(Vec::new()).is_empty());
        let beyond = StageActions::by_stage(vec![parse("4294967295/6=recompute")]);
        assert_eq!(beyond.len(), MAX_LAYERS, "so that whoever checks refuses it");
    }
}

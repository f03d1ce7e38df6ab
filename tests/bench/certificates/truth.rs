//! What is true of a question.

use loadmaster_oracle::{Space, TooMany, Truth};

use crate::certificates::asked::plan_rules;
use crate::certificates::places::fleet;
use crate::certificates::prices::{Sharing, TablePrices};
use crate::certificates::question::Question;
use crate::certificates::scene::Scene;

/// What plans are weighed by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) sharing: Sharing,
    /// Most plans to look at.
    pub(crate) limit: u64,
}

/// Looks at all plans of a question.
pub(crate) fn truth(scene: &Scene, question: &Question, terms: Terms) -> Result<Truth, TooMany> {
    let (rules, fleet) = (plan_rules(scene, question), fleet(scene, question));
    let prices = TablePrices {
        scene,
        fleet: &fleet,
        margin: question.margin,
        sharing: terms.sharing,
        by_ranks: false,
    };
    let space = Space { prices: &prices, fleet: &fleet, rules: &rules };
    Truth::find(&space, &question.goal(), terms.limit)
}

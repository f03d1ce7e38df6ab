//! A request with the revisions of all that its answer rests on.

use std::collections::HashMap;

use loadmaster_proto::wire::v1;
use prost::Message as _;
use sha2::{Digest, Sha256};

/// Equal questions have equal answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Question([u8; 32]);

impl Question {
    /// Of a request without a document, and what it names, in order: `revisions`, and of the corrections that it is
    /// to be answered with `corrections`.
    pub(super) fn of(request: &v1::RecommendPlanRequest, revisions: &[&str], corrections: &[&str]) -> Self {
        // A map has no order.
        let mut prices: Vec<(&String, &f64)> = request.hourly_prices.iter().collect();
        prices.sort_unstable_by_key(|(kind, _)| *kind);
        let request = v1::RecommendPlanRequest { hourly_prices: HashMap::new(), ..request.clone() };
        let mut hash = Sha256::new();
        let mut add = |bytes: &[u8]| {
            // With its length, so that no two lists of parts are the same bytes.
            hash.update(bytes.len().to_le_bytes());
            hash.update(bytes);
        };
        add(&request.encode_to_vec());
        add(&prices.len().to_le_bytes());
        for (kind, price) in prices {
            add(kind.as_bytes());
            add(&price.to_bits().to_le_bytes());
        }
        for parts in [revisions, corrections] {
            add(&parts.len().to_le_bytes());
            parts.iter().for_each(|part| add(part.as_bytes()));
        }
        Self(hash.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever can change an answer changes the question, and nothing else does.
    #[test]
    fn questions_differ_where_answers_may() {
        let prices = |pairs: &[(&str, f64)]| {
            pairs.iter().map(|&(kind, price)| (kind.to_owned(), price)).collect::<HashMap<_, _>>()
        };
        let request = v1::RecommendPlanRequest {
            profile: "profiles/p".to_owned(),
            hourly_prices: prices(&[("a", 1.0), ("b", 2.0), ("c", 3.0)]),
            ..Default::default()
        };
        let same = v1::RecommendPlanRequest {
            hourly_prices: prices(&[("c", 3.0), ("b", 2.0), ("a", 1.0)]),
            ..request.clone()
        };
        let asked = Question::of(&request, &["7", "8"], &[]);
        assert_eq!(asked, Question::of(&same, &["7", "8"], &[]));
        let dearer = v1::RecommendPlanRequest {
            hourly_prices: prices(&[("a", 1.0), ("b", 2.0), ("c", 4.0)]),
            ..request.clone()
        };
        let other = v1::RecommendPlanRequest { margin: Some(0.0), ..request.clone() };
        for (request, revisions, corrections) in [
            (&dearer, &["7", "8"][..], &[][..]),
            (&other, &["7", "8"], &[]),
            (&request, &["7", "9"], &[]),
            (&request, &["8", "7"], &[]),
            (&request, &["78"], &[]),
            (&request, &["7"], &["8"]),
            (&request, &["7", "8"], &["c"]),
        ] {
            assert_ne!(asked, Question::of(request, revisions, corrections), "{revisions:?} {corrections:?}");
        }
    }
}

use proptest::prelude::*;

use super::*;

/// A tensor in milliseconds.
fn tensor(interval: f64, host: f64, peers: f64, again: f64) -> Costs {
    Costs {
        interval_seconds: interval,
        host_seconds: Some(host),
        peer_seconds: Some(peers),
        again_seconds: Some(again),
    }
}

/// Table III. Of its times the text gives those of t2's and t3's recomputation and copies and t5's ratio; the others are
/// what its words allow.
#[test]
fn the_six_published_decisions() {
    let table = [
        ("BERT t1: the longest interval covers both swaps", tensor(300.0, 120.0, 16.0, 5.0), Choice::Host),
        (
            "BERT t2: host beyond the interval, again 3 ms, peers 3 ms and hidden",
            tensor(20.0, 23.0, 3.0, 3.0),
            Choice::Peers,
        ),
        (
            "BERT t3: host far too slow, again and peers both add 4 ms",
            tensor(1.0, 38.0, 5.0, 4.0),
            Choice::Recompute,
        ),
        ("GPT t4: a long interval", tensor(500.0, 200.0, 26.0, 10.0), Choice::Host),
        ("GPT t5: peers 7.6 times as fast as the host", tensor(10.0, 76.0, 10.0, 6.0), Choice::Peers),
        ("GPT t6: again adds least", tensor(2.0, 76.0, 10.0, 3.0), Choice::Recompute),
    ];
    for (tensor, costs, decision) in table {
        assert_eq!(costs.least(), Some(decision), "{tensor}");
    }
}

#[test]
fn what_cannot_be_done_is_not_chosen() {
    let state = Costs { again_seconds: None, ..tensor(1.0, 9.0, 20.0, 0.0) };
    assert_eq!(state.least(), Some(Choice::Host));
    assert_eq!(Costs { host_seconds: None, ..state }.least(), Some(Choice::Peers));
    assert_eq!(Costs { host_seconds: None, peer_seconds: None, ..state }.least(), None);
}

proptest! {
    /// Nothing adds less than the choice, and a longer interval never adds more.
    #[test]
    fn the_choice_adds_least(interval in 0.0..10.0_f64, longer in 0.0..10.0_f64, of in proptest::array::uniform3(0.0..10.0_f64)) {
        let costs = tensor(interval, of[0], of[1], of[2]);
        let least = costs.least().and_then(|choice| costs.added(choice)).unwrap();
        for choice in [Choice::Host, Choice::Recompute, Choice::Peers] {
            prop_assert!(least <= costs.added(choice).unwrap());
        }
        let relaxed = Costs { interval_seconds: interval + longer, ..costs };
        prop_assert!(relaxed.least().and_then(|choice| relaxed.added(choice)).unwrap() <= least);
    }
}

//! Keeps `make bench-chunks` from rotting: tiny models, all the way. What it finds on larger ones is no test's business.

use std::process::Command;

use loadmaster_tests::{Output, binary};

/// Every rule trains its largest model as predicted, and the next one has no plan; the same model trains by all of them, and
/// moves what was planned. Ours is the largest.
#[test]
fn every_rule_trains_what_it_said() {
    let output = Output::of(Command::new(binary("bench-chunks")).arg("--quick"));
    let text = output.text();
    assert_eq!(output.code, 0, "{text}");
    assert!(!text.contains("NOT as"), "{text}");
    let blocks = |rule: &str| -> u32 {
        let line = text.lines().find(|line| line.starts_with(&format!("{rule}: "))).unwrap();
        assert!(line.contains("(to the byte)"), "{line}");
        line[rule.len() + 2..].split(' ').next().unwrap().parse().unwrap()
    };
    let others = ["plain", "static (ZeRO-Offload)", "PatrickStar mode, LRU", "PatrickStar mode, Belady"];
    let largest = others.map(blocks).into_iter().max().unwrap();
    assert!(blocks("ours") > largest, "{text}");
    assert_eq!(text.matches("one block more has no plan: ").count(), 5, "{text}");
    // A line of each among the largest and those that are compared; static and ours also at the slower pace.
    for (rule, lines) in [(others[1], 3), (others[2], 2), (others[3], 2), ("ours", 3)] {
        assert_eq!(text.lines().filter(|line| line.starts_with(rule)).count(), lines, "{rule}: {text}");
    }
}

//! Keeps `make bench-chunks` from rotting: tiny models, all the way. What it finds on larger ones is no test's business.

use std::process::Command;

use loadmaster_proto::bytes::Bytes;
use loadmaster_tests::{Output, binary};

/// Every rule trains its largest model as predicted, and the next one has no plan; the same model trains by all of them, and
/// moves what was planned. Ours is the largest.
#[test]
#[ignore = "slow: make test-slow"]
fn every_rule_trains_what_it_said() {
    let output = Output::of(Command::new(binary("bench")).args(["chunks", "--quick"]));
    let text = output.text();
    assert_eq!(output.code, 0, "{text}");
    assert!(!text.contains("NOT as"), "{text}");
    let blocks = |rule: &str| -> u32 {
        let line = text.lines().find(|line| line.starts_with(&format!("{rule}: "))).unwrap();
        assert!(line.contains("(to the byte)"), "{line}");
        line[rule.len() + 2..].split(' ').next().unwrap().parse().unwrap()
    };
    let others = ["plain", "static (ZeRO-Offload)", "PatrickStar"];
    let largest = others.map(blocks).into_iter().max().unwrap();
    assert!(blocks("ours") > largest, "{text}");
    assert_eq!(text.matches("one block more has no plan: ").count(), 4, "{text}");
    // How much of both caps chunks take is what their bytes come to, as they are printed, and what was planned.
    assert!(text.contains("used: ") && !text.contains("NOT as planned"), "{text}");
    let used = |rule: &str| -> f64 {
        let mut lines = text.lines().skip_while(|line| !line.starts_with(&format!("{rule}: ")));
        let line = lines.nth(1).unwrap();
        assert!(line.starts_with("  used: ") && line.contains("(as planned"), "{line}");
        let bytes = |before: &str| -> [f64; 2] {
            let words: Vec<&str> = line.split(before).next().unwrap().split(' ').rev().collect();
            let of = |at: usize| format!("{}{}", words[at + 1], words[at]).parse::<Bytes>().unwrap().0 as f64;
            assert_eq!(words[2], "of", "{line}");
            [of(3), of(0)]
        };
        let ([device, device_room], [host, host_room]) = (bytes(" of the device"), bytes(" of the host"));
        let share = 100.0 * (device + host) / (device_room + host_room);
        let told: f64 = line["  used: ".len()..].split(' ').next().unwrap().parse().unwrap();
        assert!((share - told).abs() < 0.1, "{share} is not {told}: {line}");
        assert!(device <= device_room && host <= host_room, "{line}");
        told
    };
    // Of caps that a block takes a fiftieth of.
    assert!(used("ours") >= 96.0, "{text}");
    assert!(others[1..].iter().all(|rule| used(rule) <= 100.0), "{text}");
    // A line of each among the largest and those that are compared; static and ours also at the slower pace.
    for (rule, lines) in [(others[1], 3), (others[2], 2), ("ours", 3)] {
        assert_eq!(text.lines().filter(|line| line.starts_with(rule)).count(), lines, "{rule}: {text}");
    }
}

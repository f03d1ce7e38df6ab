//! How long a simulation takes. `cargo test --release -p loadmaster-planning --lib copies::tests::speed -- --ignored
//! --nocapture` prints it.

use std::time::Instant;

use super::*;

/// 8 stages of 12 layers, 64 micro-batches, every layer swapped; beside passes alone.
#[test]
#[ignore = "prints times, and proves nothing"]
fn eight_stages_of_twelve_layers_and_sixty_four_micro_batches() {
    let (count, micro_batches) = (8, 64);
    let layer = LayerSeconds { forward: 1.0, backward: 2.0, again: 1.0, update: 0.1 };
    let actions = StageActions { actions: vec![swap(0, 11, 4)], ..StageActions::default() };
    let stage = TestStage { layers: vec![layer; 12], actions, bytes: 1_500_000 };
    let edges = [Edge { forward: 0.1, backward: 0.1 }; 7];
    let began = Instant::now();
    let devices = devices(&vec![stage; count], Schedule::OneFOneB, micro_batches);
    println!("steps and trips from actions: {:.2} ms", began.elapsed().as_secs_f64() * 1e3);
    let rate = Rate::new(1e6, 1e-3);
    let hosts = (0..8).fold(Links::default(), |links, device| links.host(device, rate, rate));
    let switches = (0..4).fold(hosts.clone(), |links, pair| links.uplink(&[2 * pair, 2 * pair + 1], 1.5e6));
    let one_switch = hosts.clone().uplink(&[0, 1, 2, 3, 4, 5, 6, 7], 6e6);
    let slots = Links {
        cores: vec![Cores { devices: (0..8).collect(), cores: 6.0, crowded_ratio: 1.0 }],
        ..hosts.clone()
    };
    for (name, links, overlap) in [
        ("nothing shared", &hosts, Overlap::Computing),
        ("nothing shared, transfers block", &hosts, Overlap::Nothing),
        ("four switches", &switches, Overlap::Computing),
        ("one switch", &one_switch, Overlap::Computing),
        ("eight slots on six cores", &slots, Overlap::Computing),
    ] {
        let stepped = Stepped { devices: &devices, edges: &edges, overlap, links };
        let mut fastest = f64::INFINITY;
        let mut seconds = 0.0;
        for _ in 0..20 {
            let began = Instant::now();
            seconds = simulate(&stepped, Keep::default()).unwrap().iteration_seconds;
            fastest = fastest.min(began.elapsed().as_secs_f64());
        }
        println!("{name}: {:.2} ms ({seconds:.1} s an iteration)", fastest * 1e3);
    }
}

//! Measurements on real GPUs, kept as documents: `deploy/guide/accuracy.md` has exactly these figures.

use serde_json::Value;

const PAGE: &str = include_str!("../../../../deploy/guide/accuracy.md");

fn rows(document: &str, key: &str) -> Vec<Value> {
    let document: Value = serde_json::from_str(document).unwrap();
    document[key].as_array().unwrap().clone()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

/// Predicted and measured.
fn pair(value: &Value) -> [f64; 2] {
    ["predicted", "measured"].map(|key| number(&value[key]))
}

/// Both as `show` has them, and the error.
fn compared(value: &Value, show: impl Fn(f64) -> String) -> String {
    let [predicted, measured] = pair(value);
    let error = 100.0 * (predicted / measured - 1.0);
    format!("{} | {} | {error:+.1} %", show(predicted), show(measured))
}

fn time(milliseconds: f64) -> String {
    if milliseconds >= 1e3 { format!("{:.2} s", milliseconds / 1e3) } else { format!("{milliseconds:.1} ms") }
}

/// Every plan that was measured is a row of the page's tables, errors computed from what was measured; and each is of a
/// profile whose options are given.
#[test]
fn plans_on_a_gpu_are_rows_of_the_page() {
    for document in [include_str!("h100.json"), include_str!("h100_chunks.json")] {
        let plans = rows(document, "plans");
        let profiles: Value = serde_json::from_str::<Value>(document).unwrap()["profiles"].clone();
        for of in &plans {
            let [model, plan] = ["model", "plan"].map(|key| of[key].as_str().unwrap());
            let [peak, iteration] =
                [compared(&of["peak_gib"], |gib| format!("{gib:.2}")), compared(&of["iteration_ms"], time)];
            let down = of["down_gib"].as_f64().map_or_else(String::new, |down| format!(", {down:.2}"));
            // Each way, or to the device where as many come from there as `down_gib` says.
            let copies = of["copied_gib"].as_f64().map_or_else(
                || "–".to_owned(),
                |copied| {
                    let [predicted, measured] = pair(&of["waited_ms"]);
                    format!("{copied:.2}{down} GiB; {predicted:.0}, {measured:.0} ms")
                },
            );
            let row = format!("| {model} | {plan} | {peak} | {iteration} | {copies} |");
            assert!(PAGE.contains(&row), "{row}");
            assert!(profiles[model].is_string(), "{model}");
        }
        let models = profiles.as_object().unwrap();
        let is_of = |line: &&str| models.keys().any(|model| line.starts_with(&format!("| {model} |")));
        assert_eq!(PAGE.lines().filter(is_of).count(), plans.len());
    }
}

/// Every rule that `bench chunks --gpu` trained is a row of the page, and the ratios behind the table are those of the measured
/// seconds.
#[test]
fn rules_on_a_gpu_are_rows_of_the_page() {
    let rules = rows(include_str!("h200_rules.json"), "rules");
    for of in &rules {
        let (rule, blocks, millions) =
            (of["rule"].as_str().unwrap(), &of["blocks"], number(&of["parameters_millions"]));
        let moved = if of["iteration_ms"].is_null() {
            "– | –".to_owned()
        } else {
            let [predicted, measured] = pair(&of["iteration_ms"]).map(|of| of / 1e3);
            format!("{predicted:.2}, {measured:.2} s | {}, {} MB", of["up_mb"], of["down_mb"])
        };
        let row = format!("| {rule} | {blocks} blocks, {millions:.2} M | {moved} |");
        assert!(PAGE.contains(&row), "{row}");
    }
    let measured = |name: &str| {
        let of = rules.iter().find(|of| of["rule"].as_str().unwrap().starts_with(name)).unwrap();
        number(&of["iteration_ms"]["measured"])
    };
    let [faster, fastest] =
        ["static", "PatrickStar's mode, Belady"].map(|of| measured(of) / measured("ours"));
    let text =
        format!("{faster:.2} times as fast as static and {fastest:.2} times as fast as PatrickStar's mode");
    assert!(PAGE.contains(&text), "{text}");
}

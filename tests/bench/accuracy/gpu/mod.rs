//! Measurements on real GPUs, kept as documents: `deploy/guide/results/gpu.md` has exactly these figures.

use serde_json::Value;

const PAGE: &str = include_str!("../../../../deploy/guide/results/gpu.md");

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
        for row in &plans {
            let [model, plan] = ["model", "plan"].map(|key| row[key].as_str().unwrap());
            let [peak, iteration] =
                [compared(&row["peak_gib"], |gib| format!("{gib:.2}")), compared(&row["iteration_ms"], time)];
            let down = row["down_gib"].as_f64().map_or_else(String::new, |down| format!(", {down:.2}"));
            // Each way, or to the device where as many come from there as `down_gib` says.
            let copies = row["copied_gib"].as_f64().map_or_else(
                || "–".to_owned(),
                |copied| {
                    let [predicted, measured] = pair(&row["waited_ms"]);
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
    for row in &rules {
        let (rule, blocks, millions) =
            (row["rule"].as_str().unwrap(), &row["blocks"], number(&row["parameters_millions"]));
        let moved = if row["iteration_ms"].is_null() {
            "– | –".to_owned()
        } else {
            let [predicted, measured] = pair(&row["iteration_ms"]).map(|milliseconds| milliseconds / 1e3);
            format!("{predicted:.2}, {measured:.2} s | {}, {} MB", row["up_mb"], row["down_mb"])
        };
        let row = format!("| {rule} | {blocks} blocks, {millions:.2} M | {moved} |");
        assert!(PAGE.contains(&row), "{row}");
    }
    let measured = |name: &str| {
        let row = rules.iter().find(|row| row["rule"].as_str().unwrap().starts_with(name)).unwrap();
        number(&row["iteration_ms"]["measured"])
    };
    let [faster, fastest] =
        ["static", "PatrickStar's mode, Belady"].map(|rule| measured(rule) / measured("ours"));
    let text =
        format!("{faster:.2} times as fast as static and {fastest:.2} times as fast as PatrickStar's mode");
    assert!(PAGE.contains(&text), "{text}");
}

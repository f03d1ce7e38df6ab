//! What was measured on a real GPU, kept as a document: what `deploy/guide/accuracy.md` says of it is what it says.

use serde::Deserialize;

#[derive(Debug, Deserialize)]
struct Measured {
    profiles: std::collections::BTreeMap<String, String>,
    plans: Vec<Plan>,
}

#[derive(Debug, Deserialize)]
struct Plan {
    model: String,
    plan: String,
    peak_gib: Pair,
    iteration_ms: Pair,
    /// Each way, or to the device where as many come from there as `down_gib` says.
    #[serde(default)]
    copied_gib: Option<f64>,
    #[serde(default)]
    down_gib: Option<f64>,
    #[serde(default)]
    waited_ms: Option<Pair>,
}

/// What `bench chunks --gpu` said.
#[derive(Debug, Deserialize)]
struct Compared {
    rules: Vec<Rule>,
}

#[derive(Debug, Deserialize)]
struct Rule {
    rule: String,
    /// The largest model that it trained.
    blocks: u32,
    parameters_millions: f64,
    /// Of the model that all but the first trained.
    #[serde(default)]
    iteration_ms: Option<Pair>,
    #[serde(default)]
    up_mb: u64,
    #[serde(default)]
    down_mb: u64,
}

#[derive(Debug, Clone, Copy, Deserialize)]
struct Pair {
    predicted: f64,
    measured: f64,
}

impl Pair {
    fn error(self) -> String {
        format!("{:+.1} %", 100.0 * (self.predicted / self.measured - 1.0))
    }
}

fn time(milliseconds: f64) -> String {
    if milliseconds >= 1e3 { format!("{:.2} s", milliseconds / 1e3) } else { format!("{milliseconds:.1} ms") }
}

/// Every plan that was measured is a row of the page's tables, errors computed from what was measured; and each is of a
/// profile whose options are told.
#[test]
fn what_the_page_says_of_a_gpu_is_what_was_measured() {
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/guide/accuracy.md")).unwrap();
    for document in [include_str!("h100.json"), include_str!("h100_chunks.json")] {
        let measured: Measured = serde_json::from_str(document).unwrap();
        for of in &measured.plans {
            let row = of.row();
            assert!(page.contains(&row), "{row}");
            assert!(measured.profiles.contains_key(&of.model), "{}", of.model);
        }
        let is_of =
            |line: &str| measured.profiles.keys().any(|model| line.starts_with(&format!("| {model} |")));
        assert_eq!(page.lines().filter(|line| is_of(line)).count(), measured.plans.len());
    }
}

/// Every rule that trained on a GPU is a row of the page, and the ratios behind the table are those of the measured seconds.
#[test]
fn what_the_page_says_of_rules_on_a_gpu_is_what_was_measured() {
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/guide/accuracy.md")).unwrap();
    let Compared { rules } = serde_json::from_str(include_str!("h200_rules.json")).unwrap();
    for of in &rules {
        assert!(page.contains(&of.row()), "{}", of.row());
    }
    let measured = |name: &str| {
        let of = rules.iter().find(|of| of.rule.starts_with(name)).unwrap();
        of.iteration_ms.unwrap().measured
    };
    let [faster, fastest] =
        ["static", "PatrickStar's mode, Belady"].map(|of| measured(of) / measured("ours"));
    let told =
        format!("{faster:.2} times as fast as static and {fastest:.2} times as fast as PatrickStar's mode");
    assert!(page.contains(&told), "{told}");
}

impl Rule {
    fn row(&self) -> String {
        let Self { rule, blocks, parameters_millions, iteration_ms, up_mb, down_mb } = self;
        let [seconds, moved] = iteration_ms.map_or_else(
            || ["–".to_owned(), "–".to_owned()],
            |Pair { predicted, measured }| {
                [format!("{:.2}, {:.2} s", predicted / 1e3, measured / 1e3), format!("{up_mb}, {down_mb} MB")]
            },
        );
        format!("| {rule} | {blocks} blocks, {parameters_millions:.2} M | {seconds} | {moved} |")
    }
}

impl Plan {
    fn row(&self) -> String {
        let Self { model, plan, peak_gib: peak, iteration_ms: iteration, copied_gib, down_gib, waited_ms } =
            self;
        let down = down_gib.map_or_else(String::new, |down| format!(", {down:.2}"));
        let copies = copied_gib.zip(*waited_ms).map_or_else(
            || "–".to_owned(),
            |(copied, waited)| {
                format!("{copied:.2}{down} GiB; {:.0}, {:.0} ms", waited.predicted, waited.measured)
            },
        );
        format!(
            "| {model} | {plan} | {:.2} | {:.2} | {} | {} | {} | {} | {copies} |",
            peak.predicted,
            peak.measured,
            peak.error(),
            time(iteration.predicted),
            time(iteration.measured),
            iteration.error(),
        )
    }
}

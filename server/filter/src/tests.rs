//! The language: what it takes, what it refuses and where, and that nothing makes it panic.

use proptest::prelude::*;

use super::*;

fn states() -> Vec<(&'static str, String)> {
    let words = [("running", "running"), ("1f1b", "one_f_one_b"), ("out-of-memory", "out_of_memory")];
    words.map(|(said, stored)| (said, stored.to_owned())).to_vec()
}

const fn field(name: &'static str, kind: Kind) -> Field {
    Field { name, kind, column: name, is_always_set: false }
}

static FIELDS: &[Field] = &[
    field("name", Kind::Id("plans/")),
    field("state", Kind::Word(states)),
    field("solver", Kind::Text),
    field("nodes", Kind::Texts),
    field("devices", Kind::Count),
    field("peak", Kind::Bytes),
    field("seconds", Kind::Seconds),
    field("error", Kind::Number),
    field("create_time", Kind::Time),
    field("contended", Kind::Truth),
    field("labels", Kind::Labels),
];

/// A condition as a text with all its parentheses.
fn told(condition: &Condition) -> String {
    let all = |parts: &[Condition], sign: &str| {
        format!("({})", parts.iter().map(told).collect::<Vec<_>>().join(sign))
    };
    match condition {
        Condition::All(parts) => all(parts, " & "),
        Condition::Any(parts) => all(parts, " | "),
        Condition::Not(part) => format!("!{}", told(part)),
        Condition::Test(Test { field, key, relation }) => {
            let of =
                key.as_ref().map_or_else(|| field.name.to_owned(), |key| format!("{}[{key}]", field.name));
            match relation {
                Relation::Set => format!("{of}?"),
                Relation::StartsWith(start) => format!("{of}^{start}"),
                Relation::Contains(part) => format!("{of}~{part}"),
                Relation::HasEntry(entry) => format!("{of}~{entry}"),
                Relation::Is(comparison, value) => {
                    let value = match value {
                        Value::Text(text) => text.clone(),
                        Value::Integer(number) => number.to_string(),
                        Value::Real(number) => format!("{number:?}"),
                        Value::Time(time) => time.to_string(),
                        Value::Truth(truth) => truth.to_string(),
                    };
                    format!("{of}{}{value}", comparison.sign())
                }
            }
        }
    }
}

fn read(filter: &str) -> String {
    let query = Query::parse(FIELDS, filter, "").unwrap_or_else(|invalid| panic!("{filter}: {invalid}"));
    query.condition.as_ref().map_or_else(String::new, told)
}

fn refused(filter: &str, order_by: &str) -> String {
    Query::parse(FIELDS, filter, order_by).expect_err(filter).to_string()
}

#[test]
fn filters_mean_what_aip_160_says() {
    for (filter, meaning) in [
        ("", ""),
        ("  ", ""),
        ("state = running", "state=running"),
        ("state=RUNNING", "state=running"),
        ("state=PROFILE_STATE_RUNNING", "state=running"),
        ("nodes:n1", "nodes~,n1,"),
        ("nodes:n1*", "nodes~,n1"),
        ("nodes:*", "nodes?"),
        ("nodes = \"n1,n2\"", "nodes=n1,n2"),
        ("seconds > 0.4730492460059843s", "seconds>0.4730492460059843"),
        ("devices=1 AND devices=2 OR devices=3", "(devices=1 & (devices=2 | devices=3))"),
        ("devices=1 OR devices=2 AND devices=3", "((devices=1 | devices=2) & devices=3)"),
        ("devices=1 devices=2 OR devices=3", "(devices=1 & (devices=2 | devices=3))"),
        ("(devices=1 AND devices=2) OR devices=3", "((devices=1 & devices=2) | devices=3)"),
        ("NOT devices=1 OR -devices=2", "(!devices=1 | !devices=2)"),
        ("-(devices=1 devices=2)", "!(devices=1 & devices=2)"),
        ("NOT(devices < -3)", "!devices<-3"),
        (
            "state=one_f_one_b OR state=1F1B OR state=ONE_F_ONE_B",
            "(state=one_f_one_b | state=one_f_one_b | state=one_f_one_b)",
        ),
        ("state=OUT_OF_MEMORY", "state=out_of_memory"),
        ("name=plans/7f3c name:7f* name!=x", "(name=7f3c & name^7f & name!=x)"),
        ("solver:exact solver='a\\'b' solver=\"x y*\"", "(solver~exact & solver=a'b & solver^x y)"),
        ("name:plans/7f3c name:7f3c", "(name~7f3c & name~7f3c)"),
        ("solver = a\\* solver != pre*", "(solver=a* & !solver^pre)"),
        ("solver:* devices:* devices:4", "(solver? & devices? & devices=4)"),
        ("peak>=1.5GiB peak<1000B", "(peak>=1610612736 & peak<1000)"),
        (
            "seconds<1.5 seconds<1.5s seconds<200ms seconds<2m",
            "(seconds<1.5 & seconds<1.5 & seconds<0.2 & seconds<120.0)",
        ),
        ("error!=-0.5", "error!=-0.5"),
        ("create_time>=2026-11-01", "create_time>=2026-11-01T00:00:00Z"),
        ("create_time<2026-11-01T08:00:00.1234567+02:00", "create_time<2026-11-01T06:00:00.123456Z"),
        ("create_time<\"2026-11-01T08:00:00Z\"", "create_time<2026-11-01T08:00:00Z"),
        ("contended=true", "contended=true"),
        (
            "labels:team labels.team=a labels.team:* labels.\"a.b\"!=c",
            "(labels[team]? & labels[team]=a & labels[team]? & labels[a.b]!=c)",
        ),
    ] {
        assert_eq!(read(filter), meaning, "{filter}");
    }
}

#[test]
fn a_refusal_names_the_place_and_the_remedy() {
    for (filter, place, remedy) in [
        ("stat = running", 1, "did you mean state?"),
        ("devices = 3 and state = running", 13, "upper case. Use AND."),
        ("devices = 3 AND nonsense", 17, "has no comparison"),
        ("vgg11", 1, "`name:vgg11`"),
        ("\"vgg\"", 1, "has no comparison"),
        ("devices = x", 11, "whole number"),
        ("devices = 9223372036854775808", 11, "whole number"),
        ("devices = 1.5", 11, "whole number"),
        ("peak > 3parsecs", 8, "1.5GiB"),
        ("peak > 9999999TiB", 8, "number of bytes"),
        ("seconds < NaN", 11, "duration"),
        ("seconds < inf", 11, "duration"),
        ("state = done", 9, "one of running, 1f1b, out-of-memory"),
        ("state > running", 7, "Use = or !="),
        ("create_time > yesterday", 15, "2026-11-01"),
        ("create_time > 1969-12-31", 15, "1970"),
        ("contended = yes", 13, "true or false"),
        ("devices = 1*", 11, "devices:*"),
        ("solver = *exact", 10, "only at the end"),
        ("solver = \"a\\b\"", 12, "backslash"),
        ("solver = \"abc", 10, "closing quote"),
        ("solver =", 8, "after = is missing"),
        ("(devices = 1", 1, "no matching `)`"),
        ("devices = 1)", 12, "no matching `(`"),
        ("()", 2, "the parentheses are empty"),
        ("devices == 1", 9, "Use ="),
        ("solver =~ x", 8, "star"),
        ("devices = 1 && devices = 2", 13, "'&' is where"),
        ("devices = (1 2)", 11, "OR between them"),
        ("f(x) = 1", 1, "functions"),
        ("devices.of = 1", 1, "no subfields"),
        ("labels = a", 8, "labels.KEY"),
        ("labels.a.b = c", 1, "Use labels.\"a.b\"."),
        ("ä = 1", 1, "not a field"),
        ("solver = ä stat = 1", 12, "did you mean state?"),
        ("solver = a\u{0}b", 11, "control characters"),
        ("OR devices = 1", 1, "found OR"),
    ] {
        let error = refused(filter, "");
        assert!(error.starts_with(&format!("filter: at character {place}: ")), "{filter}: {error}");
        assert!(error.contains(remedy), "{filter}: {error}");
    }
}

#[test]
fn orders_are_fields_with_a_way() {
    let order = |text: &str| -> Vec<(&str, bool)> {
        let query = Query::parse(FIELDS, "", text).unwrap();
        query.order.iter().map(|key| (key.field.name, key.is_descending)).collect()
    };
    assert_eq!(order(""), []);
    assert_eq!(
        order(" seconds desc,create_time , name asc"),
        [("seconds", true), ("create_time", false), ("name", false)]
    );
    for (text, place, remedy) in [
        ("secnds", 1, "did you mean seconds?"),
        ("seconds down", 9, "neither asc nor desc"),
        ("seconds desc name", 14, "comma"),
        ("seconds,", 9, "a field is missing here"),
        ("seconds, seconds desc", 10, "named twice"),
        ("labels", 1, "cannot be ordered by"),
        ("labels.team", 1, "not a field"),
    ] {
        let error = refused("", text);
        assert!(error.starts_with(&format!("order_by: at character {place}: ")), "{text}: {error}");
        assert!(error.contains(remedy), "{text}: {error}");
    }
    let both = refused("x = 1", "y");
    assert!(both.contains("filter: ") && both.contains("order_by: "), "{both}");
}

#[test]
fn what_is_too_much_is_refused() {
    let many = |count: usize| vec!["devices=1"; count].join(" ");
    assert!(Query::parse(FIELDS, &many(MAX_COMPARISONS), "").is_ok());
    assert!(refused(&many(MAX_COMPARISONS + 1), "").contains("more than 64 comparisons"));
    let deep = |depth: usize| format!("{}devices=1{}", "(".repeat(depth), ")".repeat(depth));
    assert!(Query::parse(FIELDS, &deep(MAX_DEPTH), "").is_ok());
    assert!(refused(&deep(MAX_DEPTH + 1), "").contains("at character 17: more than 16 nested parentheses"));
    assert!(refused(&"(".repeat(MAX_CHARACTERS), "").contains("more than 16 nested parentheses"));
    assert!(refused(&"-".repeat(MAX_CHARACTERS), "").contains("has no comparison"));
    let long = |length: usize| format!("solver={}", "x".repeat(length - 7));
    assert!(Query::parse(FIELDS, &long(MAX_CHARACTERS), "").is_ok());
    let error = refused(&long(MAX_CHARACTERS + 1), "");
    assert!(error.contains("more than 4096 characters"), "{error}");
    assert!(refused(&format!("devices={}", "ä".repeat(4_000)), "").len() < 300);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Whatever is written: a query, or a place in it.
    #[test]
    fn nothing_panics(filter in "[a-d():=!<>*\"'\\\\., ANDORT01-]{0,60}", order_by in ".{0,40}", bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        let bytes = String::from_utf8_lossy(&bytes);
        for text in [filter.as_str(), order_by.as_str(), &bytes] {
            for (filter, order_by) in [(text, ""), ("", text)] {
                if let Err(invalid) = Query::parse(FIELDS, filter, order_by) {
                    let told = invalid.to_string();
                    let place = told.split("at character ").nth(1).and_then(|rest| rest.split(':').next());
                    let place: usize = place.unwrap().parse().unwrap();
                    prop_assert!((1..=text.chars().count() + 1).contains(&place), "{text:?}: {told}");
                }
            }
        }
    }

    /// Fragments of the language, put together at random.
    #[test]
    fn no_sentence_panics(parts in prop::collection::vec(prop::sample::select(vec![
        "state", "devices", "labels", ".", "team", "=", "!=", "<", ":", "*", "\"", "'", "\\", "(", ")", " ", " AND ", " OR ", "NOT ", "-", "1", "running",
        "create_time", "2026-11-01", "9999-12-31T23:59:59Z", "-009999-01-01T00:00:00Z", "peak", "1GiB", "seconds", "-2m", "P1Y", ",", "desc", "ä", "\u{0}",
    ]), 0..40)) {
        let text = parts.concat();
        Query::parse(FIELDS, &text, &text).ok();
    }
}

//! What is typed after `plan recommend` is in the answer, or is refused: every option that the command line has, with every
//! objective. A new option fails here until somebody says how it shows in an answer.

use std::io::Write as _;

use clap::{Arg, CommandFactory as _};
use loadmaster::program::Program;
use loadmaster_tests::{Planner, cli, json, number, peak, stages, uneven_chain, warnings};
use serde_json::{Value, json as value};

/// How an option is typed, or a field of a request file set, and how an answer shows it.
struct Typed {
    id: &'static str,
    /// What else is typed for it: devices or a cluster, and what it requires.
    with: &'static [&'static str],
    /// What is typed; where the option has a list of words, these are in its definition.
    values: &'static [&'static str],
    shows: fn(&Value, &str) -> bool,
}

const DEVICES: &[&str] = &["--devices", "4x1GiB"];
const CANDIDATES: &str = "objective.candidate_profiles";
const SPANNING: &[&str] = &["NODE_SPANNING_NEVER", "NODE_SPANNING_WHOLE_NODES", "NODE_SPANNING_ANYWHERE"];
const TWO: &[&str] = &["--cluster", "two"];

/// Options that no table of layers answers: their own modules use them with measured profiles. Here they are refused by name.
const NOT_OF_TABLES: [&str; 7] =
    ["stage_optimization", "copy_rates", "pipeline_layout", "host_memory", "profile", "objective", "dry_run"];

/// What is the same whatever is typed: how a search is carried out, and what only some questions have a use for.
fn always(_: &Value, _: &str) -> bool {
    true
}

fn never(_: &Value, _: &str) -> bool {
    false
}

fn row(id: &'static str, values: &'static [&'static str], shows: fn(&Value, &str) -> bool) -> Typed {
    Typed { id, with: DEVICES, values, shows }
}

/// A row for each option that has an answer.
fn rows() -> Vec<Typed> {
    vec![
        Typed { with: &[], ..row("devices", &["3x1GiB"], |plan, _| count(plan) <= 3) },
        row("optimizations", &[], |plan, _| plan["solver"] == "actions/1"),
        row("virtual_stages", &["2"], |plan, _| plan["summary"]["virtualStageCount"] == 2),
        Typed { with: &[], ..row("cluster", &["two"], |plan, _| plan["cluster"] == "clusters/two") },
        Typed { with: &["--cluster", "three"], ..row("other_profiles", &["small"], names_small) },
        row("other_profiles", &["small"], |plan, _| {
            warnings(plan).iter().any(|told| told.contains("profiles/small"))
        }),
        row("hourly_price", &["gpu=2.5"], |plan, _| {
            plan["hourlyPrice"].as_f64() == Some(2.5 * count(plan) as f64)
        }),
        row("hourly_price", &["other=2.5"], |plan, _| {
            warnings(plan).iter().any(|told| told.contains("\"other\""))
        }),
        Typed {
            with: TWO,
            ..row("constraints.excluded_devices", &["[n1]", "[n0/1]"], |plan, typed| {
                !places(plan).iter().any(|of| of.starts_with(typed.trim_matches(['[', ']'])))
            })
        },
        row("allow_idle_devices", &[], |plan, _| plan["constraints"]["allowIdleDevices"] == true),
        Typed {
            with: TWO,
            ..row("constraints.node_spanning", SPANNING, |plan, typed| {
                plan["constraints"]["nodeSpanning"] == typed
            })
        },
        row("layout", &[], |plan, typed| is_word(&plan["parallelismLayout"], typed)),
        row("framework", &["megatron", "accelerate"], |plan, typed| plan["framework"] == typed),
        row("framework", &["megatron@0.9"], |plan, _| plan["frameworkVersion"] == "0.9"),
        row("communication_overlap", &[], |plan, typed| {
            is_word(&plan["iteration"]["communicationOverlap"], typed)
        }),
        row("objective.memory_unit", &["MEMORY_UNIT_BYTES", "MEMORY_UNIT_SHARE"], |plan, typed| {
            plan["memoryUnit"] == typed
        }),
        row(CANDIDATES, &["[profiles/table]"], |plan, _| plan["profile"] == "profiles/table"),
        row("micro_batch_size", &["2"], |plan, _| plan["training"]["microBatchSize"] == 2),
        row("micro_batches", &["16"], |plan, _| plan["training"]["microBatchCount"] == 16),
        Typed {
            with: &["--devices", "4x1GiB", "--micro-batch-size", "1,2,4"],
            ..row("micro_batches", &["16"], |plan, _| plan["training"]["microBatchCount"] == 16)
        },
        Typed {
            with: &["--devices", "4x1GiB", "--global-batch-size", "48"],
            ..row("micro_batches", &["16"], |plan, _| plan["training"]["microBatchCount"] == 16)
        },
        row("global_batch_size", &["48"], |plan, _| plan["training"]["globalBatchSize"] == "48"),
        row("micro_batch_size", &["2,16"], |plan, _| {
            [2, 16].contains(&number(&plan["training"]["microBatchSize"]))
        }),
        row("schedule", &[], |plan, typed| {
            is_word(&plan["training"]["schedule"], if typed == "1f1b" { "one-f-one-b" } else { typed })
        }),
        row("recompute", &[], |plan, typed| {
            stages(plan).iter().all(|stage| is_word(&stage["recompute"], typed))
        }),
        Typed {
            with: &["--devices", "4x1GiB", "--recompute", "none,layer"],
            ..row("constraints.recompute_per_stage", &["true"], |plan, _| {
                plan["constraints"]["recomputePerStage"] == true
            })
        },
        Typed {
            with: &["--devices", "4x1GiB", "--layout", "uniform-grid"],
            ..row("data_parallel_sizes", &["2"], |plan, _| {
                stages(plan).iter().all(|of| of["config"]["dataParallelSize"] == 2)
            })
        },
        Typed {
            with: &["--devices", "4x1GiB", "--layout", "uniform-grid"],
            ..row("tensor_parallel_sizes", &["2"], |plan, _| {
                stages(plan).iter().all(|of| of["config"]["tensorParallelSize"] == 2)
            })
        },
        Typed {
            with: &["--devices", "4x1GiB", "--layout", "uniform-grid", "--data-parallel-sizes", "2"],
            ..row("state_sharding", &["none", "optimizer"], |plan, typed| {
                stages(plan).iter().all(|of| is_word(&of["config"]["stateSharding"], typed))
            })
        },
        row("pipeline_parallel_sizes", &["3.."], |plan, _| stages(plan).len() >= 3),
        Typed {
            with: &["--devices", "4x1GiB", "--layout", "uniform-grid"],
            ..row("pipeline_parallel_sizes", &["1"], |plan, _| stages(plan).len() == 1)
        },
        Typed {
            with: TWO,
            ..row("constraints.layer_pins", &["[{layer: 7, device: n0/0}]"], |plan, _| {
                let last = stages(plan).last().unwrap_or(&Value::Null).clone();
                last["deviceRanges"][0]["node"] == "n0" && number(&last["deviceRanges"][0]["firstIndex"]) == 0
            })
        },
        row("constraints.uncut_layer_ranges", &["[{first_layer: 1, last_layer: 3}]"], |plan, _| {
            !ends(plan).iter().any(|end| (1..3).contains(end))
        }),
        row("constraints.stage_end_layers", &["[4]"], |plan, _| ends(plan).contains(&4)),
        row("max_iteration_time", &["400ms"], |plan, _| {
            plan["iteration"]["iterationSeconds"].as_f64().is_some_and(|seconds| seconds <= 0.4)
        }),
        row("max_peak", &["410MiB"], |plan, _| peak(plan) <= 410 << 20),
        row("safety_margin", &["60%"], |plan, _| peak(plan) as f64 * 1.6 <= (1_u64 << 30) as f64),
        row("predictor", &[], |plan, typed| {
            plan["predictedPeak"]["producer"].as_str().is_some_and(|origin| origin.starts_with(typed))
        }),
        // Nothing was learnt yet that could be in an answer.
        row("calibrate", &[], |plan, _| plan["calibrations"].as_array().is_none_or(Vec::is_empty)),
        row("search_mode", &[], |plan, typed| {
            typed == "exact" || plan["solver"].as_str().is_some_and(|solver| solver.starts_with(typed))
        }),
        row("search.seed", &["7"], always),
        row("search_time", &["20s"], |plan, _| {
            plan["certificate"]["searchSeconds"].as_f64().is_some_and(|seconds| seconds <= 25.0)
        }),
        row("output.alternative_count", &["1"], |plan, _| {
            plan["alternatives"].as_array().is_none_or(|others| others.len() <= 1)
        }),
        Typed {
            with: &["--devices", "4x1GiB", "--allow-idle-devices"],
            ..row("search.layer_group_count", &["2"], |plan, _| stages(plan).len() <= 2)
        },
        row("memory_mode", &[], |plan, typed| {
            let is_chunked =
                stages(plan).iter().any(|stage| stage.get("chunkedTraining").is_some_and(|of| !of.is_null()));
            is_chunked == (typed == "chunks")
        }),
    ]
}

fn names_small(plan: &Value, _: &str) -> bool {
    let others = plan["otherProfiles"].as_array().cloned().unwrap_or_default();
    others.contains(&value!("profiles/small"))
}

fn count(plan: &Value) -> i64 {
    number(&plan["deviceCount"])
}

fn ends(plan: &Value) -> Vec<i64> {
    stages(plan).iter().map(|stage| number(&stage["config"]["lastLayer"])).collect()
}

/// The devices of a plan as `NODE/INDEX`.
fn places(plan: &Value) -> Vec<String> {
    let of_range = |range: &Value| {
        let (first, count) = (number(&range["firstIndex"]), number(&range["count"]));
        let node = range["node"].as_str().unwrap_or_default().to_owned();
        (first..first + count).map(move |index| format!("{node}/{index}"))
    };
    let of_stage = |stage: &Value| stage["deviceRanges"].as_array().cloned().unwrap_or_default();
    stages(plan).iter().flat_map(of_stage).flat_map(|range| of_range(&range)).collect()
}

/// Whether a value of an enum of the protocol is the one with this word.
fn is_word(value: &Value, word: &str) -> bool {
    let name = format!("_{}", word.to_uppercase().replace('-', "_"));
    value.as_str().is_some_and(|value| value.ends_with(&name))
}

/// The words that an option's own definition lists.
fn words(arg: &Arg) -> Vec<String> {
    arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect()
}

fn cluster(nodes: &[(&str, &str)]) -> String {
    let node = |(name, kind): &(&str, &str)| {
        format!(
            "  - {{name: \"{name}\", kind: {kind}, devices: 2, link: {{bandwidth: 5GB/s}}, network: {{bandwidth: 1GB/s}}}}\n"
        )
    };
    let nodes: String = nodes.iter().map(node).collect();
    format!(
        "format: loadmaster.cluster/1\nkinds: [{{name: gpu, memory: 1GiB}}, {{name: small, memory: 1GiB}}]\nnodes:\n{nodes}"
    )
}

fn scene() -> Planner {
    let planner = Planner::start();
    let store = |text: &str, suffix: &str, line: &[&str]| {
        let mut file = tempfile::Builder::new().suffix(suffix).tempfile().expect("a file can be made");
        file.write_all(text.as_bytes()).expect("it can be written");
        let path = file.path().to_str().expect("a path is text");
        json(&planner, &[&line[..2], &[path], &line[2..]].concat());
    };
    for (id, kind) in [("table", "gpu"), ("small", "small")] {
        store(&uneven_chain(6, kind, [1, 8]).to_string(), ".json", &["profile", "import", "--id", id]);
    }
    store(&cluster(&[("n[0-1]", "gpu")]), ".yaml", &["cluster", "import", "--id", "two"]);
    store(&cluster(&[("n[0-1]", "gpu"), ("n2", "small")]), ".yaml", &["cluster", "import", "--id", "three"]);
    planner
}

/// Every option, and every field that has none, with every objective: the answer contains what was typed, or says what is wrong with it. Each option that a
/// table has an answer for gets one with some objective.
#[test]
fn answers_contain_what_was_typed() {
    let planner = scene();
    // Not built, it has no options but its own.
    let program = Program::command();
    let recommend = program
        .find_subcommand("plan")
        .and_then(|plan| plan.find_subcommand("recommend"))
        .expect("there is `plan recommend`");
    let objectives =
        words(recommend.get_arguments().find(|arg| arg.get_id() == "objective").expect("there is one"));
    assert!(objectives.len() > 5, "{objectives:?}");
    let mut wrong = Vec::new();
    let options = recommend.get_arguments().map(|arg| (arg.get_id().as_str(), Some(arg)));
    let fields = rows().into_iter().map(|row| row.id).filter(|id| id.contains('.')).map(|id| (id, None));
    for (id, arg) in options.chain(fields) {
        let rows: Vec<Typed> = match NOT_OF_TABLES.contains(&id) {
            true => vec![row("", &["2"], never)],
            false => rows().into_iter().filter(|row| row.id == id).collect(),
        };
        if matches!(id, "file" | "gpus") {
            // Fields of files have rows of their own, and the profile is of no kind of the catalog.
            continue;
        }
        assert!(!rows.is_empty(), "--{}: say how an answer shows it", id.replace('_', "-"));
        if ["profile", "objective", "dry_run"].contains(&id) {
            // They are typed with every other option.
            continue;
        }
        let option =
            arg.map_or_else(|| id.to_owned(), |arg| format!("--{}", arg.get_long().expect("it has a name")));
        for row in rows {
            let own_words = arg.map(words).unwrap_or_default();
            let takes_values = arg.is_none_or(|arg| arg.get_action().takes_values());
            let values: Vec<String> = match (own_words.as_slice(), takes_values) {
                (_, false) => vec![String::new()],
                ([], true) => row.values.iter().map(|value| (*value).to_owned()).collect(),
                (words, true) => words.to_vec(),
            };
            for typed in values {
                let mut answers = 0;
                for objective in &objectives {
                    let of: &[&str] = match objective.as_str() {
                        "max-model" if id != CANDIDATES => &["objective.candidate_profiles=[profiles/table]"],
                        _ if id == CANDIDATES => &[],
                        _ => &["--profile", "table"],
                    };
                    let mut line = vec![
                        "plan",
                        "recommend",
                        "--objective",
                        objective,
                        "--dry-run",
                        "output.skip_comparisons=true",
                    ];
                    line.extend(of);
                    line.extend(row.with);
                    let usual = [
                        ("hourly_price", ["--hourly-price", "gpu=1"]),
                        ("hourly_price", ["--hourly-price", "small=1"]),
                    ];
                    line.extend(
                        usual.into_iter().filter(|(other, _)| *other != id).flat_map(|(_, words)| words),
                    );
                    if id != "search_time" {
                        line.extend(["--search-time", "20s"]);
                    }
                    let field = format!("{option}={typed}");
                    match arg {
                        None => line.push(&field),
                        Some(_) => {
                            line.extend([option.as_str(), &typed].into_iter().filter(|word| !word.is_empty()))
                        }
                    }
                    line.extend(["-o", "json"]);
                    let output = cli(&planner, &line);
                    let line = line.join(" ");
                    if output.code == 0 {
                        let plan: Value = serde_json::from_str(&output.stdout).expect("it is JSON");
                        answers += 1;
                        let is_objective = is_word(&plan["objective"], objective);
                        if !(row.shows)(&plan, &typed) || !is_objective {
                            wrong.push(format!("{line}\n  {} {}", plan["layoutNotation"], plan["training"]));
                        }
                    } else if !output.stderr.contains("error: ") || output.code == 1 {
                        wrong.push(format!("{line}\n  {} {}", output.code, output.stderr));
                    }
                }
                let has_answer = !NOT_OF_TABLES.contains(&id) && own_words.is_empty();
                if has_answer && answers == 0 {
                    wrong.push(format!("{option} {typed}: no objective has an answer"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

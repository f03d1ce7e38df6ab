//! Documents become profiles and profiles documents, without a number that changes; and runs of a command
//! wait for a worker that offers it.

use loadmaster::document::{Import, export};
use loadmaster::profile::StoredProfile;
use loadmaster::store::records::{NewRun, NewWorker, PageRequest, ProfileState, RunNeed};
use loadmaster::store::{Store, StoreError, fields};
use loadmaster_filter::Query;
use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::measure::run::ProfilingMode;
use loadmaster_proto::name::{CommandName, ModelName, ProfileName};
use loadmaster_proto::profile::document::{FORMAT, ProfileDocument};
use loadmaster_samples::cpu_slot;
use serde_json::{Value, json};

use crate::support::samples::{
    LEASE, claim, measurement, model, new_worker, profile, queue, run, training, try_claim, worker,
};
use crate::support::{applied, store};

fn name(id: &str) -> ProfileName {
    ProfileName::from_id(id).unwrap()
}

/// A table of two opaque layers.
fn foreign() -> Value {
    json!({
        "format": FORMAT,
        "provenance": {"source": "test", "tool": "other", "device_kind": "NVIDIA H200", "ledger": "device"},
        "model": {"opaque": {"name": "other model", "layers": [{"name": "a"}, {"name": "b"}]}},
        "training": serde_json::to_value(training()).unwrap(),
        "layer_table": {"layers": [{"first_layer": 0, "last_layer": 1, "bytes": [
            {"micro_batch_size": 3, "tensor_degree": 1, "parameter_bytes": 10, "activation_bytes": 20}
        ]}]}
    })
}

/// The profile of a document, as planning calls store it.
async fn adopt(store: &Store, text: &str) -> Result<ProfileName, StoreError> {
    let import = Import::check(text, None).unwrap();
    import.store(store).await.map(|()| import.settings.name)
}

/// A complete profile of one run with one measurement.
async fn measured(store: &Store, id: &str) -> Measurement {
    let (_, operation) = profile(store, id, 1).await;
    let claim = claim(store, &worker("w")).await;
    let result = Measurement { losses: vec![f64::NAN], ..measurement(0) };
    let results = [result.clone()];
    applied(store.complete_run(&worker("w"), &claim.run, claim.lease_token, &results, 1.0).await);
    applied(store.finish_profile_operation(&operation, &[]).await);
    result
}

#[tokio::test]
async fn an_exported_profile_comes_back_under_another_name_with_the_same_measurements() {
    let store = store().await;
    let result = measured(&store, "a").await;
    let text = export(&store, &name("a")).await.unwrap().to_text().unwrap();
    let import = Import::check(&text, Some(name("b"))).unwrap();
    import.store(&store).await.unwrap();

    let (original, of) = StoredProfile::load(&store, &name("a")).await.unwrap();
    let (copy, copied) = StoredProfile::load(&store, &name("b")).await.unwrap();
    assert_eq!(copy.state, ProfileState::Complete);
    assert_eq!(copy.settings.profiling_mode, original.settings.profiling_mode);
    assert_eq!(copied.model, of.model);
    let numbers = |profile: &StoredProfile| -> Vec<(String, Measurement)> {
        let each = profile.measurements.iter();
        each.map(|of| (of.name(), Measurement { losses: Vec::new(), ..of.measurement.clone() })).collect()
    };
    assert_eq!(numbers(&copied), numbers(&of), "names of the original runs included");
    assert_eq!(copied.measurements[0].measurement.peak_allocated, result.peak_allocated);
    // What was imported is exported as it came.
    let again = export(&store, &name("b")).await.unwrap();
    assert_eq!(again, ProfileDocument::parse(&text).unwrap());
    let page = PageRequest { size: 1, after: None };
    let listed = store.list_measurements(&name("b"), &Query::default(), &page).await.unwrap();
    assert_eq!((listed.rows.len(), listed.next), (1, None));
    // Of a document's rows a filter says the same as of the table's.
    let stage = result.stage;
    for (filter, count) in [
        (format!("first_layer = {} AND last_layer = {}", stage.first_layer, stage.last_layer), 1),
        (format!("micro_batch_size != {}", result.micro_batch_size), 0),
        (format!("peak = {} AND device_kind = cpu AND NOT solo = false", result.peak_allocated.0), 1),
        ("run = nobody OR create_time < 2001-01-01".to_owned(), 0),
        ("iteration_seconds > 1us AND stage_count >= 1 AND shard = 0 AND held_out = false".to_owned(), 1),
    ] {
        let query = Query::parse(fields::MEASUREMENTS, &filter, "").unwrap();
        for profile in ["a", "b"] {
            let found = store.list_measurements(&name(profile), &query, &page).await.unwrap();
            assert_eq!(found.rows.len(), count, "{filter} of {profile}");
        }
    }
    // They are in the same place in every order, and a page goes on behind it.
    for field in fields::MEASUREMENTS {
        let query = Query::parse(fields::MEASUREMENTS, "", &format!("{} desc", field.name)).unwrap();
        let mut places = Vec::new();
        for profile in ["a", "b"] {
            let found = store.list_measurements(&name(profile), &query, &page).await.unwrap();
            let last = found.cursor(0).unwrap();
            assert!(last.is_of_a_row(&query.order), "{} of {profile}: {last:?}", field.name);
            places.push(last.keys.clone());
            let behind = PageRequest { size: 1, after: Some(last) };
            let rest = store.list_measurements(&name(profile), &query, &behind).await.unwrap();
            assert_eq!((rest.rows.len(), rest.next), (0, None), "{} of {profile}", field.name);
        }
        // Each is as old as its profile.
        assert!(field.name == "create_time" || places[0] == places[1], "{}: {places:?}", field.name);
    }
}

/// Pins that importing again, also of a text that is written otherwise, stores nothing new.
#[tokio::test]
async fn the_same_document_is_the_same_profile() {
    let store = store().await;
    let first = adopt(&store, &foreign().to_string()).await.unwrap();
    let again = adopt(&store, &serde_json::to_string_pretty(&foreign()).unwrap()).await.unwrap();
    assert_eq!(first, again);
    assert!(first.id().starts_with("other-model-"), "{first}");
    let all = store.list_profiles(&Query::default(), &PageRequest { size: 10, after: None }).await.unwrap();
    assert_eq!(all.rows.len(), 1);
    let record = &all.rows[0];
    assert_eq!(
        (record.state, record.settings.profiling_mode),
        (ProfileState::Complete, ProfilingMode::Imported)
    );
    assert_eq!((record.settings.device_kind.as_str(), record.runs.total()), ("NVIDIA H200", 0));
    assert_eq!(record.settings.micro_batch_sizes, [3]);
    // Under a name of its own it is another profile, and a name that is taken is not taken over.
    let named = Import::check(&foreign().to_string(), Some(name("mine"))).unwrap();
    named.store(&store).await.unwrap();
    named.store(&store).await.unwrap();
    let mut other = foreign();
    other["provenance"]["notes"] = json!("changed");
    let other = Import::check(&other.to_string(), Some(name("mine"))).unwrap();
    assert!(matches!(other.store(&store).await, Err(StoreError::AlreadyExists { .. })));
    let stored = store.find_document(&name("mine")).await.unwrap().unwrap();
    assert_eq!(stored, named.document);
}

#[tokio::test]
async fn a_name_of_a_measured_profile_is_not_taken_over() {
    let store = store().await;
    measured(&store, "a").await;
    let import = Import::check(&foreign().to_string(), Some(name("a"))).unwrap();
    assert!(matches!(import.store(&store).await, Err(StoreError::AlreadyExists { .. })));
    assert!(store.find_document(&name("a")).await.unwrap().is_none());
}

#[tokio::test]
async fn an_opaque_chain_has_names_and_no_model() {
    let store = store().await;
    adopt(&store, &foreign().to_string()).await.unwrap();
    let chain: ModelName =
        ModelName::from_id(ProfileDocument::parse(&foreign().to_string()).unwrap().model.id()).unwrap();
    assert_eq!(store.get_subject(&chain).await.unwrap().layer_names(), ["a", "b"]);
    assert!(matches!(store.get_model(&chain).await, Err(StoreError::Opaque { .. })));
    assert!(
        store
            .list_models(&Query::default(), &PageRequest { size: 10, after: None })
            .await
            .unwrap()
            .rows
            .is_empty()
    );
    let known = model(&store).await;
    assert!(store.get_subject(&known).await.unwrap().model().is_ok());
}

#[tokio::test]
async fn a_document_without_training_is_refused_with_what_it_lacks() {
    let mut without = foreign();
    without.as_object_mut().unwrap().remove("training");
    let error = Import::check(&without.to_string(), None).unwrap_err();
    assert_eq!(error.violations()[0].field, "training");
    assert!(error.to_string().contains("Plans depend on these settings"), "{error}");
}

/// Pins that measurements in a file obey the rules of those that a worker sends.
#[tokio::test]
async fn measurements_of_a_bent_document_are_refused() {
    let store = store().await;
    measured(&store, "a").await;
    let whole: Value = serde_json::to_value(export(&store, &name("a")).await.unwrap()).unwrap();
    let bend = |path: &str, to: Value| {
        let mut bent = whole.clone();
        *bent.pointer_mut(path).unwrap() = to;
        Import::check(&bent.to_string(), None).unwrap_err().to_string()
    };
    let measurement = "measurements[0].measurement";
    for (path, to, words) in [
        ("/measurements/0/measurement/stage/last_layer", json!(99), measurement),
        ("/measurements/0/measurement/stage_index", json!(4), "stage_index: 4 is out of range. Use 0 to 3"),
        (
            "/measurements/0/measurement/iteration_seconds",
            json!(-1.0),
            "iteration_seconds: -1 is out of range",
        ),
        ("/measurements/0/run", json!("profiles/x"), "measurements[0].run"),
        ("/measurements", json!([]), "measurements: is empty"),
        ("/settings/model", json!("models/other-12345678"), "settings.model: models/other-12345678 is not"),
        ("/settings/scenarios", json!([]), "settings.scenarios: 0"),
        ("/settings/profiling_mode", json!("imported"), "settings.profiling_mode: imported is not valid"),
        ("/training/micro_batches", json!(3), "training: differs from settings.training. Use equal values"),
    ] {
        let error = bend(path, to);
        assert!(error.contains(words), "{error:?} lacks {words:?}");
    }
}

fn command(name: &str) -> CommandName {
    CommandName::parse("command", name).unwrap()
}

fn offering(id: &str, commands: &[&str]) -> NewWorker {
    let commands = commands.iter().map(|name| command(name)).collect();
    NewWorker { devices: vec![cpu_slot(0)], commands, ..new_worker(id, "s") }
}

/// Pins that a run of a command is never given to a worker that does not list it, and does not hold up
/// the runs behind it.
#[tokio::test]
async fn a_run_of_a_command_waits_for_a_worker_that_offers_it() {
    let store = store().await;
    let special = NewRun { command: Some(command("special")), ..run() };
    let operation = queue(&store, "a", vec![special, run()]).await;
    store.upsert_worker(&offering("plain", &["other"]), LEASE).await.unwrap();
    let need = store.unplaceable_run(&operation).await.unwrap();
    assert_eq!(
        need,
        Some(RunNeed {
            device_kind: "cpu".to_owned(),
            device_count: 1,
            min_capacity: 1 << 20,
            host_memory: 0,
            command: Some(command("special")),
        })
    );
    let first = try_claim(&store, &worker("plain")).await.expect("the run without a command");
    assert_eq!(first.task.trained().unwrap().command, None);
    assert_eq!(try_claim(&store, &worker("plain")).await, None);
    assert_eq!(try_claim(&store, &worker("unknown")).await, None);

    store.upsert_worker(&offering("able", &["other", "special"]), LEASE).await.unwrap();
    assert_eq!(store.unplaceable_run(&operation).await.unwrap(), None);
    let second = try_claim(&store, &worker("able")).await.expect("the run of the command");
    assert_eq!(second.task.trained().unwrap().command, Some(command("special")));
    // What a worker offers is what its newest start offers.
    let now = store.upsert_worker(&offering("able", &[]), LEASE).await.unwrap();
    assert!(now.commands.is_empty());
}

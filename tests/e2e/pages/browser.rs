//! The pages in a real browser, which is told what to do over `WebDriver`: nothing is loaded from elsewhere, nothing is wrong on the
//! console, everybody can read them, and what changes is seen.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fantoccini::wd::{TimeoutConfiguration, WebDriverCompatibleCommand};
use fantoccini::{Client, ClientBuilder, Locator};
use http::Method;
use hyper_util::client::legacy::connect::HttpConnector;
use loadmaster::store::records::Fenced;
use loadmaster_tests::json;
use serde_json::{Value, json as value};
use tempfile::TempDir;
use url::{ParseError, Url};

use super::http::Stream;
use super::{recommended, scene};
use crate::lists::scene::{LEASE, content, free, measurement, run, worker};

/// Pages that are judged by axe-core: one of each kind.
const JUDGED: [&str; 7] = [
    "/",
    "/plans?filter=nonsense",
    "/plans",
    "/plans/a1",
    "/plans/a1/export/deepspeed",
    "/profiles/first",
    "/errors",
];
/// Longest wait for a change.
const PATIENCE: Duration = Duration::from_secs(120);
/// Changes of a list whose way into the browser is timed.
const CHANGES: usize = 20;
/// Runs whose ends are.
const ENDED_RUNS: usize = 10;

/// The messages on the browser's console.
#[derive(Debug)]
struct Console;

impl WebDriverCompatibleCommand for Console {
    fn endpoint(&self, base: &Url, session: Option<&str>) -> Result<Url, ParseError> {
        base.join(&format!("session/{}/se/log", session.unwrap_or_default()))
    }

    fn method_and_body(&self, _: &Url) -> (Method, Option<String>) {
        (Method::POST, Some(value!({"type": "browser"}).to_string()))
    }
}

/// A browser, which ends with this.
struct Browser {
    client: Client,
    driver: Child,
    _folder: TempDir,
}

impl Browser {
    /// None where there is none on this machine, which is said.
    async fn start() -> Option<Self> {
        let started = Self::try_start().await;
        started.inspect_err(|why| eprintln!("SKIPPED: pages::browser: {why}")).ok()
    }

    async fn try_start() -> Result<Self, String> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
        let port = listener.local_addr().map_err(|error| error.to_string())?.port();
        drop(listener);
        let folder = TempDir::new().map_err(|error| error.to_string())?;
        let mut driver = Command::new("chromedriver")
            .arg(format!("--port={port}"))
            .env("TMPDIR", folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| {
                format!("chromedriver cannot be started ({error}): deploy/setup/packages.sh browser")
            })?;
        let profile = folder.path().join("profile");
        let options = value!({
            "goog:chromeOptions": {"args": [
                "--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--window-size=1280,1000",
                "--no-first-run", "--disable-background-networking", format!("--user-data-dir={}", profile.display()),
            ]},
            "goog:loggingPrefs": {"browser": "ALL"},
        });
        let Value::Object(options) = options else { return Err("no options".to_owned()) };
        let begin = Instant::now();
        let client = loop {
            let mut builder = ClientBuilder::new(HttpConnector::new());
            match builder.capabilities(options.clone()).connect(&format!("http://127.0.0.1:{port}")).await {
                Ok(client) => break client,
                Err(error) if begin.elapsed() > Duration::from_secs(60) => {
                    let _ = driver.kill();
                    let _ = driver.wait();
                    return Err(format!("no browser starts: {error}"));
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
            }
        };
        let patience =
            TimeoutConfiguration::new(Some(Duration::from_secs(60)), Some(Duration::from_secs(60)), None);
        client.update_timeouts(patience).await.map_err(|error| error.to_string())?;
        Ok(Self { client, driver, _folder: folder })
    }

    async fn run(&self, script: &str) -> Value {
        self.client.execute(script, Vec::new()).await.expect("the script runs")
    }

    /// Loads a page.
    async fn open(&self, pages: &str, path: &str) {
        self.client.goto(&format!("http://{pages}{path}")).await.expect("the page is loaded");
    }

    /// Runs a script until what it returns is what is waited for.
    async fn until(&self, script: &str, is_there: impl Fn(&Value) -> bool) {
        let begin = Instant::now();
        loop {
            let found = self.run(script).await;
            if is_there(&found) {
                return;
            }
            assert!(begin.elapsed() < PATIENCE, "{script} still finds {found}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until an element of the page has a text.
    async fn shows(&self, id: &str, text: &str) {
        let script = format!("return document.getElementById('{id}').innerText");
        self.until(&script, |found| found.as_str().is_some_and(|found| found.contains(text))).await;
    }

    /// What is wrong on the console since the last look.
    async fn complaints(&self) -> Vec<String> {
        let log = self.client.issue_cmd(Console).await.expect("the console can be read");
        let entries = log.as_array().cloned().unwrap_or_default();
        let wrong = entries.iter().filter(|entry| entry["level"] != "INFO" && entry["level"] != "DEBUG");
        wrong.map(|entry| entry["message"].to_string()).collect()
    }

    async fn end(mut self) {
        let _ = self.client.clone().close().await;
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.driver.kill();
    }
}

/// The script of axe-core, if it is there.
fn axe() -> Option<String> {
    let printed = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/e2e/pages/axe.sh")).output().ok()?;
    let path = String::from_utf8(printed.stdout).ok()?;
    std::fs::read_to_string(path.trim()).ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_loads_nothing_from_elsewhere_and_everybody_can_read_the_pages() {
    let Some(browser) = Browser::start().await else { return };
    let axe = axe();
    if axe.is_none() {
        eprintln!("SKIPPED: axe-core is not there (tests/e2e/pages/axe.sh)");
    }
    let (scene, pages) = scene().await;
    let whole = recommended(&scene);
    for path in [
        "/",
        whole.as_str(),
        "/plans",
        "/plans?filter=nonsense",
        "/plans/a1",
        "/plans/a1/export",
        "/plans/a1/export/deepspeed",
        "/plans/a1/history",
        "/compare?plan=a1&plan=b2",
        "/placements",
        "/profiles",
        "/profiles/first",
        "/runs",
        "/operations",
        "/workers",
        "/errors",
        "/nothing",
    ] {
        browser.open(&pages, path).await;
        // A browser writes down what it loaded a little later than it says that the page is there.
        let hosts = "return performance.getEntriesByType('resource').map((of) => new URL(of.name).host)";
        browser.until(hosts, |hosts| hosts.as_array().is_some_and(|hosts| hosts.len() >= 2)).await;
        let hosts = browser.run(hosts).await;
        assert!(hosts.as_array().into_iter().flatten().all(|host| *host == *pages), "{path}: {hosts}");
        // That a page says 400 or 404 is told on the console, too.
        let is_wrong = |of: &String| !of.contains("the server responded with a status of 4");
        let complaints: Vec<String> = browser.complaints().await.into_iter().filter(is_wrong).collect();
        assert!(complaints.is_empty(), "{path}: {complaints:?}");
        let Some(axe) = axe.as_ref().filter(|_| JUDGED.contains(&path) || path == whole) else { continue };
        browser.run(axe).await;
        let found = browser
            .client
            .execute_async(
                "const done = arguments[0]; axe.run().then((found) => done(found.violations.map((of) =>
                     [of.impact, of.id, of.nodes.map((node) => node.html).slice(0, 3)])))",
                Vec::new(),
            )
            .await
            .expect("axe runs");
        let is_serious = |of: &&Value| matches!(of[0].as_str(), Some("serious" | "critical"));
        let serious: Vec<Value> =
            found.as_array().into_iter().flatten().filter(is_serious).cloned().collect();
        assert!(serious.is_empty(), "{path}: {serious:#?}");
    }
    browser.end().await;
}

/// What a browser shows follows what happens, and leaves alone what its reader is typing.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_is_seen_in_the_browser() {
    let Some(browser) = Browser::start().await else { return };
    let (scene, pages) = scene().await;
    browser.open(&pages, "/plans").await;
    browser
        .client
        .find(Locator::Css("input[name=filter]"))
        .await
        .expect("it is there")
        .send_keys("solver")
        .await
        .expect("typed");
    let mut times = Vec::new();
    for change in 0..CHANGES {
        json(&scene.planner, &["plan", "label", "c3", &format!("change=v{change}")]);
        let begin = Instant::now();
        browser.shows("rows", &format!("change=v{change}")).await;
        times.push(begin.elapsed());
    }
    let typed = browser.run("return document.querySelector('input[name=filter]').value").await;
    assert_eq!(typed, "solver", "what was typed stays");
    assert_eq!(browser.complaints().await, Vec::<String>::new());
    seen(times);
    browser.end().await;
}

/// So is what becomes of runs, which a worker reports: soon after it is stored, and nobody asks for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_a_run_is_seen_in_the_browser() {
    let Some(browser) = Browser::start().await else { return };
    let (scene, pages) = scene().await;
    for index in 0..ENDED_RUNS {
        scene.profile(&format!("p{index}"), vec![run()]).await;
    }
    let name = worker("w", 4).name;
    scene.store.upsert_worker(&worker("w", 4), LEASE).await.expect("a worker is stored");
    browser.open(&pages, "/runs?filter=state+%3D+succeeded").await;
    let mut times = Vec::new();
    for ended in 1..=ENDED_RUNS {
        let claim = scene.store.claim_run(&name, &free(4), &free(4), LEASE).await.expect("runs are claimed");
        let claim = claim.expect("a run waits");
        // The shortest of runs take as long.
        tokio::time::sleep(Duration::from_millis(500)).await;
        let done =
            scene.store.complete_run(&name, &claim.run, claim.lease_token, &[measurement()], 1.0).await;
        assert_eq!(done.expect("the result is stored"), Fenced::Applied);
        let begin = Instant::now();
        let rows = "return document.querySelectorAll('#main tbody tr').length";
        browser.until(rows, |rows| rows.as_u64().is_some_and(|rows| rows >= ended as u64)).await;
        times.push(begin.elapsed());
    }
    assert_eq!(browser.complaints().await, Vec::<String>::new());
    seen(times);
    browser.end().await;
}

/// Prints after how long changes were seen.
fn seen(mut times: Vec<Duration>) {
    times.sort();
    let (middle, most) = (times[times.len() / 2], times[times.len() - 1]);
    println!("a change was seen after {middle:?} in the middle and {most:?} at most");
}

/// What changes after a page was made and before it listens is seen, too. Somebody else watches meanwhile, so that it is news to nobody
/// any more when the page does.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_before_a_page_listens_is_seen_in_the_browser() {
    let Some(browser) = Browser::start().await else { return };
    let (scene, pages) = scene().await;
    let mut other = Stream::open(&pages, None).await.expect("there is room");
    other.next().await;
    browser.open(&pages, "/plans").await;
    // It listens no more, and no clock makes it ask either.
    browser
        .run(
            "window.dispatchEvent(new Event('pagehide'));
             for (let timer = setTimeout(() => {}); timer > 0; timer -= 1) clearTimeout(timer);",
        )
        .await;
    json(&scene.planner, &["plan", "label", "c3", "change=early"]);
    assert_eq!(other.next().await.data, "plans");
    browser.run("window.dispatchEvent(new Event('pageshow'))").await;
    browser.shows("rows", "change=early").await;
    browser.end().await;
}

/// What becomes of something old is seen, too, though nobody is told of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_something_old_is_seen_in_the_browser() {
    let Some(browser) = Browser::start().await else { return };
    let (scene, pages) = scene().await;
    let (profile, model) = (scene.profile("second", Vec::new()).await, scene.model(10).await);
    for layers in 1..30 {
        for (id, sizes) in [("d", [layers, 30 - layers]), ("e", [30 - layers, layers])] {
            let kind = if id == "d" { "cpu" } else { "cuda" };
            scene.plan(&format!("{id}{layers}"), &content(&profile, &model, kind, &sizes)).await;
        }
    }
    browser.open(&pages, "/plans?filter=profile+%3D+first").await;
    // A page that begins to listen is asked for again, and the first look of those who watch is news of everything.
    let fetched =
        "return performance.getEntriesByType('resource').filter((of) => of.initiatorType == 'fetch').length";
    browser.until(fetched, |fetched| *fetched != 0).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    json(&scene.planner, &["plan", "label", "a1", "age=old"]);
    browser.shows("rows", "age=old").await;
    browser.end().await;
}

/// A form's choice is an address, and that shows what was chosen.
#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_is_chosen_in_the_browser() {
    let Some(browser) = Browser::start().await else { return };
    let (_scene, pages) = scene().await;
    let found = async |what: &str| browser.client.find(Locator::Css(what)).await.expect("it is there");
    browser.open(&pages, "/plans/a1/export/torch-pipelining").await;
    found("select[name=manifest]").await.select_by_value("jobset").await.expect("it can be chosen");
    found("input[name=image]").await.send_keys("train:1").await.expect("typed");
    found("form button").await.click().await.expect("clicked");
    browser.shows("main", "kind: JobSet").await;
    browser.shows("main", "train:1").await;
    let address = browser.client.current_url().await.expect("it has an address");
    assert!(address.query().is_some_and(|query| query.contains("manifest=jobset")), "{address}");
    assert_eq!(
        found("select[name=manifest]").await.prop("value").await.expect("read").as_deref(),
        Some("jobset")
    );
    assert_eq!(browser.complaints().await, Vec::<String>::new());
    browser.end().await;
}

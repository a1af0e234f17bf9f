//! The page of `segue watch --serve` in a real browser, while a run lives and is started again.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use segue_tests::browser::{Browser, LEFT, RIGHT, TAB};
use segue_tests::{ROOT, Workplace, alone, succeed, wait_for};
use serde_json::{Value, json};

/// Where the figures of the guide go, where they are to be made anew.
const FIGURES: &str = "SEGUE_FIGURES";

fn keep(name: &str, image: &[u8]) {
    if std::env::var(FIGURES).is_ok_and(|value| value == "write") {
        fs::write(Path::new(ROOT).join("docs/book/src/guide").join(name), image).unwrap();
    }
}

/// The words under a curve.
fn told(browser: &Browser, curve: &str) -> String {
    let words = browser
        .script(&format!("return document.querySelector('[data-curve=\"{curve}\"] output')?.textContent"));
    words.as_str().unwrap_or_default().to_string()
}

/// Everything that was asked for came from `origin`, and the page's policy refused nothing.
fn stays_at(browser: &Browser, origin: &str) {
    let requests = browser.requests();
    assert!(requests.iter().any(|url| url.starts_with(origin)), "{requests:?}");
    let is_own = |url: &String| url.starts_with(origin) || url.starts_with("data:");
    assert!(requests.iter().all(is_own), "{requests:?}");
    let said = browser.console();
    let is_trouble = |line: &&String| line.contains("Content Security Policy") || line.contains("Uncaught");
    assert!(said.iter().find(is_trouble).is_none(), "{said:?}");
}

fn fits(browser: &Browser, width: u64) {
    let found = browser.script("return [document.documentElement.scrollWidth, window.innerWidth]");
    assert_eq!(found, json!([width, width]), "the page scrolls sideways");
}

#[test]
fn the_page_follows_a_run_over_its_restart_with_keys_on_a_phone_and_asks_nobody_else() {
    let Some(browser) = Browser::start() else { return };
    let place = Workplace::new();
    succeed(alone(&place.pretrain("before", &["train.steps=600", "log.every=5", "eval.every=100"])));
    let long = ["train.steps=100000", "checkpoint.every=50", "eval.every=100", "log.every=5"];
    let job = place.pretrain("run", &long);
    let words: Vec<&str> = job.iter().map(String::as_str).filter(|word| *word != "--json").collect();
    let mut launch = alone(&[&["launch", "--json", "-n", "2", "--back-off", "0.1"][..], &words].concat());
    launch.env("SEGUE_FAULTS", "kill@step.begin:step=180:rank=1:attempt=1");
    let mut launch = launch.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    wait_for("a run", Duration::from_secs(60), || place.path("run/launch").exists());
    let mut server =
        alone(&["watch", "--serve=127.0.0.1:0", "--token", &place.text("run"), &place.text("before")]);
    let mut server = server.stderr(Stdio::piped()).spawn().expect("it starts");
    let mut line = String::new();
    BufReader::new(server.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let url = line.trim().strip_prefix("watch: ").unwrap().to_string();
    let origin = url.split("?token").next().unwrap().to_string();

    browser.resize(1200, 900, false);
    browser.open(&url);
    // The token is a cookie by now, and gone from the address.
    assert_eq!(browser.script("return location.href"), Value::from(origin.as_str()));
    // Steps come while the page is open, and go on after the run was started again.
    let summary = || browser.script("return document.querySelector('#summary tbody')?.innerText ?? ''");
    let sees = |what: &str| {
        wait_for(what, Duration::from_secs(180), || {
            let script = "return [...document.querySelectorAll('h2')][0]?.parentElement.innerText ?? ''";
            browser.script(script).as_str().is_some_and(|text| text.contains(what))
        })
    };
    wait_for("a live run", Duration::from_secs(60), || {
        summary().as_str().is_some_and(|text| text.contains("training"))
    });
    let first = told(&browser, "train/loss");
    wait_for("further steps", Duration::from_secs(60), || told(&browser, "train/loss") != first);
    sees("2 of 2 ranks, as the supervisor hears them");
    sees("signal 9");
    wait_for("the mark of a restart", Duration::from_secs(60), || {
        browser.script("return document.querySelectorAll('line.restart').length > 0") == true
    });
    let after = told(&browser, "train/loss");
    wait_for("steps of the second attempt", Duration::from_secs(60), || {
        told(&browser, "train/loss") != after
    });

    // Keys alone: to a curve, over its points, and to the scale.
    browser.script("document.activeElement.blur(); window.scrollTo(0, 0)");
    let focus = || {
        browser
            .script("const at = document.activeElement; return at.closest('figure')?.dataset.curve ?? at.id")
    };
    let mut order = Vec::new();
    while focus() != "train/loss" && order.len() < 12 {
        browser.press(&[TAB]);
        order.push(focus());
    }
    assert_eq!(order, ["scale", "smoothing", "summary", "train/loss"]);
    browser.press(&[RIGHT]);
    let one = told(&browser, "train/loss");
    browser.press(&[RIGHT, RIGHT]);
    let three = told(&browser, "train/loss");
    browser.press(&[LEFT, LEFT]);
    assert!(one.contains("step 5") && three.contains("step 15"), "{one} {three}");
    assert_eq!(told(&browser, "train/loss"), one);
    let named = browser.script("return document.activeElement.getAttribute('aria-label')");
    assert!(named.as_str().is_some_and(|text| text.starts_with("training loss (nats): ")), "{named}");
    keep("watch.png", &browser.screenshot());

    browser.tools(
        "Emulation.setEmulatedMedia",
        json!({ "features": [{ "name": "prefers-color-scheme", "value": "dark" }] }),
    );
    let dark = browser.script("return getComputedStyle(document.body).backgroundColor");
    assert_eq!(dark, "rgb(20, 23, 27)");
    browser.resize(375, 800, true);
    std::thread::sleep(Duration::from_millis(500));
    fits(&browser, 375);
    keep("watch-phone.png", &browser.screenshot());
    stays_at(&browser, &origin);

    // SAFETY: plain system calls, to processes of ours.
    unsafe { libc::kill(launch.id() as i32, libc::SIGTERM) };
    launch.wait().unwrap();
    sees("Checkpoints of steps");
    wait_for("the end of the run", Duration::from_secs(60), || {
        summary().as_str().is_some_and(|text| text.contains("stopped"))
    });
    server.kill().unwrap();
    server.wait().unwrap();
}

#[test]
fn a_report_shows_its_runs_from_a_file() {
    let Some(browser) = Browser::start() else { return };
    let place = Workplace::new();
    succeed(alone(&place.pretrain("run", &["train.steps=30", "log.every=1", "eval.every=10"])));
    let hostile = "<img src=x onerror=document.title='owned'>";
    fs::create_dir(place.path("run/samples")).unwrap();
    let samples = json!({ "samples": [{ "context": hostile, "sample": "</script><script>document.title='owned'</script>", "reference": "" }] });
    fs::write(place.path("run/samples/samples.json"), samples.to_string()).unwrap();
    fs::rename(place.path("run"), place.path("run <b> & co")).unwrap();
    succeed(alone(&["report", &place.text("run <b> & co"), "-o", &place.text("report.html")]));
    let url = format!("file://{}", place.text("report.html"));
    browser.resize(375, 800, true);
    browser.open(&url);
    assert!(told(&browser, "train/loss").ends_with("at step 30"));
    assert_eq!(browser.script("return document.title"), "run <b> & co · Segue");
    assert_eq!(
        browser.script("return document.querySelectorAll('#runs img, #runs script, #runs b').length"),
        0
    );
    fits(&browser, 375);
    stays_at(&browser, "file://");
}

/// Values at and beyond the ends of what an axis can show, in pairs; a moment that no calendar has; more ranks than a call takes arguments.
#[test]
fn whatever_the_rows_of_a_run_hold_is_drawn_or_said_to_be_left_out() {
    let Some(browser) = Browser::start() else { return };
    let place = Workplace::new();
    let sizes = [5e-324, 1e-310, 1e-300, 1e-3, 1.0, 1e16, 1.0000000000000002e16, 1e280, 1.7e308];
    let values: Vec<f64> = sizes.into_iter().flat_map(|size| [size, -size]).chain([0.0]).collect();
    let pairs: Vec<(f64, f64)> =
        values.iter().flat_map(|one| values.iter().map(move |other| (*one, *other))).collect();
    let row = |step: u64, of: fn(&(f64, f64)) -> f64| {
        let curves: serde_json::Map<String, Value> =
            pairs.iter().enumerate().map(|(i, pair)| (format!("pair-{i}"), of(pair).into())).collect();
        let mut row = json!({ "kind": "train", "step": step, "attempt": step, "loss": of(&(1e-3, 1.7e308)) });
        row.as_object_mut().unwrap().extend(curves);
        row.to_string()
    };
    fs::create_dir_all(place.path("run/launch")).unwrap();
    let rows = [row(1, |pair| pair.0), row(u64::MAX, |pair| pair.1)];
    fs::write(place.path("run/metrics.jsonl"), rows.join("\n") + "\n").unwrap();
    let ranks: Vec<Value> = (0..150_000).map(|rank| json!({ "rank": rank, "silent_s": 1e300 })).collect();
    let report = json!({ "attempt": 1, "began": u64::MAX, "seconds": 1e300, "ranks": ranks });
    fs::write(place.path("run/launch/attempt-0001.json"), report.to_string()).unwrap();
    succeed(alone(&["report", &place.text("run"), "-o", &place.text("report.html")]));
    browser.resize(1200, 900, false);
    browser.open(&format!("file://{}", place.text("report.html")));
    browser.script("document.getElementById('more').open = true");
    for scale in ["linear", "log"] {
        browser.script(&format!(
            "const scale = document.getElementById('scale'); scale.value = '{scale}'; scale.dispatchEvent(new Event('input'))"
        ));
        // Points that cannot be shown are said to be left out; the others lie within the picture.
        let found = browser.script(
            "return [...document.querySelectorAll('figure')].map((figure) => [figure.hidden, figure.querySelector('output').textContent,
               [...figure.querySelectorAll('.dot')].map((dot) => [Number(dot.getAttribute('cx')), Number(dot.getAttribute('cy'))]), figure.querySelectorAll('text').length])",
        );
        let figures = found.as_array().unwrap();
        assert_eq!(figures.len(), pairs.len() + 1);
        for figure in figures {
            let dots = figure[2].as_array().unwrap();
            let left_out = match dots.len() {
                0 => "2 values left out",
                1 => "1 value left out",
                _ => "",
            };
            assert!(figure[0] == false && figure[1].as_str().unwrap().contains(left_out), "{figure}");
            let is_within =
                |place: &Value, end: f64| place.as_f64().is_some_and(|at| (0.0..=end).contains(&at));
            assert!(
                dots.iter().all(|dot| is_within(&dot[0], 1200.0) && is_within(&dot[1], 220.0)),
                "{figure}"
            );
            assert!(figure[3].as_u64().unwrap() < 40, "{figure}");
        }
        assert!(told(&browser, "train/loss").ends_with("1 value left out: beyond what the axis shows"));
    }
    let table = browser.script("return document.querySelector('[aria-label=Attempts]').innerText");
    assert!(table.as_str().is_some_and(|text| text.contains('–')), "{table}");
    stays_at(&browser, "file://");
}

//! `segue plan`: what a run would be on a machine.

use std::process::Command;

use segue_tests::{ROOT, alone, fail, finish, mpirun, stderr, succeed};
use serde_json::Value;

/// `segue plan --json` of a recipe.
fn plan(recipe: &str, more: &[&str]) -> Command {
    let config = format!("{ROOT}/configs/recipes/{recipe}.toml");
    alone(&[&["plan", "--json", "--config", &config], more].concat())
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

const A100: [&str; 4] = ["--machine", "dgx-a100", "--precision", "bf16"];

#[test]
fn a_plan_says_what_each_number_of_nodes_gives() {
    let result = succeed(plan("nvidia-wt103-base", &[&A100[..], &["--nodes", "1,2,4"]].concat()));
    let plans = result["plans"].as_array().unwrap();
    let of = |key: &str| plans[..2].iter().map(|plan| number(&plan[key])).collect::<Vec<f64>>();
    assert_eq!((of("nodes"), of("ranks")), (vec![1.0, 2.0], vec![8.0, 16.0]));
    assert!(of("tokens_per_s")[1] > 1.5 * of("tokens_per_s")[0]);
    assert!(of("efficiency_against_one_node")[0] == 1.0 && of("efficiency_against_one_node")[1] < 1.0);
    for plan in &plans[..2] {
        let parts = plan["parts"].as_object().unwrap();
        let sum: f64 =
            parts.iter().filter(|(name, _)| *name != "communication_total").map(|(_, s)| number(s)).sum();
        assert!((sum / number(&plan["step_s"]) - 1.0).abs() < 1e-9, "{plan}");
        let held: f64 = plan["memory"].as_object().unwrap().values().map(number).sum();
        assert!((held / number(&plan["memory_bytes"]) - 1.0).abs() < 1e-9, "{plan}");
        assert!(number(&plan["as_configured"]["expected"]) >= number(&plan["best"]["expected"]) * 0.999);
        assert!(
            plan["fits"] == true && number(&plan["mfu"]) > 0.02 && number(&plan["price"]) > 1.0,
            "{plan}"
        );
    }
    // 16 micro-steps are not for 32 ranks; the row says so.
    assert!(plans[2]["error"].as_str().unwrap().contains("32 ranks do not divide the 16 micro-steps"));
}

#[test]
fn tables_and_bars_are_at_most_a_hundred_columns_wide() {
    for nodes in ["1", "1,2,4,8"] {
        let lanes = ["--nodes", nodes, "--lanes-per-rank", "16", "train.exact=false"];
        let said = stderr(&finish(plan("nvidia-wt103-large", &[&A100[..], &lanes].concat())));
        let widest = said.lines().max_by_key(|line| line.chars().count()).unwrap();
        assert!(widest.chars().count() <= 100, "{} columns: {widest}", widest.chars().count());
        for word in ["MFU", "products", "exposed", "activations", "no failures", "best every"] {
            assert!(said.contains(word) || (nodes == "1" && word == "exposed"), "{word}:\n{said}");
        }
    }
}

#[test]
fn the_largest_micro_batch_fits_and_the_next_does_not() {
    let sixteen = ["--lanes-per-rank", "64", "--memory"];
    let result = succeed(plan("nvidia-wt103-large", &[&A100[..], &sixteen].concat()));
    let found = &result["plans"][0];
    let micro_batch = number(&found["micro_batch"]) as usize;
    assert!(found["fits"] == true && micro_batch > 4 && micro_batch < 64, "{found}");
    let next = format!("train.micro_batch={}", 2 * micro_batch);
    let result =
        succeed(plan("nvidia-wt103-large", &[&A100[..], &["--lanes-per-rank", "64", &next]].concat()));
    assert_eq!(result["plans"][0]["fits"], false);
    // Recomputation makes room, and so do sums of gradients that are shared out.
    let more = |option: &[&str]| {
        let result = succeed(plan("nvidia-wt103-large", &[&A100[..], &sixteen, option].concat()));
        number(&result["plans"][0]["micro_batch"]) as usize
    };
    assert!(more(&["--recompute"]) > micro_batch);
    assert!(more(&["--shard", "gradients"]) >= micro_batch);
    fail(
        plan("nvidia-wt103-large", &[&A100[..], &["--memory=1GB"]].concat()),
        78,
        &["no micro-batch fits", "--recompute"],
    );
}

#[test]
fn what_cannot_be_planned_is_refused_with_advice() {
    fail(plan("enwik8-base", &["--machine", "dgx-9"]), 78, &["dgx-9", "dgx-1, dgx-2h, dgx-a100, dgx-h100"]);
    fail(plan("enwik8-base", &["--machine", "no/such.toml"]), 66, &["no/such.toml"]);
    fail(
        plan("enwik8-base", &["--machine", "dgx-1", "--precision", "bf16", "--ranks", "1"]),
        78,
        &["no bf16", "f32, fp16"],
    );
    fail(plan("enwik8-base", &["--machine", "dgx-1", "--ranks", "5"]), 78, &["5 ranks do not divide"]);
    fail(plan("tiny", &["--machine", "dgx-1"]), 78, &["model.vocab_size=N"]);
}

#[test]
fn every_measured_run_is_held_against_its_prediction() {
    let output = finish(alone(&["plan", "--check", "--json"]));
    let said = stderr(&output);
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = result["rows"].as_array().unwrap();
    assert_eq!(said.lines().filter(|line| line.starts_with("| ")).count(), rows.len() + 1);
    // The figures of NVIDIA's table that are best known: eight A100, and eight nodes of sixteen V100.
    let row = |machine: &str, model: &str, precision: &str, ranks: u64| {
        let is = |row: &&Value| {
            row["machine"] == machine
                && row["model"] == model
                && row["precision"] == precision
                && row["ranks"] == ranks
        };
        rows.iter().find(is).unwrap_or_else(|| panic!("{machine} {model} {precision} {ranks}"))
    };
    for (machine, model, precision, ranks, speed_up) in [
        ("dgx-a100", "base", "fp16", 8, 7.503),
        ("dgx-a100", "base", "tf32", 8, 7.367),
        ("dgx-2h", "large", "f32", 128, 7.449),
        ("dgx-2h", "large", "fp16", 128, 7.678),
    ] {
        let row = row(machine, model, precision, ranks);
        assert!((number(&row["scaling_measured"]) - speed_up).abs() < 0.001, "{row}");
        assert!(number(&row["scaling_error"]).abs() < 0.1 && row["fitted"] == false, "{row}");
    }
    // The page shows what the command says.
    let page = std::fs::read_to_string(format!("{ROOT}/docs/book/src/reference/performance.md")).unwrap();
    for line in said.lines() {
        assert!(page.contains(line.trim()), "docs/book/src/reference/performance.md lacks: {line}");
    }
}

#[test]
fn a_measured_machine_is_one_to_plan_for() {
    let place = tempfile::tempdir().unwrap();
    let sizes = ["model.vocab_size=500", "train.lanes=8", "train.micro_batch=2"];
    let file = |ranks: usize| place.path().join(format!("on-{ranks}.toml")).display().to_string();
    for ranks in [1, 2] {
        let file = file(ranks);
        let measured = ["plan", "--json", "--measure", &file];
        let result = succeed(if ranks == 1 { alone(&measured) } else { mpirun(ranks, &measured) });
        assert!(number(&result["machine"]["peak"]["f32"]) > 1e8, "{result}");
        let planned = succeed(plan("tiny", &[&["--machine", &file, "--ranks", "1,2"], &sizes[..]].concat()));
        let plans = &planned["plans"];
        assert_eq!(plans[0]["parts"]["communication"], 0.0);
        assert!(number(&plans[1]["parts"]["communication"]) > 0.0, "{planned}");
    }
    assert!(std::fs::read_to_string(file(2)).unwrap().contains("on 2 ranks"));
}

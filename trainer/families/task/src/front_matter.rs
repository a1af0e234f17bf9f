//! What the Hub of Hugging Face reads of a model card: YAML between two lines of dashes at its top. Keys are those of
//! <https://huggingface.co/docs/hub/model-cards>.

use std::path::Path;

use segue_publish::read_regular_text;
use segue_tasks::Kind;
use serde_json::{Value, json};

use super::scoring::{Metric, SplitScores};

/// The card of a model folder.
pub(super) const CARD: &str = "README.md";
/// What a model takes over from the card of its base.
const TERMS: [&str; 4] = ["license", "license_name", "license_link", "language"];
/// What the Hub's cache calls the folder of a repository: this, then its name with `--` for `/`.
const CACHED: &str = "models--";

/// Data sets by the names of tasks that stand for one.
const DATASETS: [(&str, &[&str]); 11] = [
    ("nyu-mll/glue", &["cola", "sst2", "mrpc", "qqp", "stsb", "mnli", "qnli", "rte", "wnli", "ax"]),
    ("AI-Secure/adv_glue", &["adv-sst2", "adv-qqp", "adv-mnli", "adv-qnli", "adv-rte"]),
    ("fancyzhx/ag_news", &["agnews"]),
    ("stanfordnlp/imdb", &["imdb"]),
    ("fancyzhx/yelp_polarity", &["yelp2"]),
    ("Yelp/yelp_review_full", &["yelp5"]),
    ("fancyzhx/amazon_polarity", &["amazon2"]),
    ("fancyzhx/dbpedia_14", &["dbpedia"]),
    ("ehovy/race", &["race", "race-high", "race-middle"]),
    ("rajpurkar/squad", &["squad1"]),
    ("rajpurkar/squad_v2", &["squad2"]),
];
/// Metrics that have another name there.
const METRICS: [(&str, &str); 5] = [
    ("matthews", "matthews_correlation"),
    ("pearson", "pearsonr"),
    ("spearman", "spearmanr"),
    ("macro_f1", "f1"),
    ("exact", "exact_match"),
];

/// What is known of the model that another was made of: keys of a card with their values.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BaseModel(Vec<(&'static str, Value)>);

impl BaseModel {
    /// Of the base in `folder`: its name where it lies in the Hub's cache, and what its card says of license and language.
    pub fn in_folder(folder: &Path) -> Self {
        let name = name_in_cache(folder).map(|name| ("base_model", json!(name)));
        Self(name.into_iter().chain(said(&card_of(folder), &TERMS)).collect())
    }

    /// Its name on the Hub, where that is known.
    pub(super) fn name(&self) -> Option<&str> {
        self.0.iter().find(|(key, _)| *key == "base_model")?.1.as_str()
    }

    /// What the card of the fine-tuned model in `folder` says of its base.
    pub fn of_card_in(folder: &Path) -> Self {
        let card = card_of(folder);
        Self(said(&card, &["base_model"]).into_iter().chain(said(&card, &TERMS)).collect())
    }
}

fn card_of(folder: &Path) -> String {
    read_regular_text(folder.join(CARD)).unwrap_or_default()
}

/// The name of the repository whose snapshot a path of the Hub's cache leads to.
fn name_in_cache(folder: &Path) -> Option<String> {
    let mut names = folder.iter().filter_map(|part| part.to_str()?.strip_prefix(CACHED));
    names.next_back().map(|name| name.replace("--", "/"))
}

/// What a card says by plain words or lists of them; anything else of YAML is passed over.
fn said(card: &str, keys: &[&'static str]) -> Vec<(&'static str, Value)> {
    let body = card.strip_prefix("---\n").and_then(|rest| rest.split("\n---").next()).unwrap_or_default();
    let lines: Vec<&str> = body.lines().collect();
    let value = |key: &str| {
        let at = lines.iter().position(|line| line.split_once(':').is_some_and(|(k, _)| k == key))?;
        let own = lines[at][key.len() + 1..].trim();
        if let Some(list) = own.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            return list.split(',').map(word).collect::<Option<Vec<_>>>().map(|all| json!(all));
        }
        if !own.is_empty() {
            return word(own).map(|word| json!(word));
        }
        let items = lines[at + 1..].iter().map_while(|line| line.trim_start().strip_prefix("- "));
        let all = items.map(word).collect::<Option<Vec<_>>>()?;
        (!all.is_empty()).then(|| json!(all))
    };
    keys.iter().filter_map(|key| Some((*key, value(key)?))).collect()
}

/// A scalar of YAML that stands for itself, in quotes or not.
fn word(text: &str) -> Option<String> {
    let text = text.trim();
    let inner = ['"', '\''].into_iter().find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote));
    let text = inner.unwrap_or(text);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._/:+~".contains(c);
    (!text.is_empty() && text.chars().all(is_plain)).then(|| text.to_string())
}

/// The front matter of the card `title`. `kinds`: by task, what it asks.
pub(super) fn front_matter(
    model: &str,
    title: &str,
    kinds: &[(&str, Kind)],
    scores: &[SplitScores],
    pipeline: &Result<&'static str, String>,
    base: &BaseModel,
) -> String {
    let tag = pipeline.as_ref().map_or(String::new(), |name| format!("pipeline_tag: {name}\n"));
    let mut keys = vec![("tags", json!([model, "segue"])), ("metrics", json!(metric_names(scores)))];
    keys.extend(base.0.iter().cloned());
    let datasets = unique(kinds.iter().filter_map(|(task, _)| dataset(task)));
    if !datasets.is_empty() {
        keys.push(("datasets", json!(datasets)));
    }
    let results: Vec<Value> = scores.iter().filter_map(|split| result(kinds, split)).collect();
    if !results.is_empty() {
        keys.push(("model-index", json!([{ "name": title, "results": results }])));
    }
    let lines: Vec<String> = keys.iter().map(|(key, value)| format!("{key}: {}\n", yaml(value))).collect();
    format!("---\nlibrary_name: {}\n{tag}{}---\n", library(kinds), lines.concat())
}

/// A value on one line. JSON is YAML, but for characters that YAML wants escaped.
fn yaml(value: &Value) -> String {
    let text = value.to_string();
    let escaped = |c: char| match c {
        '\u{7f}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}' => format!("\\u{:04x}", u32::from(c)),
        _ => c.to_string(),
    };
    text.chars().map(escaped).collect()
}

/// The package that opens the model with its heads: of several heads the public one has none.
fn library(kinds: &[(&str, Kind)]) -> &'static str {
    match kinds {
        [(_, one)] if *one != Kind::Ranking => "transformers",
        _ => "segue",
    }
}

/// What the scores of a split are in an index of models; `None` where it has none.
fn result(kinds: &[(&str, Kind)], split: &SplitScores) -> Option<Value> {
    let (_, kind) = kinds.iter().find(|(task, _)| *task == split.task)?;
    let measured = |metric: &&Metric| metric.value.is_finite();
    let metric = |metric: &Metric| json!({ "type": hub_name(&metric.name), "name": metric.name, "value": metric.value });
    let metrics: Vec<Value> = split.metrics.iter().filter(measured).map(metric).collect();
    let data = dataset(&split.task).unwrap_or(&split.task);
    (!metrics.is_empty()).then(|| {
        json!({
            "task": { "type": task_type(*kind) },
            "dataset": { "type": data, "name": split.task, "split": split.split },
            "metrics": metrics,
        })
    })
}

fn task_type(kind: Kind) -> &'static str {
    match kind {
        Kind::Classification | Kind::Regression => "text-classification",
        Kind::Tagging => "token-classification",
        Kind::Span => "question-answering",
        Kind::Choice => "multiple-choice",
        Kind::Ranking => "text-ranking",
    }
}

fn dataset(task: &str) -> Option<&'static str> {
    DATASETS.iter().find(|(_, tasks)| tasks.contains(&task)).map(|(name, _)| *name)
}

fn hub_name(metric: &str) -> &str {
    METRICS.iter().find(|(own, _)| *own == metric).map_or(metric, |(_, name)| *name)
}

fn metric_names(scores: &[SplitScores]) -> Vec<&str> {
    unique(scores.iter().flat_map(|split| &split.metrics).map(|metric| hub_name(&metric.name)))
}

fn unique<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut all = Vec::new();
    for name in names {
        if !all.contains(&name) {
            all.push(name);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scores(task: &str, metrics: &[(&str, f64)]) -> SplitScores {
        let metric = |(name, value): &(&str, f64)| Metric { name: (*name).into(), value: *value };
        SplitScores {
            task: task.into(),
            split: "dev".into(),
            count: 10,
            left_out: 0,
            metrics: metrics.iter().map(metric).collect(),
            loss: None,
            collapsed: None,
        }
    }

    #[test]
    fn what_a_run_measured_has_the_names_of_the_hub() {
        let all = [
            scores("stsb", &[("pearson", 0.9), ("spearman", f64::NAN)]),
            scores("mine", &[("matthews", 0.5), ("accuracy", 0.75)]),
        ];
        let kinds = [("stsb", Kind::Regression), ("mine", Kind::Classification)];
        let base =
            BaseModel(vec![("base_model", json!("xlnet/xlnet-base-cased")), ("license", json!("mit"))]);
        let found = front_matter("xlnet", "xlnet fine-tuned", &kinds, &all, &Err("two".into()), &base);
        assert_eq!(
            found,
            "---\nlibrary_name: segue\ntags: [\"xlnet\",\"segue\"]\n\
             metrics: [\"pearsonr\",\"spearmanr\",\"matthews_correlation\",\"accuracy\"]\n\
             base_model: \"xlnet/xlnet-base-cased\"\nlicense: \"mit\"\ndatasets: [\"nyu-mll/glue\"]\n\
             model-index: [{\"name\":\"xlnet fine-tuned\",\"results\":[\
             {\"dataset\":{\"name\":\"stsb\",\"split\":\"dev\",\"type\":\"nyu-mll/glue\"},\
             \"metrics\":[{\"name\":\"pearson\",\"type\":\"pearsonr\",\"value\":0.9}],\
             \"task\":{\"type\":\"text-classification\"}},\
             {\"dataset\":{\"name\":\"mine\",\"split\":\"dev\",\"type\":\"mine\"},\
             \"metrics\":[{\"name\":\"matthews\",\"type\":\"matthews_correlation\",\"value\":0.5},\
             {\"name\":\"accuracy\",\"type\":\"accuracy\",\"value\":0.75}],\
             \"task\":{\"type\":\"text-classification\"}}]}]\n---\n"
        );
        let nothing = front_matter("xlnet", "x", &[("a", Kind::Span)], &[], &Err("".into()), &base);
        assert!(!nothing.contains("model-index") && !nothing.contains("datasets"), "{nothing}");
    }

    #[test]
    fn a_base_is_known_by_its_cache_and_its_card_alone() {
        let dir = tempfile::tempdir().unwrap();
        let cached = dir.path().join("hub/models--xlnet--xlnet-base-cased/snapshots/0123abcd");
        std::fs::create_dir_all(&cached).unwrap();
        let card = "---\nlanguage:\n- en\n- \"de\"\nlicense: other\nlicense_name: 'own-1.0'\nlicense_link: https://a.org/b\n\
                    tags: [a]\nbase_model: a/b\n---\n# text\nlicense: mit\n";
        std::fs::write(cached.join(CARD), card).unwrap();
        let terms = [
            ("license", json!("other")),
            ("license_name", json!("own-1.0")),
            ("license_link", json!("https://a.org/b")),
            ("language", json!(["en", "de"])),
        ];
        let of = |name: &str| [&[("base_model", json!(name))], &terms[..]].concat();
        assert_eq!(BaseModel::in_folder(&cached).0, of("xlnet/xlnet-base-cased"));
        assert_eq!(BaseModel::of_card_in(&cached).0, of("a/b"));
        // No cache, no card, and cards that say it in another way or not at all.
        assert_eq!(BaseModel::in_folder(dir.path()), BaseModel::default());
        for card in [
            "license: mit\n",
            "---\nlicense: |\n  mine\n---\n",
            "---\nlicense: [a b]\n---\n",
            "---\nlicense:\n---\n",
        ] {
            assert_eq!(said(card, &TERMS), [], "{card}");
        }
        assert_eq!(said("---\nlanguage: [en, fr]\n---", &TERMS), [("language", json!(["en", "fr"]))]);
    }

    #[test]
    fn characters_that_yaml_refuses_are_escaped() {
        assert_eq!(yaml(&json!("a\u{7f}\u{85}\n\u{fffe}ü")), r#""a\u007f\u0085\n\ufffeü""#);
        // A word that YAML reads as something else than text.
        assert_eq!(yaml(&json!("no")), "\"no\"");
    }
}

//! Every recipe, sweep and study of the project.

use std::path::{Path, PathBuf};

use segue_configs::AverageTrigger::{NonMonotonic, SinceBest};
use segue_configs::study::Study;
use segue_configs::sweep::{Cell, Sweep};
use segue_configs::{Config, OptimKind};
use segue_dataloader::sections::{SegmentConfig, TextEvalConfig};
use segue_families::MODELS;
use segue_lstm::{CellKind, LstmConfig};
use segue_transfo_xl::TransfoXlConfig;
use segue_translation::TranslationConfig;
use serde_json::Value;

/// Leaves of a nested object by dotted name, in order.
fn flatten(value: &Value) -> Vec<(String, Value)> {
    let Value::Object(sections) = value else { return Vec::new() };
    let keys = |(section, fields): (&String, &Value)| {
        let fields = fields.as_object().unwrap().clone();
        fields.into_iter().map(|(key, value)| (format!("{section}.{key}"), value)).collect::<Vec<_>>()
    };
    sections.iter().flat_map(keys).collect()
}

fn each_toml(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs").join(folder);
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|e| e == "toml")).collect()
}

#[test]
fn every_recipe_sweep_and_study_loads() {
    let (recipes, sweeps) = (each_toml("recipes"), each_toml("sweeps"));
    assert!(recipes.len() >= 20 && sweeps.len() >= 4);
    for path in recipes {
        let loaded = MODELS.load(Some(&path), &[]).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let mut model = loaded.config.model;
        if model.vocab_size() > 0 {
            model.fit_vocabulary(1, None).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        }
    }
    for path in sweeps {
        Sweep::load(&MODELS, &path, &[]).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }
    let studies = each_toml("studies");
    assert!(!studies.is_empty());
    for path in studies {
        Study::load(&MODELS, &path, &[]).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }
}

/// A recipe's mogrifier is taken away by its rounds alone, as the comments of `reverse-copy.toml` have it, and what a study finds best is a recipe
/// that loads.
#[test]
fn a_feature_of_a_recipe_is_taken_away_by_one_key() {
    for name in
        ["reverse-copy.toml", "mogrifier-penn-treebank.toml", "rewired-penn-treebank.toml", "lstm-small.toml"]
    {
        let path = each_toml("recipes").into_iter().find(|p| p.ends_with(name)).unwrap();
        let keys = ["model.mogrifier_rounds=0"].map(str::to_string);
        MODELS.load(Some(&path), &keys).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
    let path = each_toml("studies").into_iter().find(|p| p.ends_with("lstm-small.toml")).unwrap();
    let study = Study::load(&MODELS, &path, &[]).unwrap();
    let rounds = study.space.parameters().iter().position(|p| p.key == "model.mogrifier_rounds").unwrap();
    let mut point = vec![0.5; study.space.parameters().len()];
    for (place, ranked) in [(0.0, false), (1.0, true)] {
        point[rounds] = place;
        let text = study.recipe_at(&point).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let best = dir.path().join("best.toml");
        std::fs::write(&best, &text).unwrap();
        MODELS.load(Some(&best), &[]).unwrap_or_else(|e| panic!("{e} in {text}"));
        assert_eq!(text.contains("mogrifier_rank"), ranked, "{text}");
    }
}

/// What both files of NVIDIA's example leave to the defaults of its `train.py` and `lamb.py`.
const NVIDIA_DEFAULTS: [(&str, &str); 22] = [
    ("optim.beta1", "0.9"),
    ("optim.beta2", "0.999"),
    ("optim.eps", "1e-6"),
    ("optim.bias_correction", "false"),
    ("optim.no_trust", "[]"),
    ("optim.trust_limit", "10.0"),
    ("optim.weight_decay", "0.0"),
    ("optim.clip", "0.25"),
    ("schedule.kind", "\"cosine\""),
    ("schedule.decay_from", "\"warmup\""),
    ("schedule.scale", "\"none\""),
    ("train.seed", "1111"),
    ("train.ext_len", "0"),
    ("train.varlen", "false"),
    ("eval.lanes", "16"),
    ("eval.ext_len", "0"),
    ("model.clamp_len", "-1"),
    ("model.same_length", "false"),
    ("model.pre_lnorm", "false"),
    ("model.proj_init_std", "0.01"),
    ("model.cutoffs", "[19997, 39997, 199997]"),
    ("model.untie_r", "false"),
];

/// Every setting of `wt103_base.yaml` and `wt103_large.yaml`, in their order, and those they leave open. Where the devices
/// are, how often their program prints, and the names of files are not among them.
#[test]
fn recipes_of_nvidia_have_every_setting_of_its_files() {
    let base = [
        ("model.n_layer", "16"),
        ("model.d_model", "512"),
        ("model.n_head", "8"),
        ("model.d_head", "64"),
        ("model.d_inner", "2048"),
        ("model.dropout", "0.1"),
        ("model.dropatt", "0.0"),
        ("optim.kind", "\"lamb\""),
        ("optim.lr", "0.01"),
        ("schedule.floor", "0.1"), // eta_min 0.001
        ("train.roll", "true"),
        ("schedule.warmup", "1000"),
        ("train.steps", "40000"),
        ("train.segment", "192"),
        ("model.mem_len", "192"),
        ("eval.segment", "192"),
        ("train.lanes", "256"),
        ("log.every", "10"),
        ("eval.every", "5000"),
        ("model.init_std", "0.02"),
        ("model.div_val", "1"),
        ("eval.mem_len", "-1"), // 192 + 192 − 192
    ];
    let large = [
        ("model.n_layer", "18"),
        ("model.d_model", "1024"),
        ("model.n_head", "16"),
        ("model.d_head", "64"),
        ("model.d_inner", "4096"),
        ("model.dropout", "0.2"),
        ("model.dropatt", "0.2"),
        ("optim.kind", "\"lamb\""),
        ("optim.lr", "0.01"),
        ("schedule.floor", "0.01"), // eta_min 0.0001
        ("train.roll", "true"),
        ("schedule.warmup", "16000"),
        ("train.steps", "100000"),
        ("train.segment", "384"),
        ("model.mem_len", "384"),
        ("model.init_std", "0.005"),
        ("eval.segment", "128"),
        ("train.lanes", "128"),
        ("log.every", "100"),
        ("eval.every", "5000"),
        ("model.div_val", "4"),
        ("eval.mem_len", "640"), // 384 + 384 − 128
    ];
    let test_settings = [
        "--segment 64 --mem-len 640 --clamp-len 400 --same-length",
        "--segment 128 --mem-len 1600 --clamp-len 1000 --same-length",
    ];
    for ((name, settings), test) in
        [("nvidia-wt103-base.toml", base), ("nvidia-wt103-large.toml", large)].into_iter().zip(test_settings)
    {
        let path = each_toml("recipes").into_iter().find(|path| path.ends_with(name)).unwrap();
        let found = flatten(&MODELS.load(Some(&path), &[]).unwrap().config.to_json());
        for (key, expected) in settings.into_iter().chain(NVIDIA_DEFAULTS) {
            let (_, value) = found.iter().find(|(name, _)| name == key).unwrap_or_else(|| panic!("{key}"));
            assert_eq!(*value, serde_json::from_str::<Value>(expected).unwrap(), "{name}: {key}");
        }
        assert!(std::fs::read_to_string(&path).unwrap().contains(test), "{name}: {test}");
    }
}

/// The settings of its runs on 128 cards: batch 512, rate 0.02 down to 0.0001.
#[test]
fn the_large_recipe_of_nvidia_scales_as_it_was_scaled() {
    let path =
        each_toml("recipes").into_iter().find(|path| path.ends_with("nvidia-wt103-large.toml")).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("#   train.lanes=512")).unwrap();
    let keys: Vec<String> = format!("train.lanes=512{line}").split_whitespace().map(str::to_string).collect();
    let config = MODELS.load(Some(&path), &keys).unwrap().config;
    assert!((config.peak_lr() - 0.02).abs() < 1e-12);
    assert!((config.peak_lr() * config.schedule.floor - 0.0001).abs() < 1e-12);
    assert_eq!(
        (config.train.steps, config.eval.every, config.own.get::<TextEvalConfig>().lanes),
        (25_000, 1000, 128)
    );
}

/// Row X30; Yang 2019, table 2.19: each row differs from row 4 in the component that its name says, in nothing
/// else.
/// Row X30.
#[test]
fn rows_of_table_2_19_change_what_they_say_and_nothing_else() {
    let changes: [&[&str]; 8] = [
        &[
            "model.mem_len",
            "objective.kind",
            "objective.next_sentence",
            "pairs.bidirectional",
            "pairs.num_predict",
            "pairs.spans",
        ],
        &["objective.kind"],
        &["pairs.mask_alpha", "pairs.num_predict"],
        &[],
        &["model.mem_len"],
        &["pairs.spans"],
        &["pairs.bidirectional"],
        &["objective.next_sentence"],
    ];
    // 15 % of the sequence, a seventh of it, a sixth.
    for (name, [masked, seventh, sixth]) in
        [("table-2.19.toml", [77, 73, 85]), ("ablation-xlnet-small.toml", [19, 18, 21])]
    {
        let targets = [masked, sixth, seventh, sixth, sixth, sixth, sixth, sixth];
        let path = each_toml("sweeps").into_iter().find(|p| p.ends_with(name)).unwrap();
        let sweep = Sweep::load(&MODELS, &path, &[]).unwrap();
        let flat = |cell: &Cell| flatten(&sweep.config_of(cell, 1).unwrap().to_json());
        let full = flat(&sweep.cells[3]);
        assert_eq!(sweep.cells.len(), changes.len());
        for ((cell, expected), targets) in sweep.cells.iter().zip(changes).zip(targets) {
            let own = flat(cell);
            let differing: Vec<&str> =
                own.iter().filter(|pair| !full.contains(pair)).map(|(key, _)| key.as_str()).collect();
            assert_eq!(differing, expected, "{name}: {}", cell.label);
            assert_eq!(
                segue_dataloader::sections::targets_per_lane(&sweep.config_of(cell, 1).unwrap().own),
                targets,
                "{name}: {}",
                cell.label
            );
        }
    }
    let table = each_toml("sweeps").into_iter().find(|p| p.ends_with("table-2.19.toml")).unwrap();
    let sweep = Sweep::load(&MODELS, &table, &[]).unwrap();
    assert_eq!(sweep.seeds.len(), 5);
    let race: Vec<f64> = sweep.cells.iter().map(|cell| cell.published.scores["RACE"]).collect();
    assert_eq!(race, [64.3, 65.03, 66.05, 66.66, 65.55, 65.95, 66.34, 66.76]);
}

/// Row T24; Yang 2019, table 2.6: encoding, recurrence and loss of its ten rows.
/// Row T24.
#[test]
fn table_2_6_has_its_rows() {
    let path = each_toml("sweeps").into_iter().find(|p| p.ends_with("table-2.6.toml")).unwrap();
    let sweep = Sweep::load(&MODELS, &path, &[]).unwrap();
    let best: Vec<f64> = sweep.cells.iter().map(|c| c.published.best.unwrap()).collect();
    assert_eq!(best, [26.77, 27.94, 28.33, 29.02, 30.10, 29.75, 30.50, 30.97, 31.16, 23.09]);
    let recurrent = |cell: &Cell| {
        let model = sweep.config_of(cell, 1).unwrap().model;
        model.get::<TransfoXlConfig>().unwrap().mem_len > 0
    };
    let recurrence: Vec<bool> = sweep.cells.iter().map(recurrent).collect();
    assert_eq!(recurrence, [true, true, true, false, false, false, false, false, false, true]);
}

/// Melis 2023, §2.2.2, and Merity et al. 2018: the rule, the patience in evaluations, and the latest turn, which is after 80 % of the steps.
/// Rows M13, S13.
#[test]
fn averages_begin_by_the_rule_of_the_paper() {
    let of = |config: &segue_configs::Config| {
        let average = &config.average;
        let latest = average.start / config.eval.every;
        if latest > 0 {
            assert_eq!(10 * average.start, 8 * config.train.steps);
        }
        (average.trigger, average.patience, latest)
    };
    let recipe = |name: &str| {
        let path = each_toml("recipes").into_iter().find(|p| p.ends_with(name)).unwrap();
        of(&MODELS.load(Some(&path), &[]).unwrap().config)
    };
    assert_eq!(recipe("mogrifier-penn-treebank.toml"), (SinceBest, 50, 800));
    assert_eq!(recipe("reverse-copy.toml"), (SinceBest, 10, 80));
    for name in [
        "awd-penn-treebank.toml",
        "awd-wikitext2.toml",
        "awd-mos-penn-treebank.toml",
        "awd-qrnn-penn-treebank.toml",
    ] {
        assert_eq!(recipe(name), (NonMonotonic, 5, 0), "{name}");
    }
    let (characters, bytes) = ((SinceBest, 25, 400), (SinceBest, 10, 80));
    for (name, expected) in [
        ("melis-table-2.1.toml", vec![(SinceBest, 50, 800); 4]),
        ("melis-table-2.2.toml", [[characters; 6].to_vec(), [bytes; 4].to_vec()].concat()),
        ("melis-table-2.3.toml", vec![(SinceBest, 50, 480); 10]),
    ] {
        let path = each_toml("sweeps").into_iter().find(|p| p.ends_with(name)).unwrap();
        let sweep = Sweep::load(&MODELS, &path, &[]).unwrap();
        let found: Vec<_> = sweep.cells.iter().map(|cell| of(&sweep.config_of(cell, 1).unwrap())).collect();
        assert_eq!(found, expected, "{name}");
    }
}

/// Row M19; Melis 2023, tables 2.1 to 2.3, 4.1 and 4.2: rows, widths and counts of parameters. Counts are those of specification 7.4, which has
/// them from the size rule; 0 where settings or vocabularies that they follow from are not published.
/// Row M19.
#[test]
fn tables_of_recurrent_models_have_their_rows_and_exact_sizes() {
    let expected: [(&str, &[usize]); 5] = [
        ("melis-table-2.1.toml", &[23_998_976, 23_987_393, 34_997_757, 34_991_825]),
        ("melis-table-2.2.toml", &[0, 0, 0, 0, 0, 0, 95_958_506, 95_943_270, 47_994_278, 47_982_446]),
        ("melis-table-2.3.toml", &[23_987_393, 0, 23_987_393, 23_998_976, 0, 0, 0, 0, 0, 0]),
        ("melis-table-4.1.toml", &[0, 23_989_349, 0, 0]),
        ("melis-table-4.2.toml", &[0, 0, 0, 0, 0, 47_980_054, 0, 0, 0, 0]),
    ];
    for (name, counts) in expected {
        let path = each_toml("sweeps").into_iter().find(|p| p.ends_with(name)).unwrap();
        let sweep = Sweep::load(&MODELS, &path, &[]).unwrap();
        assert_eq!(sweep.cells.len(), counts.len(), "{name}");
        for (cell, count) in sweep.cells.iter().zip(counts) {
            let mut config = sweep.config_of(cell, 1).unwrap();
            assert_eq!(config.published.parameters, *count as u64, "{name}: {}", cell.label);
            // Of characters, the corpus' own.
            let known = config.model.vocab_size();
            let words = if known == 0 { 50 } else { known };
            config.model.fit_vocabulary(words, None).unwrap();
            let found = segue_family::cost(&config, 1).unwrap().parameters as usize;
            let budget = config.model.get::<LstmConfig>().unwrap().parameters;
            assert!(*count == 0 || found == *count, "{name}, {}: {found}", cell.label);
            // The widest that fits: a width more is another 30,000 to 120,000.
            assert!(found <= budget && found + 130_000 > budget, "{name}, {}: {found}", cell.label);
        }
    }
}

/// Melis 2023, §2.2.2: gradients are cut off at a norm of 10 where losses are summed over a segment. That of a mean over targets is some 70 times
/// smaller, and would never be.
#[test]
fn m9_m10_recurrent_recipes_and_sweeps_clip_the_gradient_of_a_sum() {
    let clips_a_sum = |config: &Config, what: &str| {
        assert_eq!(config.to_json()["objective"]["loss_over"], "lanes", "{what}");
        // Segments that are compared with each other are cut off alike, a token.
        let of_70 = if what.contains("recurrent-windows") {
            config.own.get::<SegmentConfig>().segment as f64 / 70.0
        } else {
            1.0
        };
        assert_eq!(config.optim.clip, 10.0 * of_70, "{what}");
    };
    for name in
        ["lstm-small.toml", "mogrifier-penn-treebank.toml", "rewired-penn-treebank.toml", "reverse-copy.toml"]
    {
        let path = each_toml("recipes").into_iter().find(|p| p.ends_with(name)).unwrap();
        clips_a_sum(&MODELS.load(Some(&path), &[]).unwrap().config, name);
    }
    for path in each_toml("sweeps") {
        let sweep = Sweep::load(&MODELS, &path, &[]).unwrap();
        for cell in &sweep.cells {
            let config = sweep.config_of(cell, 1).unwrap();
            let by_melis = config.model.get::<LstmConfig>().is_some() && config.optim.kind != OptimKind::Sgd;
            // The quasi-recurrent models are Merity's, with a clip of their own.
            if by_melis && config.model.get::<LstmConfig>().is_some_and(|model| model.cell != CellKind::Qrnn)
            {
                clips_a_sum(&config, &format!("{}, {}", path.display(), cell.label));
            }
        }
    }
}

/// Row M19, in small: every row of the miniature and every length of segments has the same budget, and a step of each reads the same text.
/// Row M19.
#[test]
fn small_sweeps_have_rows_of_equal_size_and_text() {
    for (name, rows, sizes) in [
        ("recurrent-ablation.toml", 8, 490_000..=500_000),
        ("recurrent-rounds.toml", 7, 490_000..=500_000),
        ("recurrent-windows.toml", 10, 490_000..=500_000),
        ("recurrent-minutes.toml", 5, 490_000..=500_000),
        ("recurrent-protocols.toml", 6, 97_000..=100_000),
    ] {
        let path = each_toml("sweeps").into_iter().find(|p| p.ends_with(name)).unwrap();
        let sweep = Sweep::load(&MODELS, &path, &[]).unwrap();
        assert_eq!(sweep.cells.len(), rows, "{name}");
        for cell in &sweep.cells {
            let mut config = sweep.config_of(cell, 1).unwrap();
            // As many as enwik8 has different bytes.
            config.model.fit_vocabulary(205, None).unwrap();
            let found = segue_family::cost(&config, 1).unwrap().parameters;
            assert!(sizes.contains(&found), "{name}, {}: {found}", cell.label);
            assert_eq!(
                config.train.lanes * config.own.get::<SegmentConfig>().segment,
                1120,
                "{name}, {}",
                cell.label
            );
        }
    }
}

/// Vaswani et al. 2017, eq. 3: the peak of the rate is (d w)^-0.5.
#[test]
fn recipes_of_the_transformers_paper_have_its_rates() {
    for name in ["translation-wmt14-base.toml", "translation-wmt14-big.toml", "translation-iwslt14.toml"] {
        let path = each_toml("recipes").into_iter().find(|p| p.ends_with(name)).unwrap();
        let Config { model, optim, schedule, .. } = MODELS.load(Some(&path), &[]).unwrap().config;
        let width = model.get::<TranslationConfig>().unwrap().d_model as f64;
        let peak = (width * schedule.warmup as f64).powf(-0.5);
        assert!((optim.lr / peak - 1.0).abs() < 1e-6, "{name}: {} is not {peak}", optim.lr);
    }
}

/// Keys with a fraction that nothing computes with in single precision.
const IN_DOUBLE: [&str; 6] = [
    "checkpoint.minutes",
    "recovery.diverged_by",
    "recovery.diverged_times",
    "task.epochs",
    "train.segment_spread",
    "train.time_limit",
];

#[test]
fn numbers_that_single_precision_has_no_room_for_are_refused_by_their_keys() {
    let mut seen = 0;
    for known in MODELS.types() {
        let base = format!("model.model_type={}", known.name);
        let load = |assignment: String| MODELS.load(None, &[base.clone(), assignment]);
        let defaults = load("train.steps=1000".into()).unwrap().config.to_json();
        let computed_with =
            |(key, value): &(String, Value)| value.is_f64() && !IN_DOUBLE.contains(&key.as_str());
        for (key, _) in flatten(&defaults).into_iter().filter(computed_with) {
            for value in ["1e39", "-1e39", "1e-46"] {
                let error = load(format!("{key}={value}")).unwrap_err();
                // A network of several may be named that takes it over.
                let (section, name) = key.split_once('.').unwrap();
                let told = error.to_string();
                let named =
                    told.starts_with(&format!("`{section}.")) && told.contains(&format!(".{name}` = "));
                assert!(error.exit_code() == 78 && named, "{key}: {error}");
            }
            seen += 1;
        }
        for key in IN_DOUBLE {
            let error = load(format!("{key}=1e39")).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(!error.contains("single precision"), "{error}");
        }
    }
    assert!(seen > 180, "{seen}");
}

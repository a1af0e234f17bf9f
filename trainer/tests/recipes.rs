//! Every recipe and every sweep of the project.

use std::path::{Path, PathBuf};

use segue_configs::sweep::{Cell, Sweep};
use segue_trainer::families::MODELS;
use segue_trainer::families::transfo_xl::TransfoXlConfig;
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
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs").join(folder);
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|e| e == "toml")).collect()
}

#[test]
fn every_recipe_and_every_sweep_loads() {
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
}

/// Row X30; Yang 2019, table 2.19: each row differs from row 4 in the component that its name says, in nothing
/// else.
#[test]
fn x30_rows_of_table_2_19_change_what_they_say_and_nothing_else() {
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
                sweep.config_of(cell, 1).unwrap().targets_per_lane(),
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
#[test]
fn t24_table_2_6_has_its_rows() {
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

//! `segue recipes`: the recipes that come with the program, what they train, and what a run of each takes.

use std::path::Path;

use clap::Args;
use serde_json::{Value, json};

use crate::failure::{Failure, NO_INPUT};
use crate::output::Output;
use crate::recipes;

/// Arguments of `segue recipes`.
#[derive(Args)]
#[command(after_help = "\
    Operations are those of the whole run, at most; a recipe that leaves its vocabulary or the sizes of its graph to the data has none here.\n\n\
    Examples:\n  \
    segue recipes\n  \
    segue pretrain --config demo --print-config")]
pub struct RecipesArgs {}

/// What is to be said of a recipe.
struct Recipe {
    name: String,
    /// Title of the model, or the task.
    trains: String,
    steps: u64,
    /// Of the model and the whole run, where the recipe has all sizes.
    parameters: Option<u64>,
    operations: Option<f64>,
    /// The first sentence of its comment.
    about: String,
}

/// Lists them.
pub fn run(_: &RecipesArgs, out: &Output) -> Result<Value, Failure> {
    let missing = || {
        let message = "no recipes lie beside this program\nhint: they come with the archive, the wheel and a clone, in \
                       share/segue/recipes or configs/recipes";
        Failure::new(NO_INPUT, message)
    };
    let folder = recipes::folder().ok_or_else(missing)?;
    let files = recipes::files(&folder).map_err(|_| missing())?;
    let all: Vec<Recipe> = files.iter().map(|path| read(path)).collect::<Result<_, _>>()?;
    let width = all.iter().map(|recipe| recipe.name.len()).max().unwrap_or(0);
    out.line(&format!(
        "{:width$}  {:14} {:>9} {:>8} {:>10}  about",
        "recipe", "trains", "steps", "params", "operations"
    ));
    for Recipe { name, trains, steps, parameters, operations, about } in &all {
        let parameters = parameters.map_or("-".into(), |count| shortened(count as f64));
        let operations = operations.map_or("-".into(), |count| format!("{count:.1e}"));
        out.line(&format!("{name:width$}  {trains:14} {steps:>9} {parameters:>8} {operations:>10}  {about}"));
    }
    let row = |recipe: &Recipe| {
        json!({
            "name": recipe.name, "trains": recipe.trains, "steps": recipe.steps, "parameters": recipe.parameters,
            "operations": recipe.operations, "about": recipe.about,
        })
    };
    Ok(json!({ "folder": folder, "recipes": all.iter().map(row).collect::<Vec<_>>() }))
}

fn read(path: &Path) -> Result<Recipe, Failure> {
    let mut config = segue_families::MODELS.load(Some(path), &[])?.config;
    let text = segue_publish::read_regular_text(path).unwrap_or_default();
    // Which task, the command line says for the most part.
    let tunes = text.lines().any(|line| line.trim() == "[task]");
    // Where the data decide sizes there is nothing to count.
    let has_sizes = !tunes && (segue_family::of(&config.model).fit)(&mut config).is_ok();
    let cost = has_sizes.then(|| segue_family::cost(&config, 1).ok()).flatten();
    Ok(Recipe {
        name: path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        trains: if tunes { "a task".into() } else { config.model.model_type().into() },
        steps: config.train.steps,
        parameters: cost.as_ref().map(|cost| cost.parameters),
        operations: cost.map(|cost| cost.flops.most),
        about: first_sentence(&text),
    })
}

/// A number with three digits and its thousands as a letter.
fn shortened(count: f64) -> String {
    match count {
        count if count >= 1e9 => format!("{:.2} G", count / 1e9),
        count if count >= 1e6 => format!("{:.1} M", count / 1e6),
        count if count >= 1e3 => format!("{:.1} k", count / 1e3),
        count => format!("{count:.0}"),
    }
}

/// The first sentence of the comment that a recipe begins with, after the line for editors.
fn first_sentence(text: &str) -> String {
    let lines = text.lines().skip_while(|line| line.starts_with("#:"));
    let comment = lines.map_while(|line| line.strip_prefix('#')).map(str::trim);
    let paragraph: Vec<&str> = comment.take_while(|line| !line.is_empty()).collect();
    let paragraph = paragraph.join(" ");
    let ends = |at: usize| !paragraph[..at].ends_with("et al");
    let full_stop = paragraph.match_indices(". ").map(|(at, _)| at).find(|at| ends(*at));
    // What follows a colon is another matter.
    let end = full_stop.into_iter().chain(paragraph.find(": ")).min();
    paragraph[..end.unwrap_or(paragraph.len())].trim_end_matches('.').to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recipe_is_told_by_the_first_sentence_of_its_comment() {
        for (text, sentence) in [
            ("# A model of 2.5 M (Yang 2019). It\n# trains.\n", "A model of 2.5 M (Yang 2019)"),
            ("#:schema recipe.schema.json\n# A model.\n", "A model"),
            ("# As published (Yang et al. 2019).\n", "As published (Yang et al. 2019)"),
            ("# A model\n# that trains.\n#\n# More.\n[train]\n", "A model that trains"),
            ("[train]\n# later\n", ""),
        ] {
            assert_eq!(first_sentence(text), sentence);
        }
        assert_eq!([950.0, 41_234_000.0, 2.57e8].map(shortened), ["950", "41.2 M", "257.0 M"]);
    }

    #[test]
    fn every_shipped_recipe_is_listed_with_what_it_trains() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/recipes");
        let files = recipes::files(&folder).unwrap();
        assert!(files.len() > 40, "{}", files.len());
        for file in files {
            let recipe = read(&file).unwrap();
            assert!(!recipe.about.is_empty() && !recipe.trains.is_empty(), "{}", file.display());
        }
        let xlnet = read(&folder.join("xlnet-large-v1.toml")).unwrap();
        assert!(xlnet.parameters.unwrap() > 300_000_000 && xlnet.operations.unwrap() > 1e18);
        // Widths follow from the number of parameters.
        let mogrifier = read(&folder.join("mogrifier-penn-treebank.toml")).unwrap();
        assert_eq!(mogrifier.parameters, Some(23_987_393));
        assert!(read(&folder.join("planetoid-cora.toml")).unwrap().parameters.is_none());
    }
}

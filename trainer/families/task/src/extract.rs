//! One task of a model that was fine-tuned on several, as a folder of its own.

use std::path::Path;

use segue_configs::Models;
use segue_engine::checkpoint::{Contents, METRICS, WEIGHTS, publish_with_manifest};
use segue_kernels::TrainError;
use segue_language::{as_stored, read_finite};
use segue_publish::FreshFolder;
use segue_publish::read_regular;
use segue_tasks::Kind;
use segue_tokenizer::longest_sequence;
use serde::Deserialize;
use serde_json::{Value, json};

use super::card::extracted_card;
use super::folder::TaskFolder;
use super::front_matter::{BaseModel, CARD};
use super::head_spec::HeadSpec;
use super::hub::{hugging_face_config, pipeline};
use super::model::TaskModel;
use super::scoring::SplitScores;

/// Writes the new folder `target`: the encoder of `source`, and the head, labels, scores and card of its task `task`. Hugging
/// Face's package opens it as the class of that head, where it has one.
pub fn extract_task(
    models: &'static Models,
    source: &Path,
    task: &str,
    target: &Path,
) -> Result<HeadSpec, TrainError> {
    let TaskFolder { folder, heads } = TaskFolder::open(models, source)?;
    let Some(head) = heads.iter().find(|head| head.task == task) else {
        let known: Vec<&str> = heads.iter().map(|head| head.task.as_str()).collect();
        let what = format!("it has heads for {}, not for {task}", known.join(", "));
        return Err(TrainError::OtherModel { path: folder.path, what });
    };
    let specs = TaskModel::specs(&folder.config, &heads);
    let weights = read_finite(&folder.path.join(WEIGHTS), &folder.config, &specs)?;
    let (all, own) = ("tasks.", format!("tasks.{task}."));
    let kept = specs.into_iter().zip(weights).filter_map(|(spec, tensor)| {
        match (spec.name.strip_prefix(&own), spec.name.starts_with(all)) {
            (Some(plain), _) => Some((plain.to_string(), tensor)),
            (None, of_another) => (!of_another).then_some((spec.name, tensor)),
        }
    });
    let one = std::slice::from_ref(head);
    let tokenizer = folder.tokenizer()?;
    let pipeline = pipeline(&folder.config, one, &tokenizer);
    let longest = longest_sequence(&folder.path);
    let metrics = metrics_of(&folder.path, task);
    let base = BaseModel::of_card_in(&folder.path);
    let card = extracted_card(&folder.config, head, &heads, &metrics.scores, &pipeline, longest, &base);
    let laid_out = tokenizer.for_sequences(longest).filter(|_| head.kind != Kind::Ranking);
    let mut contents = Contents {
        tables: vec![(WEIGHTS.into(), as_stored(&folder.config, kept.collect()))],
        documents: vec![("config.json".into(), hugging_face_config(&folder.config, one))],
        files: vec![(CARD.into(), card.into_bytes())],
        tokenizer: Some(laid_out.unwrap_or(tokenizer).into()),
        ..Contents::default()
    };
    if !metrics.scores.is_empty() {
        let document = json!({ "step": metrics.step, "scores": metrics.scores });
        contents.documents.push((METRICS.into(), document));
    }
    publish_with_manifest(FreshFolder::create(target)?, |fresh| contents.write(fresh))?;
    Ok(head.clone())
}

/// What a run notes of its best model.
#[derive(Default, Deserialize)]
struct Metrics {
    step: Value,
    scores: Vec<SplitScores>,
}

/// The scores of one task that lie beside a model; none where there are none.
fn metrics_of(folder: &Path, task: &str) -> Metrics {
    let text = read_regular(folder.join(METRICS)).unwrap_or_default();
    let mut metrics: Metrics = serde_json::from_slice(&text).unwrap_or_default();
    metrics.scores.retain(|scores| scores.task == task);
    metrics
}

//! The converted model at work.

use std::path::Path;

use serde::Serialize;
use tch::{Device, Kind, Tensor};

use crate::TrainError;
use crate::checkpoint::{ModelFolder, load_language_model, load_xlnet};
use crate::model::{Sequence, Visibility};
use crate::objective::Objective;

/// Tokens of the text that are looked at, as one segment.
const MAX_TOKENS: usize = 1024;

/// Mean loss on a text.
#[derive(Debug, Clone, Serialize)]
pub struct CheckedText {
    /// Tokens predicted.
    pub targets: usize,
    /// Nats per token of the converted model.
    pub loss: f64,
    /// The same of the source, where this program can run it.
    pub before: Option<f64>,
}

/// Runs the converted model, and the source where it is a folder this program reads, on the same text.
pub fn check_text(folder: &Path, source: &Path, text: &str) -> Result<CheckedText, TrainError> {
    let converted = ModelFolder::open(folder)?;
    let mut ids = Vec::new();
    converted.tokenizer()?.encode(text, &mut ids);
    ids.truncate(MAX_TOKENS);
    if ids.len() < 2 {
        return Err(TrainError::Layout("the text of --check-text has fewer than two tokens".into()));
    }
    let ids: Vec<i64> = ids.into_iter().map(i64::from).collect();
    let loss = mean_loss(&converted, &ids)?;
    // Other formats have nothing here that could run them.
    let before = ModelFolder::open(source).ok().filter(|f| f.path.join("model.safetensors").is_file());
    let before = before.map(|opened| mean_loss(&opened, &ids)).transpose()?;
    Ok(CheckedText { targets: ids.len() - 1, loss, before })
}

fn mean_loss(folder: &ModelFolder, ids: &[i64]) -> Result<f64, TrainError> {
    let length = ids.len() as i64 - 1;
    let ids = Tensor::from_slice(ids).unsqueeze(0);
    let next = ids.narrow(1, 1, length);
    if folder.config.xlnet().is_some() {
        return left_to_right_loss(folder, &ids, &next);
    }
    let model = load_language_model(folder, Kind::Float)?;
    Ok(tch::no_grad(|| {
        let out = model.model.forward(&ids.narrow(1, 0, length), &model.memory_start(1), None);
        model.model.nll(&out.hidden, &next).mean(Kind::Double).double_value(&[])
    }))
}

/// Of an XLNet: every token but the first from those before it, which is one of the orders it has learnt.
fn left_to_right_loss(folder: &ModelFolder, ids: &Tensor, next: &Tensor) -> Result<f64, TrainError> {
    let (model, _) = load_xlnet(folder, Kind::Float)?;
    let positions = Tensor::arange(ids.size()[1], (Kind::Int64, Device::Cpu)).unsqueeze(0);
    let sequence = Sequence {
        visibility: Visibility::Ranks { ranks: &positions, halves_at: 0 },
        targets: Some(&positions.narrow(1, 1, next.size()[1])),
        content: false,
        ..Sequence::new(ids)
    };
    Ok(tch::no_grad(|| {
        let states = model.forward(sequence, &model.memory_start(1), None);
        let Some(predictions) = states.predictions else { unreachable!("there are targets") };
        model.nll(&predictions, next).mean(Kind::Double).double_value(&[])
    }))
}

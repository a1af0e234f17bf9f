//! Evaluation of a recurrent model line by line.

use segue_collectives::Communicator;
use segue_configs::Config;
use segue_dataloader::sections::{DataConfig, DataOrder, TextEvalConfig};
use segue_engine::Watch;
use segue_language::{ModelFolder, Objective, Validation};
use serde_json::Value;

use super::subject::Subject;
use super::{EvalArgs, LANES, SEGMENT, lanes, told};
use crate::failure::{Failure, USAGE};
use crate::output::{Output, Unit};

/// The configuration of a run that validates as `args` ask, with the model of one that was trained as `trained` says.
pub fn config(folder: &ModelFolder, trained: &Config, args: &EvalArgs) -> Result<Config, Failure> {
    if folder.next_tokens()?.attends() {
        let message = "--lines is for recurrent models\nhint: evaluate without it";
        return Err(Failure::new(USAGE, message));
    }
    let mut config = trained.clone();
    config.change(|data: &mut DataConfig| data.order = DataOrder::Episodes);
    let lanes = args.lanes.unwrap_or(LANES);
    let (group, segment) = (args.group.min(lanes), args.segment.unwrap_or(SEGMENT));
    config.change(|eval| *eval = TextEvalConfig { lanes, group, segment, ..TextEvalConfig::default() });
    Ok(config)
}

/// Evaluates a split, each line from a fresh state.
pub fn run(
    subject: Subject<Box<dyn Objective>>,
    config: &Config,
    args: &EvalArgs,
    comm: &dyn Communicator,
    out: &Output,
) -> Result<Value, Failure> {
    args.pairs.refuse()?;
    let Subject { folder, mut model, corpus, stream } = subject;
    lanes(args, &stream)?;
    model.keep_marks();
    model.set_inverse_temperature(args.temperature.temperature);
    let text = Validation::of_split(config, &corpus, args.text.split.into())?;
    let bar = out.progress(0, Unit::Steps, "evaluate");
    let mut progress = |done, whole| bar.set_of(done, whole);
    let result = text.evaluate(model.as_mut(), config, comm, &mut Watch::new(&mut progress))?;
    drop(bar);
    told(&folder, &result, out)
}

use clap::Args;
use segue_collectives::Communicator;
use segue_dataloader::sections::TextEvalConfig;
use segue_engine::Watch;
use segue_protocols::gate_moments;
use serde_json::{Value, json};

use super::subject::SubjectArgs;
use super::walk::WalkArgs;
use crate::failure::Failure;
use crate::output::{Output, Unit};

/// Arguments of `segue eval gates`.
#[derive(Args)]
#[command(after_help = "\
    Works under mpirun too; the result has the same bits at any number of ranks.\n\n\
    Example:\n  \
    segue eval gates --model runs/lstm --split test")]
pub struct GatesArgs {
    #[command(flatten)]
    subject: SubjectArgs,
    #[command(flatten)]
    walk: WalkArgs,
}

/// Reads the split and prints mean and variance of the gates of each layer.
pub fn run(args: GatesArgs, comm: &dyn Communicator, out: &Output) -> Result<Value, Failure> {
    let subject = args.subject.open(out)?;
    let (walk, cut) = args.walk.walk(&subject, &args.subject.model, &TextEvalConfig::default())?;
    let bar = out.progress(0, Unit::Steps, "gates");
    let mut progress = |done, whole| bar.set_of(done, whole);
    let (model, stream) = (subject.model.as_ref(), &subject.stream);
    let layers = gate_moments(model, stream, &walk, comm, &mut Watch::new(&mut progress))?;
    drop(bar);
    out.line(&format!("{cut}; weights of {}", subject.folder.path.display()));
    for (number, layer) in layers.iter().enumerate() {
        let text = [("forget", layer.forget), ("input", layer.input), ("output", layer.output)]
            .map(|(name, gate)| format!("{name} {:.4} (variance {:.4})", gate.mean, gate.variance));
        out.line(&format!("layer {}: {}", number + 1, text.join(", ")));
    }
    Ok(json!({ "model": subject.folder.path, "cut": cut, "layers": layers }))
}

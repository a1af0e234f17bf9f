use clap::Args;
use segue_collectives::Communicator;
use segue_dataloader::{Split, TokenStream};
use segue_engine::Watch;
use segue_kernels::TrainError;
use segue_language::Evaluation;
use segue_protocols::{USUAL_TOKENS, Walk, best, search_temperature, token_losses};
use serde_json::{Value, json};

use super::split::AttentionArgs;
use super::subject::{Subject, SubjectArgs};
use super::walk::{WalkArgs, beginning};
use crate::failure::Failure;
use crate::output::{Output, Unit};

/// Arguments of `segue eval temperature`.
#[derive(Args)]
#[command(after_help = "\
    Tries the inverse temperatures 1.06, 1.04, .. 0.80 and evaluates --split at 1 and at the best. Works \
    under mpirun too; the result has the same bits at any number of ranks.\n\n\
    Example:\n  \
    segue eval temperature --model runs/lstm --split test")]
pub struct TemperatureSearchArgs {
    #[command(flatten)]
    subject: SubjectArgs,
    #[command(flatten)]
    walk: WalkArgs,
    #[command(flatten)]
    attention: AttentionArgs,
    /// Tokens of the valid split to search on, from its beginning; 0 for all.
    #[arg(long, default_value_t = USUAL_TOKENS)]
    tokens: u64,
    /// Stop where two points in succession are no better than the best before them, instead of trying the whole grid.
    #[arg(long)]
    stop_early: bool,
    /// What is done anyway.
    #[arg(long, hide = true, conflicts_with = "stop_early")]
    all: bool,
}

/// Searches on the valid split and applies what it found to the split that is named.
pub fn run(args: TemperatureSearchArgs, comm: &dyn Communicator, out: &Output) -> Result<Value, Failure> {
    let mut subject = args.subject.open(out)?;
    let seen = args.attention.of(&subject.folder, &args.subject.model)?;
    subject.model.look(&seen);
    let (walk, cut) = args.walk.walk(&subject, &args.subject.model, &seen)?;
    let valid = subject.tokens(Split::Valid)?;
    let part = beginning(walk, args.tokens);
    let tried = search_temperature(args.stop_early, |temperature| {
        let losses = losses_at(&mut subject, &valid, temperature, &part, comm, out)?;
        let loss = losses.iter().sum::<f64>() / losses.len() as f64;
        out.line(&format!(
            "valid: inverse temperature {temperature:.2}: loss {loss:.4}, perplexity {:.3}",
            loss.exp()
        ));
        Ok::<f64, Failure>(loss)
    })?;
    let Some(found) = best(&tried, |point| point.loss) else {
        let loss = tried.first().map_or(f64::NAN, |point| point.loss);
        return Err(super::not_a_number(loss, &subject.folder.path));
    };
    out.line(&format!("best on valid: inverse temperature {:.2}", found.temperature));
    let stream = subject.tokens(args.subject.text.split.into())?;
    let mut evaluated = |temperature| -> Result<Evaluation, Failure> {
        let losses = losses_at(&mut subject, &stream, temperature, &walk, comm, out)?;
        let evaluation = Evaluation::of_losses(&losses, &stream);
        super::check_loss(evaluation.loss, &subject.folder.path)?;
        out.line(&format!("inverse temperature {temperature:.2}: {} ({cut})", evaluation.describe()));
        Ok(evaluation)
    };
    let (plain, sharpened) = (evaluated(1.0)?, evaluated(found.temperature)?);
    out.line(&format!("weights of {}", subject.folder.path.display()));
    Ok(json!({
        "model": subject.folder.path, "cut": cut, "temperature": found.temperature, "tried": tried, "plain": plain,
        "evaluation": sharpened,
    }))
}

fn losses_at(
    subject: &mut Subject,
    stream: &TokenStream,
    temperature: f64,
    walk: &Walk,
    comm: &dyn Communicator,
    out: &Output,
) -> Result<Vec<f64>, TrainError> {
    subject.model.set_inverse_temperature(temperature);
    let bar = out.progress(0, Unit::Steps, "evaluate");
    let mut progress = |done, whole| bar.set_of(done, whole);
    token_losses(subject.model.as_ref(), stream, walk, comm, &mut Watch::new(&mut progress))
}

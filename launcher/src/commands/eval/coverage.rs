use std::path::PathBuf;

use clap::Args;
use segue_configs::Config;
use segue_dataloader::{Batch, Corpus, LaneCursor, Lanes, PairLanes, PairOptions};
use segue_protocols::{Coverage, Factorised, MAX_ORDERS};
use serde_json::{Value, json};

use super::SplitName;
use crate::commands::at_least_one;
use crate::failure::{Failure, USAGE};
use crate::output::{Output, Unit};

/// Arguments of `segue eval coverage`.
#[derive(Args)]
#[command(after_help = "Example:\n  \
    segue eval coverage --corpus corpora/wiki --split valid --sequences 500 \\\n      \
    pairs.spans=single")]
pub struct CoverageArgs {
    /// Corpus folder.
    #[arg(long)]
    corpus: PathBuf,
    /// Split of the corpus.
    #[arg(long, value_enum, default_value = "train")]
    split: SplitName,
    /// Tokens per sequence, half of them the reused part.
    #[arg(long, default_value_t = 512, value_parser = at_least_one)]
    segment: usize,
    /// Maximum number of sequences; all that there are, if those are fewer.
    #[arg(long, default_value_t = 1000, value_parser = at_least_one)]
    sequences: usize,
    /// Orders drawn per sequence, at most 64.
    #[arg(long, default_value_t = 8, value_parser = at_least_one)]
    orders: usize,
    /// Largest distance between a target and the other tokens of a pair, in positions.
    #[arg(long, default_value_t = 16, value_parser = at_least_one)]
    window: usize,
    /// Configuration values, by dotted name, such as `pairs.num_predict=40` and `train.seed=2`.
    #[arg(value_name = "KEY=VALUE")]
    overrides: Vec<String>,
}

/// Draws targets and orders as training would and counts what they cover.
pub fn run(args: CoverageArgs, out: &Output) -> Result<Value, Failure> {
    if args.orders > MAX_ORDERS {
        return Err(Failure::new(USAGE, format!("--orders {} is above {MAX_ORDERS}", args.orders)));
    }
    let config = configure(&args)?;
    let corpus = Corpus::open(&args.corpus)?;
    let tokenizer = corpus.tokenizer()?;
    let special: Vec<i64> =
        ["<sep>", "<cls>"].iter().filter_map(|symbol| tokenizer.token_id(symbol)).map(i64::from).collect();
    let options = PairOptions::of(&config.train, &config.model, &config.own)?;
    let lanes = PairLanes::open(options, &[], &[corpus], args.split.into())?;
    let sequences = lanes.steps_per_pass(0).min(args.sequences as u64);
    let bar = out.progress(sequences, Unit::Steps, "coverage");
    let mut coverage = Coverage::new(args.orders);
    for step in 1..=sequences {
        let begin = lanes.cursor(0, step);
        let order = |pass: usize| lanes.batch(0..1, &[LaneCursor { epoch: pass as u64, ..begin }], step);
        let batches = (0..args.orders).map(order).collect::<Result<Vec<Batch>, _>>()?;
        coverage.add(&factorised(&batches, lanes.options().parts().0, &special), args.window);
        bar.set(step);
    }
    drop(bar);
    let rows: Vec<Value> = coverage.sizes.iter().map(|covered| row(covered, args.orders, out)).collect();
    Ok(json!({
        "corpus": args.corpus, "sequences": sequences, "targets": coverage.targets, "orders": args.orders,
        "window": args.window, "segment": args.segment, "contexts": rows,
    }))
}

/// The targets of a sequence stay while its orders change: that is what `draws = "same"` means.
fn configure(args: &CoverageArgs) -> Result<Config, Failure> {
    let mut keys = vec![
        "model.model_type=xlnet".to_string(),
        format!("train.segment={}", args.segment),
        format!("model.reuse_len={}", args.segment / 2),
    ];
    keys.extend_from_slice(&args.overrides);
    keys.extend(
        ["train.lanes=1", "train.micro_batch=1", "pairs.bidirectional=false", "pairs.draws=same"]
            .map(String::from),
    );
    Ok(segue_families::MODELS.load(None, &keys)?.config)
}

/// One sequence with all its orders, from batches of one lane that differ in nothing else.
fn factorised(batches: &[Batch], reused: usize, special: &[i64]) -> Factorised {
    let first = &batches[0];
    let mut targets = vec![false; first.segment];
    for pairs in first.pairs.iter() {
        let real = pairs.positions.iter().zip(&pairs.weights).filter(|(_, weight)| **weight > 0.0);
        real.for_each(|(place, _)| targets[*place as usize] = true);
    }
    Factorised {
        parts: (0..first.segment).map(|place| usize::from(place >= reused)).collect(),
        text: first.inputs.iter().map(|id| !special.contains(id)).collect(),
        targets,
        orders: batches.iter().filter_map(|batch| Some(batch.pairs.as_ref()?.ranks.clone())).collect(),
    }
}

fn row(covered: &segue_protocols::Covered, orders: usize, out: &Output) -> Value {
    let [bert, one, ever, left] = covered.shares(orders);
    let percent = |share: f64| format!("{:.2} %", 100.0 * share);
    out.line(&format!(
        "contexts of {}: {} pairs; BERT {}, XLNet {} with one order and {} with {orders}, left to right {}",
        covered.context,
        covered.pairs,
        percent(bert),
        percent(one),
        percent(ever),
        percent(left)
    ));
    json!({
        "context": covered.context, "pairs": covered.pairs, "bert": bert, "xlnet": one, "xlnet_ever": ever,
        "left_to_right": left,
    })
}

use std::time::Instant;

use clap::Args;
use segue_collectives::Communicator;
use segue_configs::DeviceKind;
use segue_engine::{Engine, Learner, Loss, Turn};
use segue_kernels::Parameters;
use segue_kernels::noise::Noise;
use segue_random::{Purpose, Stream};
use segue_report::median;
use segue_task::{HeadSpec, TaskModel};
use segue_tasks::{Example, Kind, Sequence, Target, TaskConfig};
use serde_json::{Value, json};

use super::sizes::SizeArgs;
use crate::commands::spelled::spelled;
use crate::commands::{at_least_one, device_of_rank};
use crate::failure::Failure;
use crate::output::{Output, Unit};

#[derive(Args)]
#[command(after_help = "Example:\n  \
    mpirun -n 2 segue bench task --segment 128 --micro-batch 16")]
pub struct TaskArgs {
    #[command(flatten)]
    sizes: SizeArgs,
    /// Vocabulary size.
    #[arg(long, alias = "vocab", default_value_t = 32000, value_parser = at_least_one)]
    vocab_size: usize,
    /// Tokens per sequence.
    #[arg(long, alias = "length", default_value_t = 128, value_parser = at_least_one)]
    segment: usize,
    /// Examples per rank, in one micro-step.
    #[arg(long, alias = "batch", default_value_t = 16, value_parser = at_least_one)]
    micro_batch: usize,
    /// Where to compute.
    #[arg(long, value_parser = spelled::<DeviceKind>(), default_value = "cpu")]
    device: DeviceKind,
}

/// Times whole steps of fine-tuning an XLNet to tell two classes apart.
pub fn run(args: &TaskArgs, comm: &dyn Communicator, out: &Output) -> Result<Value, Failure> {
    let compute = device_of_rank(args.device, comm, out)?;
    let base = vec![(segue_configs::finetuning_defaults(), "fine-tuning".to_string())];
    let mut overrides = args.sizes.overrides().to_vec();
    overrides.extend([
        "model.model_type=xlnet".to_string(),
        "task.name=bench".to_string(),
        format!("model.vocab_size={}", args.vocab_size),
        format!("model.dropatt={:?}", args.sizes.dropout),
        format!("train.segment={}", args.segment),
        format!("train.lanes={}", args.micro_batch * comm.world_size()),
        format!("train.micro_batch={}", args.micro_batch),
    ]);
    let config = segue_families::MODELS.load_over(base, None, &overrides)?.config;
    segue_kernels::libtorch::start(args.sizes.threads);
    segue_kernels::libtorch::keep_freed_memory();
    let labels = ["0", "1"].map(String::from).to_vec();
    let heads =
        [HeadSpec { task: "bench".into(), kind: Kind::Classification, labels, summary: Default::default() }];
    let model =
        TaskModel::fresh(&config.model, &heads, &config.own.get::<TaskConfig>(), &config.train, compute);
    let parameters = model.parameters.count();
    let mut engine = Engine::new(&config, OneHead(model), comm)?;
    let bar = out.progress(args.sizes.warmup + args.sizes.steps, Unit::Steps, "bench");
    let (mut times, mut loss) = (Vec::new(), f64::NAN);
    for step in 1..=args.sizes.warmup + args.sizes.steps {
        let batch: Vec<Example> =
            (0..args.micro_batch).map(|i| example(args, comm.rank(), step, i)).collect();
        comm.barrier()?;
        let began = Instant::now();
        let report = engine.step(step, &batch)?;
        if step > args.sizes.warmup {
            times.push(began.elapsed().as_secs_f64());
        }
        loss = report.loss;
        bar.set(step);
    }
    drop(bar);
    let step_s = median(&times);
    let examples_per_s = (args.micro_batch * comm.world_size()) as f64 / step_s;
    out.line(&format!("{examples_per_s:.1} examples/s, {step_s:.4} s a step"));
    Ok(json!({
        "examples_per_s": examples_per_s, "step_s": step_s, "params": parameters,
        "world": comm.world_size(), "loss": loss,
    }))
}

/// A model with one head, which every step trains whole.
struct OneHead(TaskModel);

impl Learner for OneHead {
    type Batch = Vec<Example>;
    type Carry = ();

    fn networks(&self) -> Vec<(&'static str, &Parameters)> {
        vec![("model", &self.0.parameters)]
    }

    fn start(&self, _: i64) {}

    fn loss(&self, _: &Turn, batch: &Vec<Example>, _: usize, (): &(), noise: &Noise) -> Loss<()> {
        self.0.loss(0, &batch.iter().collect::<Vec<_>>(), Some(noise))
    }
}

/// Uniform random tokens: two texts of about the same length, and a label.
fn example(args: &TaskArgs, rank: usize, step: u64, number: usize) -> Example {
    let stream = Stream::new(1, Purpose::Bench, &[rank as u64, step, number as u64]);
    let ids = (0..args.segment).map(|i| (stream.bits(i as u64) % args.vocab_size as u64) as u32).collect();
    let segments = (0..args.segment).map(|i| u8::from(2 * i >= args.segment)).collect();
    let label = (stream.bits(args.segment as u64) % 2) as u32;
    let sequence = Sequence { ids, segments, outside: Vec::new(), is_cut: false };
    Example { sequences: vec![sequence], target: Target::Class(label) }
}

//! `segue plan`: what a run would be on a machine, before there is either.

mod check;
mod measure;
mod show;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use segue_collectives::Communicator;
use segue_configs::{Config, Machine, Products, RecipeReader, Shard, TrainConfig, counted};
use segue_cost::{Choices, Cost, Held, Plan, Work, largest_micro_batch};
use segue_kernels::TrainError;
use segue_task::Pass;
use segue_tasks::{TaskConfig, TaskData};
use serde_json::{Value, json};

use super::finetune::{LEARNT_AND_SCORED, TaskRun};
use super::pretrain::refuse_nameless_task;
use super::{PrecisionArg, at_least_one};
use crate::failure::{BAD_CONFIG, Failure};
use crate::folder::Force;
use crate::output::Output;
use crate::recipes;

/// The machine that is measured instead of looked up.
const THIS_HOST: &str = "this-host";
/// What `--memory` says for the memory of the machine.
const OF_MACHINE: &str = "machine";

/// Arguments of `segue plan`.
#[derive(Args)]
#[command(after_help = "\
    Machines: dgx-1, dgx-2h, dgx-a100, dgx-h100, two-core-xeon; this-host measures the one at hand.\n\n\
    Examples:\n  \
    segue plan --config configs/recipes/nvidia-wt103-base.toml \\\n      \
    --machine dgx-a100 --precision bf16 --nodes 1,2\n  \
    segue plan --config configs/recipes/xlnet-large-v2.toml --machine dgx-h100 \\\n      \
    --precision bf16 --nodes 1,2,4,8 --lanes-per-rank 32 --memory \\\n      \
    --shard optimizer\n  \
    mpirun -n 2 segue plan --measure mine.toml")]
pub struct PlanArgs {
    /// Recipe, a TOML file, or the name of one that comes with the program (`segue recipes`) [default: every key at its default].
    #[arg(long, value_name = "FILE|NAME", value_parser = recipes::parser())]
    config: Option<PathBuf>,
    /// Machine: the name of one that comes with the program, a TOML file such as those in `configs/machines`, or
    /// `this-host`, which is measured first.
    #[arg(long, value_name = "NAME|FILE", default_value = THIS_HOST)]
    machine: String,
    /// Numbers of nodes to compare, all of whose ranks take part.
    #[arg(long, value_delimiter = ',', default_value = "1", value_parser = at_least_one)]
    nodes: Vec<usize>,
    /// Numbers of ranks to compare instead.
    #[arg(long, value_delimiter = ',', conflicts_with = "nodes", value_parser = at_least_one)]
    ranks: Vec<usize>,
    /// Lanes of each rank, whatever their number, in the place of `train.lanes` over all: the batch grows with the ranks.
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    lanes_per_rank: Option<usize>,
    /// Precision of products, in the place of `train.precision` and `train.tf32`.
    #[arg(long, value_enum)]
    precision: Option<PrecisionArg>,
    /// What ranks hold a part of, instead of all of it each, in the place of `train.shard`.
    #[arg(long, value_enum)]
    shard: Option<ShardArg>,
    /// Let backward compute the activations of each layer again, as `train.recompute` does.
    #[arg(long)]
    recompute: bool,
    /// Take the largest micro-batch that fits into so many bytes a rank, such as `--memory=24GiB`; without a value, into
    /// the machine's memory.
    #[arg(long, value_name = "BYTES", num_args = 0..=1, require_equals = true, default_missing_value = OF_MACHINE,
        value_parser = memory_budget)]
    memory: Option<Budget>,
    /// Measure the machine at hand and write its description to a file. Under mpirun the sums over ranks are measured too.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["config", "check"])]
    measure: Option<PathBuf>,
    #[command(flatten)]
    force: Force,
    /// Hold predictions against measured runs of others and of our own, row by row.
    #[arg(long)]
    check: bool,
    /// Overrides of the recipe, by dotted name.
    #[arg(value_name = "KEY=VALUE")]
    overrides: Vec<String>,
}

impl PlanArgs {
    /// Whether ranks share the work.
    pub fn takes_ranks(&self) -> bool {
        self.measure.is_some()
    }
}

/// What ranks share out.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ShardArg {
    /// Nothing.
    None,
    /// The optimizer's moments (ZeRO-1), and averages of the weights.
    Optimizer,
    /// These and gradients (ZeRO-2).
    Gradients,
}

/// Bytes a rank may hold.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Budget {
    Machine,
    Bytes(f64),
}

/// Reads `24GiB`, `40e9`, `512MB` or `machine`.
fn memory_budget(text: &str) -> Result<Budget, String> {
    if text == OF_MACHINE {
        return Ok(Budget::Machine);
    }
    /// Bytes below which a unit has been left out.
    const LEAST: f64 = 1e6;
    let units = [("GiB", 1073741824.0), ("MiB", 1048576.0), ("GB", 1e9), ("MB", 1e6), ("", 1.0)];
    let (number, unit) =
        units.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, unit))).unwrap_or((text, &1.0));
    match number.trim().parse::<f64>() {
        Ok(number) if number > 0.0 && number * unit < LEAST => Err(format!(
            "{text} is {} bytes, too little for any model: write, for example, 24GiB",
            number * unit
        )),
        Ok(number) if number > 0.0 && number.is_finite() => Ok(Budget::Bytes(number * unit)),
        _ => Err("not a number of bytes, such as 24GiB or 40e9".into()),
    }
}

/// One row of the comparison: a plan, or why there is none.
struct Row {
    /// How it was asked for, such as `2 nodes`.
    asked: String,
    outcome: Result<Plan, Failure>,
    /// The same run on one rank and on one node.
    one_rank: Option<Plan>,
    one_node: Option<Plan>,
}

/// Prints the plan.
pub fn run(args: &PlanArgs, comm: &dyn Communicator, out: &Output) -> Result<Value, Failure> {
    if let Some(path) = &args.measure {
        args.force.allow(path.as_path(), "--measure")?;
        return measure::write(path, comm, out);
    }
    if args.check {
        return check::run(out);
    }
    let machine = match args.machine.as_str() {
        THIS_HOST => measure::machine(comm, out)?,
        name => Machine::load(name)?,
    };
    let subject = Subject::open(args, out)?;
    let config = &subject.config;
    let counts: Vec<usize> = match args.ranks.is_empty() {
        true => args.nodes.iter().map(|nodes| nodes * machine.ranks).collect(),
        false => args.ranks.clone(),
    };
    let asked = |ranks: usize| match args.ranks.is_empty() {
        true => counted(ranks / machine.ranks, "node"),
        false => counted(ranks, "rank"),
    };
    let rows: Vec<Row> =
        counts.iter().map(|&ranks| row(args, &subject, &machine, ranks, asked(ranks))).collect();
    // Where no row can be had, the first says why.
    if rows.iter().all(|row| row.outcome.is_err()) {
        let first = rows.into_iter().find_map(|row| row.outcome.err());
        return Err(first.unwrap_or_else(|| Failure::new(BAD_CONFIG, "there is nothing to plan")));
    }
    for line in show::lines(&machine, args.products(&config.train), &rows) {
        out.line(&line);
    }
    let mut plans: Vec<Value> = rows.iter().map(|row| to_json(row, &machine)).collect();
    if !subject.tasks.is_empty() {
        out.line("tokens are positions, padding among them");
        for (row, value) in rows.iter().zip(&mut plans) {
            let Ok(plan) = &row.outcome else { continue };
            let examples_per_s = plan.lanes as f64 / plan.step_s;
            out.line(&format!("{}: {examples_per_s:.1} examples/s", row.asked));
            value["examples_per_s"] = json!(examples_per_s);
        }
    }
    Ok(json!({ "machine": machine, "plans": plans }))
}

/// What is planned: pre-training, or a run on tasks.
struct Subject {
    config: Config,
    /// The tasks; none of pre-training.
    tasks: Vec<TaskData>,
}

impl Subject {
    fn open(args: &PlanArgs, out: &Output) -> Result<Self, Failure> {
        let reader = RecipeReader::new(&segue_families::MODELS);
        let mut config = reader.load(args.config.as_deref(), &args.overrides)?.config;
        if !config.task.name.is_empty() {
            config.train.recompute |= args.recompute;
            let TaskRun { config, tasks, .. } =
                TaskRun::open(config, None, LEARNT_AND_SCORED, &|line| out.line(line))?;
            return Ok(Self { config, tasks });
        }
        refuse_nameless_task(&config.task, &config.own.get())?;
        (segue_family::of(&config.model).fit)(&mut config)?;
        Ok(Self { config, tasks: Vec::new() })
    }

    /// Its configuration with the lanes that are asked for; of a task also the steps that its passes then come to.
    fn with_lanes(&self, args: &PlanArgs, ranks: usize) -> Result<Config, Failure> {
        let mut config = self.config.clone();
        if let Some(each) = args.lanes_per_rank {
            config.train.lanes = each * ranks;
            config.train.micro_batch = config.train.micro_batch.min(each);
            if !self.tasks.is_empty() {
                segue_task::resolve_schedule(&mut config, &self.tasks)?;
            }
        }
        Ok(config)
    }

    fn is_adapted(&self) -> bool {
        !self.tasks.is_empty() && self.config.own.get::<TaskConfig>().adapter_rank > 0
    }

    /// What `config`, one like its own, trains.
    fn work(&self, config: &Config) -> Result<Work, TrainError> {
        match self.tasks.is_empty() {
            true => segue_family::work(config),
            false => {
                let Config { train, model, own, .. } = config;
                let (task, tasks) = (&*own.get::<TaskConfig>(), &self.tasks);
                segue_task::work(model, task, train.recompute, tasks, &Pass::first(train, task, tasks)?)
            }
        }
    }

    /// What each of `ranks` ranks holds of a run of `config`, one like its own, where these are the choices.
    fn held(&self, mut config: Config, ranks: usize, choices: &Choices) -> Result<Held, TrainError> {
        config.train.shard = choices.shard;
        let work = self.work(&config)?;
        Ok(Held::new(&Cost::new(&config, &work, ranks)?, &work, choices))
    }
}

fn row(args: &PlanArgs, subject: &Subject, machine: &Machine, ranks: usize, asked: String) -> Row {
    let choices = args.choices(&subject.config.train);
    let plan = |config: Config, ranks: usize| -> Result<Plan, Failure> {
        let work = subject.work(&config)?;
        Ok(Plan::new(config, &work, machine, ranks, &choices)?)
    };
    let outcome = fit(args, subject, machine, ranks, &choices).and_then(|config| plan(config, ranks));
    // The same micro-batch, so that it is the same work a rank.
    let same = |ranks: usize| {
        let plan_of = |micro_batch: usize| {
            let mut config = subject.with_lanes(args, ranks).ok()?;
            config.train.micro_batch = micro_batch;
            // One rank may take any number of micro-steps.
            config.train.exact = config.train.exact && ranks > 1;
            plan(config, ranks).ok()
        };
        plan_of(outcome.as_ref().ok()?.micro_batch)
    };
    let (one_rank, one_node) = (same(1), same(machine.ranks));
    Row { asked, outcome, one_rank, one_node }
}

/// The configuration with the lanes and the micro-batch that are asked for.
fn fit(
    args: &PlanArgs,
    subject: &Subject,
    machine: &Machine,
    ranks: usize,
    choices: &Choices,
) -> Result<Config, Failure> {
    let mut config = subject.with_lanes(args, ranks)?;
    let Some(budget) = args.memory else { return Ok(config) };
    let bytes = match budget {
        Budget::Machine => machine.memory,
        Budget::Bytes(bytes) => bytes,
    };
    let with = |micro_batch: usize| {
        let mut tried = config.clone();
        tried.train.micro_batch = micro_batch;
        tried
    };
    let held = |micro_batch: usize| subject.held(with(micro_batch), ranks, choices);
    let taken = |micro_batch: usize| match with(micro_batch).check_run() {
        Ok(()) => held(micro_batch).map(Some),
        Err(_) => Ok(None),
    };
    let largest = largest_micro_batch(&config.train, ranks, bytes, taken)?;
    config.train.micro_batch = largest.ok_or_else(|| {
        // Of those that the ranks can share.
        let smallest = (1..=config.train.micro_batch).find_map(|micro_batch| held(micro_batch).ok());
        let least = smallest.map_or(String::new(), |held| {
            format!(": the smallest micro-batch needs {:.2} GB", held.total() / 1e9)
        });
        let what =
            format!("no micro-batch fits into {:.2} GB on {}{least}", bytes / 1e9, counted(ranks, "rank"));
        // Adapted weights cannot be made anew.
        let recompute = if subject.is_adapted() { "" } else { "--recompute, " };
        Failure::new(BAD_CONFIG, format!("{what}\nhint: try {recompute}--shard gradients, or more ranks"))
    })?;
    Ok(config)
}

impl PlanArgs {
    fn products(&self, train: &TrainConfig) -> Products {
        self.precision.map_or(train.products(), Products::from)
    }

    fn choices(&self, train: &TrainConfig) -> Choices {
        let shard = match self.shard {
            None => train.shard,
            Some(ShardArg::None) => Shard::None,
            Some(ShardArg::Optimizer) => Shard::Optimizer,
            Some(ShardArg::Gradients) => Shard::Gradients,
        };
        let recompute = self.recompute || train.recompute;
        let gradient_bytes = train.reduce_precision.bytes() as f64;
        Choices { shard, recompute, gradient_bytes, ..Choices::of(self.products(train)) }
    }
}

fn to_json(row: &Row, machine: &Machine) -> Value {
    match &row.outcome {
        Ok(plan) => {
            let against = |other: &Option<Plan>| other.as_ref().map(|other| plan.efficiency_against(other));
            let mut value = json!(plan);
            value["memory_bytes"] = json!(plan.memory.total());
            value["fits"] = json!(plan.fits());
            value["efficiency_against_one_rank"] = json!(against(&row.one_rank));
            value["efficiency_against_one_node"] =
                json!(if plan.ranks < machine.ranks { None } else { against(&row.one_node) });
            value
        }
        Err(failure) => json!({ "asked": row.asked, "error": failure.message, "hint": failure.hint }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_read_with_their_units() {
        for (text, bytes) in [("24GiB", 24.0 * 1073741824.0), ("40e9", 40e9), ("512 MB", 512e6), ("1e6", 1e6)]
        {
            assert_eq!(memory_budget(text), Ok(Budget::Bytes(bytes)), "{text}");
        }
        assert_eq!(memory_budget("machine"), Ok(Budget::Machine));
        for text in ["", "GiB", "-1", "24", "much", "inf"] {
            assert!(memory_budget(text).is_err(), "{text}");
        }
    }
}

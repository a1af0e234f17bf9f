//! `--dry-run` of `segue pretrain` and `segue finetune`: the cost of a recipe, next to its published figures.

use segue_configs::{Config, PublishedConfig, RateScale, counted};
use segue_cost::{Bounds, Cost, NetworkCost};
use segue_task::Pass;
use serde_json::{Value, json};

use super::finetune::TaskRun;
use crate::failure::{CHECK_FAILED, Failure};
use crate::output::Output;

/// Bytes of a GiB.
const GIB: f64 = (1u64 << 30) as f64;

/// Prints the cost of `config` on `ranks` ranks. Exit code 1 where the recipe publishes an exact number of
/// parameters and the model has another.
pub fn run(mut config: Config, ranks: usize, out: &Output) -> Result<Value, Failure> {
    (segue_family::of(&config.model).fit)(&mut config)?;
    let cost = segue_family::cost(&config, ranks)?;
    Ok(DryRun { config, read: cost.unit, cost, frozen: 0 }.report(out))
}

/// Prints the cost of a run on tasks on `ranks` ranks: what a pass takes, and the same.
pub fn of_task(run: &TaskRun, ranks: usize, out: &Output) -> Result<Value, Failure> {
    let TaskRun { config, tasks, .. } = run;
    let (train, task) = (&config.train, &*config.own.get());
    let pass = Pass::first(train, task, tasks)?;
    let work = segue_task::work(&config.model, task, train.recompute, tasks, &pass)?;
    let cost = Cost::new(config, &work, ranks)?;
    let passes = config.train.steps as f64 / pass.steps as f64;
    out.line(&format!(
        "{} of {}: {passes:.2} passes over {} in {} each, {} of warm-up",
        counted(config.train.steps as usize, "step"),
        counted(config.train.lanes, "example"),
        counted(pass.examples as usize, "example"),
        counted(pass.steps as usize, "step"),
        counted(config.schedule.warmup as usize, "step"),
    ));
    out.line(&format!(
        "a pass: {} tokens, the longest sequence {}, {:.1} % of all positions are padding",
        grouped(pass.tokens),
        pass.longest,
        100.0 * pass.padding()
    ));
    let frozen = segue_task::beside(&config.model, &config.own.get(), tasks)?.frozen;
    let mut found = DryRun { config: config.clone(), cost, read: "positions", frozen }.report(out);
    found["task"] = json!({
        "name": config.task.name, "steps": config.train.steps, "warmup": config.schedule.warmup, "passes": passes,
        "lanes": config.train.lanes, "pass": pass, "padding": pass.padding(),
    });
    Ok(found)
}

/// A run, and what it costs.
struct DryRun {
    config: Config,
    cost: Cost,
    /// What a model reads in a step.
    read: &'static str,
    /// How many of its values stay as they are.
    frozen: u64,
}

impl DryRun {
    /// Prints what the run costs, and what of it is published.
    fn report(&self, out: &Output) -> Value {
        let Self { config: Config { published, .. }, cost, read, frozen } = self;
        let differs = published.parameters != 0 && published.parameters != cost.parameters;
        for line in describe(cost, published, read, *frozen).into_iter().chain(self.large_batch()) {
            out.line(&line);
        }
        if differs {
            out.line(&format!(
                "the model has {} parameters, but {} are published: an override changes it, or the recipe is \
                 wrong",
                grouped(cost.parameters),
                grouped(published.parameters)
            ));
        }
        json!({
            "cost": cost,
            "peak_lr": self.config.peak_lr(),
            "bytes_per_rank": cost.memory_per_rank.total(),
            "published": published,
            "agrees": (published.parameters != 0).then_some(!differs),
            "exit_code": if differs { CHECK_FAILED } else { 0 },
        })
    }

    /// What the number of lanes makes of the learning rate, and the batch of the first steps.
    fn large_batch(&self) -> Vec<String> {
        let Config { train, schedule, optim, .. } = &self.config;
        let mut lines = Vec::new();
        if schedule.scale != RateScale::None {
            lines.push(format!(
                "peak learning rate {:.3e}: {:.3e} at {} lanes, scaled to {}",
                self.config.peak_lr(),
                optim.lr,
                schedule.base_lanes,
                train.lanes
            ));
        }
        if train.batch_warmup > 0 {
            lines.push(format!(
                "the first {} steps grow from {} lanes to all {}",
                grouped(train.batch_warmup),
                train.lanes / train.batch_warmup_from,
                train.lanes
            ));
        }
        lines
    }
}

fn describe(cost: &Cost, published: &PublishedConfig, read: &str, frozen: u64) -> Vec<String> {
    let of_all = match frozen {
        0 => String::new(),
        frozen => format!(" trained of {}", grouped(cost.parameters + frozen)),
    };
    let mut lines = vec![format!("{:<24}{:>18}{of_all}", "parameters", grouped(cost.parameters))];
    let parts = cost.parameters_by_part;
    for (name, count) in [
        ("embedding", parts.embedding),
        ("projections", parts.projections),
        ("layers", parts.layers),
        ("softmax", parts.softmax),
        ("head", parts.head),
    ] {
        // A model that is not of words has no such parts.
        if name == "head" && count == 0 || parts.head == cost.parameters {
            continue;
        }
        lines.push(format!("  {name:<22}{:>18}", grouped(count)));
    }
    for NetworkCost { name, parameters, optimizer, updates } in &cost.networks {
        let (optimizer, updates) = (grouped(*optimizer), counted(*updates, "update"));
        lines.push(format!(
            "  {name:<22}{:>18}, {optimizer} bytes of its optimizer, {updates}",
            grouped(*parameters)
        ));
    }
    if published.parameters != 0 {
        lines.push(format!("{:<24}{:>18}", "  published", grouped(published.parameters)));
    }
    for (name, text) in [
        ("  thesis", &published.thesis_parameters),
        ("  result to reach", &published.thesis_result),
        ("  source", &published.source),
    ] {
        if !text.is_empty() {
            lines.push(format!("{name:<24}{text}"));
        }
    }
    let memory = cost.memory_per_rank;
    lines.push(format!(
        "memory of each of {}, {} a step: {}",
        counted(cost.ranks, "rank"),
        counted(cost.micro_steps_per_rank, "micro-step"),
        gib(memory.total())
    ));
    for (name, bytes) in [
        ("weights", memory.weights),
        ("gradients", memory.gradients),
        ("optimizer", memory.optimizer),
        ("averages of weights", memory.average),
        ("segment memory", memory.segment_memory),
    ] {
        if bytes > 0 {
            lines.push(format!("  {name:<22}{:>18} bytes", grouped(bytes)));
        }
    }
    lines.push(format!("  {:<22}{} (estimate)", "activations", gib(memory.activations)));
    let checkpoint = cost.checkpoint;
    lines.push(format!("a checkpoint: {:.2} GiB on disk", checkpoint.disk as f64 / GIB));
    for (name, bytes, there) in [
        ("segment memory of it", checkpoint.carry, checkpoint.carry > 0),
        ("held by rank 0", checkpoint.held_by_rank_0, true),
        ("held by other ranks", checkpoint.held_by_others, cost.ranks > 1 && checkpoint.held_by_others > 0),
    ] {
        if there {
            lines.push(format!("  {name:<22}{:>18} bytes", grouped(bytes)));
        }
    }
    let one = read.strip_suffix('s').unwrap_or(read);
    lines.push(format!("operations per {one}, forward   {}", flops(cost.forward_flops_per_token)));
    lines.push(format!("operations per {one}, training  {}", flops(cost.training_flops_per_token)));
    lines.push(format!(
        "{} {read} a step ({} with a loss), {} steps: {} {read}, {}",
        grouped(cost.tokens_per_step),
        grouped(cost.targets_per_step),
        grouped(cost.steps),
        grouped(cost.tokens),
        flops(cost.flops)
    ));
    if cost.flops.least < cost.flops.most {
        lines.push("  to: from all words in the first cluster to all words in the costliest".into());
    }
    lines
}

fn gib(bytes: Bounds) -> String {
    between(bytes, |b| format!("{:.2}", b / GIB), "GiB")
}

fn flops(count: Bounds) -> String {
    between(count, |f| format!("{f:.3e}"), "FLOP")
}

fn between(bounds: Bounds, show: impl Fn(f64) -> String, unit: &str) -> String {
    let (least, most) = (show(bounds.least), show(bounds.most));
    if least == most { format!("{least} {unit}") } else { format!("{least} to {most} {unit}") }
}

/// Digits in groups of three.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_grouped_from_the_right() {
        assert_eq!(grouped(7), "7");
        assert_eq!(grouped(151_107_538), "151,107,538");
        assert_eq!(grouped(41_055), "41,055");
    }
}

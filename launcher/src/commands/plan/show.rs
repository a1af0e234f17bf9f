//! A plan for people: tables over nodes, and bars for the parts.

use segue_configs::{Machine, Products};
use segue_cost::Plan;

use super::Row;

/// Bytes of a GiB.
const GIB: f64 = (1u64 << 30) as f64;
/// Characters of a bar.
const BAR: usize = 40;
/// Parts of less than this fraction of a step or a memory are not drawn.
const LEAST: f64 = 0.0005;

/// All of it.
pub fn lines(machine: &Machine, products: Products, rows: &[Row]) -> Vec<String> {
    let plans: Vec<(&Row, &Plan)> =
        rows.iter().filter_map(|row| Some((row, row.outcome.as_ref().ok()?))).collect();
    let mut lines = vec![format!("{}, {}", machine.about, products.name()), String::new()];
    lines.push(
        "nodes  ranks  lanes  micro    step      tokens/s    MFU  of 1 rank  of 1 node    memory".into(),
    );
    lines.extend(rows.iter().map(|row| speed(row, machine)));
    for (row, plan) in rows.iter().filter_map(|row| Some((row, row.outcome.as_ref().err()?))) {
        let hint = plan.hint.as_ref().map_or(String::new(), |hint| format!(" ({hint})"));
        lines.push(format!("{}: {}{hint}", row.asked, plan.message));
    }
    match plans[..] {
        [(_, plan)] => {
            lines.extend([String::new(), "a step, of it".into()]);
            lines.extend(parts(plan));
            lines.extend([String::new(), "memory of a rank, of it".into()]);
            lines.extend(memory(plan));
        }
        _ => {
            lines.extend([String::new(), "milliseconds of a step".into()]);
            lines.extend(table_of_parts(&plans));
            lines.extend([String::new(), "GiB of a rank".into()]);
            lines.extend(table_of_memory(&plans));
        }
    }
    lines.extend([String::new(), "to train".into()]);
    lines.extend(training(&plans));
    lines
}

/// One line of the first table.
fn speed(row: &Row, machine: &Machine) -> String {
    let Ok(plan) = &row.outcome else { return format!("{:>5}  {:>5}", "-", "-") };
    let percent = |other: Option<&Plan>| {
        other.map_or("-".to_string(), |other| format!("{:.1} %", 100.0 * plan.efficiency_against(other)))
    };
    let of_node = row.one_node.as_ref().filter(|_| plan.ranks >= machine.ranks);
    format!(
        "{:>5}  {:>5}  {:>5}  {:>5}  {:>8}  {:>11}  {:>5}  {:>9}  {:>9}  {:>6} GiB{}",
        plan.nodes,
        plan.ranks,
        plan.lanes,
        plan.micro_batch,
        seconds(plan.step_s),
        grouped(plan.tokens_per_s),
        format!("{:.1} %", 100.0 * plan.mfu),
        percent(row.one_rank.as_ref()),
        percent(of_node),
        format!("{:.2}", plan.memory.total() / GIB),
        if plan.fits() { "" } else { "  too much" }
    )
}

/// The parts of one step as bars.
fn parts(plan: &Plan) -> Vec<String> {
    let mut lines = bars(&plan.parts.parts(), plan.step_s, |time| format!("{:>9}", seconds(time)));
    if plan.ranks > 1 {
        let hidden = plan.parts.communication_total - plan.parts.communication;
        lines.push(format!("  {:<15} {:>9}", "hidden sums", seconds(hidden)));
    }
    lines
}

fn memory(plan: &Plan) -> Vec<String> {
    let mut lines =
        bars(&plan.memory.kinds(), plan.memory.total(), |bytes| format!("{:>5.2} GiB", bytes / GIB));
    lines.push(format!("  {:<15} {:>5.2} GiB", "of", plan.memory_limit / GIB));
    lines
}

/// Parts of a whole, each with its figure, its percentage and a bar; those that come to nothing are left out.
fn bars(parts: &[(&str, f64)], whole: f64, show: impl Fn(f64) -> String) -> Vec<String> {
    let line = |(name, part): &(&str, f64)| {
        let fraction = part / whole;
        let bar = "█".repeat((fraction * BAR as f64).round() as usize);
        format!("  {name:<15} {} {:>5.1} %  {bar}", show(*part), 100.0 * fraction).trim_end().to_string()
    };
    parts.iter().filter(|(_, part)| *part > LEAST * whole).map(line).collect()
}

/// Parts of several steps, a line for each number of nodes, with a bar of letters.
fn table_of_parts(plans: &[(&Row, &Plan)]) -> Vec<String> {
    let mut lines = vec![
        "nodes  ranks  products  attention  element-wise  softmax  update  exposed  hidden  others"
            .to_string(),
    ];
    for (_, plan) in plans {
        let time = &plan.parts;
        let ms = |seconds: f64| format!("{:.2}", 1e3 * seconds);
        lines.push(format!(
            "{:>5}  {:>5}  {:>8}  {:>9}  {:>12}  {:>7}  {:>6}  {:>7}  {:>6}  {:>6}",
            plan.nodes,
            plan.ranks,
            ms(time.products),
            ms(time.attention),
            ms(time.element_wise),
            ms(time.softmax),
            ms(time.update),
            ms(time.communication),
            ms(time.communication_total - time.communication),
            ms(time.starts + time.data + time.checkpoint)
        ));
    }
    let slowest = plans.iter().map(|(_, plan)| plan.step_s).fold(0.0, f64::max);
    for (_, plan) in plans {
        let letters =
            [("p", 0), ("a", 1), ("e", 2), ("s", 3), ("u", 4), ("w", 5), ("c", 6), ("d", 7), ("k", 8)];
        let times = plan.parts.parts();
        let bar = letters
            .map(|(letter, i)| letter.repeat((times[i].1 / slowest * 2.0 * BAR as f64).round() as usize));
        lines.push(format!("{:>5}  {}", plan.nodes, bar.concat()));
    }
    lines.push(
        "products, attention, element-wise, softmax, update, w: starts, communication, data, k: checkpoint"
            .into(),
    );
    lines
}

fn table_of_memory(plans: &[(&Row, &Plan)]) -> Vec<String> {
    let kinds = plans.first().map_or([("", 0.0); 7], |(_, plan)| plan.memory.kinds());
    let head: String = kinds.iter().map(|(name, _)| format!("  {name}")).collect();
    let mut lines = vec![format!("nodes  ranks{head}   total")];
    for (_, plan) in plans {
        let cells: String = plan
            .memory
            .kinds()
            .iter()
            .map(|(name, bytes)| format!("  {:>width$.2}", bytes / GIB, width = name.len()))
            .collect();
        let total = plan.memory.total() / GIB;
        lines.push(format!("{:>5}  {:>5}{cells}  {total:>6.2}", plan.nodes, plan.ranks));
    }
    lines
}

/// Time and price of the run, and what failures do to them.
fn training(plans: &[(&Row, &Plan)]) -> Vec<String> {
    let mut lines = vec![
        "nodes  ranks  no failures  with them  failures  each loses      price   every  best every      then"
            .to_string(),
    ];
    for (_, plan) in plans {
        let run = plan.as_configured;
        lines.push(format!(
            "{:>5}  {:>5}  {:>11}  {:>9}  {:>8}  {:>10}  {:>9}  {:>6}  {:>10}  {:>8}",
            plan.nodes,
            plan.ranks,
            duration(plan.work_s),
            duration(run.expected),
            format!("{:.3}", run.failures),
            duration(run.lost),
            grouped(plan.price),
            (run.interval / (plan.step_s - plan.parts.checkpoint)).round(),
            plan.best_every,
            duration(plan.best.expected),
        ));
    }
    lines.push(
        "every: steps between checkpoints, of the recipe and the best; then: the time with the best".into(),
    );
    lines
}

/// A time of a step.
fn seconds(time: f64) -> String {
    match time {
        t if t >= 1.0 => format!("{t:.2} s"),
        t => format!("{:.2} ms", 1e3 * t),
    }
}

/// A time of a run.
fn duration(time: f64) -> String {
    match time {
        t if t < 120.0 => format!("{t:.1} s"),
        t if t < 7200.0 => format!("{:.1} min", t / 60.0),
        t if t < 48.0 * 3600.0 => format!("{:.1} h", t / 3600.0),
        t => format!("{:.1} d", t / 86_400.0),
    }
}

/// A whole number, its digits in groups of three.
fn grouped(number: f64) -> String {
    super::super::dry_run::grouped(number.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_parts() {
        let lines = bars(&[("half", 5.0), ("quarter", 2.5), ("nothing", 0.0)], 10.0, |x| format!("{x:>4}"));
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0].matches('█').count(), BAR / 2);
        assert_eq!(lines[1], format!("  quarter          2.5  25.0 %  {}", "█".repeat(BAR / 4)));
    }

    #[test]
    fn times_have_the_unit_that_suits_them() {
        assert_eq!([0.012, 3.0].map(seconds), ["12.00 ms", "3.00 s"]);
        assert_eq!(
            [5.0, 600.0, 36_000.0, 864_000.0].map(duration),
            ["5.0 s", "10.0 min", "10.0 h", "10.0 d"]
        );
    }
}

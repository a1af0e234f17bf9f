//! One picture of runs: a function of what is known of them, of what is chosen, and of the size of the terminal.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Axis, Block, Cell, Chart, Dataset, GraphType, Paragraph, Row, Table, TableState};

use crate::{RankState, RanksFrom, RunView, thinned};

/// Colours of runs, in their order.
const COLOURS: [Color; 6] =
    [Color::Cyan, Color::Yellow, Color::Green, Color::Magenta, Color::Red, Color::Blue];
/// Points of a curve that a terminal can tell apart.
const POINTS: usize = 600;
/// Largest size of a value that an axis can show: differences of such values are numbers too.
const MOST_SHOWN: f64 = 1e280;
/// Width from which curves stand side by side, and height from which there are any.
const SIDE_BY_SIDE: u16 = 90;
const WITH_CURVES: u16 = 18;
/// Lines that ranks leave to attempts, where there are as many.
const ATTEMPTS: usize = 2;

/// What is chosen of a view.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Screen {
    /// The run whose ranks are shown.
    pub selected: usize,
    /// Whether losses are drawn by their logarithms.
    pub logarithmic: bool,
}

/// Draws `runs` at the time `now`, in seconds since 1970.
pub fn draw(frame: &mut Frame, runs: &[RunView], screen: &Screen, now: f64) {
    let area = frame.area();
    let third = usize::from(area.height / 3);
    let below = below(runs.get(screen.selected), third, now);
    let table = (runs.len() + 1).min(third);
    let [title, head, curves, rest, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(table as u16),
        Constraint::Min(0),
        Constraint::Length(below.len() as u16),
        Constraint::Length(1),
    ])
    .areas(area);
    let shown = table.saturating_sub(1);
    let name = match shown < runs.len() {
        true => format!("Segue, {shown} of {} runs", runs.len()),
        false => "Segue".into(),
    };
    frame.render_widget(Line::from(name).style(Modifier::BOLD), title);
    // A table that does not fit shows the rows up to the selected one.
    let mut place = TableState::new().with_selected(screen.selected);
    frame.render_stateful_widget(summary(runs, screen, now, area.width), head, &mut place);
    if area.height >= WITH_CURVES {
        draw_curves(frame, runs, screen, curves);
    }
    frame.render_widget(Paragraph::new(below), rest);
    frame.render_widget(
        Line::from("q quit · ↑↓ choose a run · l logarithmic loss").style(Modifier::DIM),
        keys,
    );
}

fn colour(i: usize) -> Style {
    Style::new().fg(COLOURS[i % COLOURS.len()])
}

/// The names of columns, in their order, and of those that go first where a terminal is narrow.
const COLUMNS: [&str; 8] =
    ["    run", "state", "step", "loss", "a second", "evaluation", "checkpoint", "reported"];
const LEFT_OUT_FIRST: [usize; 4] = [7, 6, 4, 1];

/// The columns for which there is room, so that no number is cut.
fn columns(widths: [u16; 8], room: u16) -> Vec<usize> {
    let mut shown: Vec<usize> = (0..widths.len()).collect();
    for column in LEFT_OUT_FIRST {
        // A space between two.
        if shown.iter().map(|&i| widths[i] + 1).sum::<u16>() <= room + 1 {
            break;
        }
        shown.retain(|&i| i != column);
    }
    shown
}

/// What evaluations are chosen by, where that is one metric for all runs.
fn evaluation(runs: &[RunView]) -> &str {
    let name = runs.first().and_then(RunView::metric);
    name.filter(|name| runs.iter().all(|run| run.metric() == Some(*name))).unwrap_or(COLUMNS[5])
}

/// A line for each run, `room` columns wide.
fn summary<'a>(runs: &'a [RunView], screen: &Screen, now: f64, room: u16) -> Table<'a> {
    let longest = runs.iter().map(|run| run.name.chars().count()).max().unwrap_or(0).clamp(3, 30) as u16 + 4;
    let mut head = COLUMNS;
    head[5] = evaluation(runs);
    let widths = [longest, 8, 14, 8, 9, head[5].chars().count().clamp(10, 20) as u16, 10, 12];
    let shown = columns(widths, room);

    let number = |value: Option<f64>| value.map_or("-".into(), short);
    let row = |(i, run): (usize, &'a RunView)| {
        let mark = if i == screen.selected && runs.len() > 1 { "> " } else { "  " };
        let reported = run.updated.map_or("-".into(), |at| format!("{} ago", ago(now - at)));
        let cells: [Cell; 8] = [
            Line::from(vec![Span::raw(mark), Span::styled("■ ", colour(i)), Span::raw(run.name.as_str())])
                .into(),
            run.state.name().into(),
            if run.steps > 0 { format!("{}/{}", run.step, run.steps) } else { run.step.to_string() }.into(),
            number(run.last("train/loss")).into(),
            number(run.rate().and_then(|name| run.last(name))).into(),
            number(run.evaluation().and_then(|name| run.last(name))).into(),
            run.checkpoints.last().map_or("-".into(), u64::to_string).into(),
            reported.into(),
        ];
        let cells = cells.into_iter().enumerate().filter(|(i, _)| shown.contains(i));
        Row::new(cells.map(|(_, cell)| cell))
    };
    let rows: Vec<Row> = runs.iter().enumerate().map(row).collect();
    Table::new(rows, shown.iter().map(|&i| Constraint::Length(widths[i])))
        .header(Row::new(shown.iter().map(|&i| head[i])).style(Modifier::DIM))
        .column_spacing(1)
}

fn draw_curves(frame: &mut Frame, runs: &[RunView], screen: &Screen, area: Rect) {
    let beside = area.width >= SIDE_BY_SIDE;
    let halves = [Constraint::Ratio(1, 2); 2];
    let [left, right] =
        if beside { Layout::horizontal(halves) } else { Layout::vertical(halves) }.areas(area);
    let loss = Curves::of(runs, |_| Some("train/loss"), screen.logarithmic);
    loss.draw(frame, if screen.logarithmic { "loss, logarithmic" } else { "loss" }, left);
    Curves::of(runs, RunView::rate, false).draw(frame, "tokens or examples a second", right);
}

/// A curve of each run, as it is drawn.
struct Curves {
    /// Number of the run, and its points.
    lines: Vec<(usize, Vec<(f64, f64)>)>,
    logarithmic: bool,
    /// Points that the axis cannot show.
    left_out: usize,
}

impl Curves {
    fn of<'a>(runs: &'a [RunView], name: impl Fn(&'a RunView) -> Option<&'a str>, logarithmic: bool) -> Self {
        let value = |value: f64| if logarithmic { value.ln() } else { value };
        let (mut lines, mut left_out) = (Vec::new(), 0);
        for (i, run) in runs.iter().enumerate() {
            let Some(series) = name(run).and_then(|name| run.series.get(name)) else { continue };
            let all = series.iter().map(|(step, y)| (*step, value(*y)));
            let shown: Vec<(u64, f64)> = all.filter(|(_, y)| y.abs() <= MOST_SHOWN).collect();
            left_out += series.len() - shown.len();
            if !shown.is_empty() {
                let points = thinned(&shown, POINTS).into_iter();
                lines.push((i, points.map(|(step, y)| (step as f64, y)).collect()));
            }
        }
        Self { lines, logarithmic, left_out }
    }

    /// Least and greatest of what `of` takes of all points, apart where they are the same.
    fn bounds(&self, of: fn(&(f64, f64)) -> f64) -> [f64; 2] {
        let all = self.lines.iter().flat_map(|(_, points)| points).map(of);
        let [low, high] =
            all.fold([f64::INFINITY, f64::NEG_INFINITY], |[low, high], v| [low.min(v), high.max(v)]);
        let apart = f64::max(0.5, low.abs() * 1e-9);
        if low < high { [low, high] } else { [low - apart, low + apart] }
    }

    fn draw(&self, frame: &mut Frame, title: &str, area: Rect) {
        let left_out = match self.left_out {
            0 => String::new(),
            1 => ", 1 value left out".into(),
            many => format!(", {many} values left out"),
        };
        let block = Block::bordered().title(format!(" {title}{left_out} "));
        if self.lines.is_empty() {
            let why = if self.left_out > 0 { "beyond what the axis shows" } else { "nothing reported yet" };
            frame.render_widget(Paragraph::new(why).block(block), area);
            return;
        }
        let sets = self.lines.iter().map(|(i, points)| {
            Dataset::default()
                .marker(Marker::Braille)
                .graph_type(GraphType::Line)
                .style(colour(*i))
                .data(points)
        });
        let (x, y) = (self.bounds(|point| point.0), self.bounds(|point| point.1));
        let value = |y: f64| short(if self.logarithmic { y.exp() } else { y });
        let chart = Chart::new(sets.collect())
            .block(block)
            .legend_position(None)
            .x_axis(Axis::default().bounds(x).labels([short(x[0]), short(x[1])]))
            .y_axis(Axis::default().bounds(y).labels([value(y[0]), value((y[0] + y[1]) / 2.0), value(y[1])]));
        frame.render_widget(chart, area);
    }
}

/// What is told of one run alone in so many lines: its ranks, and how its attempts ended.
fn below(run: Option<&RunView>, room: usize, now: f64) -> Vec<Line<'_>> {
    let Some(run) = run else { return Vec::new() };
    let mut lines: Vec<String> =
        run.problems.iter().map(|problem| format!("cannot be read: {problem}")).collect();
    let (head, ranks) = ranks(run, now);
    lines.push(head);
    let attempts = run.attempts.iter().rev().map(|attempt| {
        let (number, seconds) = (attempt.attempt, ago(attempt.seconds));
        format!(
            "attempt {number}: {seconds}, checkpoint {} to {}: {}",
            attempt.from_step,
            attempt.to_step,
            attempt.why()
        )
    });
    let free = room.saturating_sub(lines.len());
    lines.extend(cut(ranks, free.saturating_sub(run.attempts.len().min(ATTEMPTS)), "ranks"));
    let free = room.saturating_sub(lines.len());
    lines.extend(cut(attempts.collect(), free, "attempts"));
    lines.truncate(room);
    lines.into_iter().map(Line::from).collect()
}

/// As many of `lines` as there is room for; where that is not all, the last one says how many more there are.
fn cut(mut lines: Vec<String>, room: usize, what: &str) -> Vec<String> {
    let more = lines.len().saturating_sub(room) + 1;
    if lines.len() > room && room > 0 {
        lines.truncate(room - 1);
        lines.push(format!("… and {more} more {what}"));
    }
    lines.truncate(room);
    lines
}

/// How ranks are known, and a line for each, those that are furthest behind first.
fn ranks(run: &RunView, now: f64) -> (String, Vec<String>) {
    let seen = &run.ranks.seen;
    let since = match run.ranks.from {
        RanksFrom::Nobody => {
            return ("ranks are not known: no `segue launch` hears them".into(), Vec::new());
        }
        RanksFrom::Live => (now - seen.written).max(0.0),
        RanksFrom::Report => 0.0,
    };
    let mut worst: Vec<_> = seen.ranks.iter().collect();
    worst.sort_by_key(|rank| (std::cmp::Reverse(seen.lag(rank)), rank.rank));
    let head = format!(
        "{} of {} ranks of attempt {}{}",
        seen.ranks.len(),
        seen.world_size,
        seen.attempt,
        if run.ranks.from == RanksFrom::Report { ", as it ended" } else { "" }
    );
    let line = |rank: &RankState| {
        let waits = match &rank.waits {
            _ if rank.left => "has ended".into(),
            Some(wait) => format!("waits in {} for {:.1} s", wait.call, wait.seconds),
            None => String::new(),
        };
        let (behind, memory, heard) = (seen.lag(rank), rank.resident >> 20, ago(rank.age_s + since));
        format!(
            "rank {:<4} {:<12} step {} ({behind} behind)  {memory} MiB  heard {heard} ago  {waits}",
            rank.rank, rank.host, rank.step
        )
    };
    (head, worst.into_iter().map(line).collect())
}

/// A number in few columns.
fn short(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if size >= 1e6 || (size > 0.0 && size < 1e-3) => format!("{value:.1e}"),
        _ if value.fract() == 0.0 || size >= 1000.0 => format!("{value:.0}"),
        _ => format!("{value:.4}"),
    }
}

fn ago(seconds: f64) -> String {
    match seconds {
        ..120.0 => format!("{:.0} s", seconds.max(0.0)),
        120.0..7200.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.0} h", seconds / 3600.0),
    }
}

#[cfg(test)]
mod tests;

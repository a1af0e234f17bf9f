//! Rows of dots with horizontal intervals as SVG text: a row for each variant of an ablation.

use super::chart::{BOTTOM, CAP, DOT, PLOT_WIDTH, ROW, TICKS, TOP, draw_legend_entry, draw_x_axis};
use super::statistics::Interval;
use super::svg::{Anchor, Drawing, GRID, Scale, colour, is_shown, text_width};

/// Pixels between the dots of a row.
const SPREAD: f64 = 9.0;

/// Rows of means with their intervals, one dot a row for each series.
#[derive(Debug, Clone, PartialEq)]
pub struct IntervalChart {
    title: String,
    value_label: String,
    series: Vec<String>,
    rows: Vec<(String, Vec<Option<Interval>>)>,
}

impl IntervalChart {
    /// A chart without rows; `series` name the dots of each row.
    pub fn new(title: impl Into<String>, value_label: impl Into<String>, series: &[&str]) -> Self {
        let series = series.iter().map(|label| label.to_string()).collect();
        Self { title: title.into(), value_label: value_label.into(), series, rows: Vec::new() }
    }

    /// The chart with one more row at the bottom: a value for each series, `None` for no dot.
    pub fn with(mut self, label: impl Into<String>, values: Vec<Option<Interval>>) -> Self {
        self.rows.push((label.into(), values));
        self
    }

    /// The chart as an SVG document. The same rows give the same bytes.
    pub fn svg(&self) -> String {
        let left = 28.0 + self.rows.iter().map(|(label, _)| text_width(label)).fold(0.0, f64::max);
        let (right, bottom) = (left + PLOT_WIDTH, TOP + (self.rows.len().max(1) as f64 + 0.5) * ROW);
        let values = || self.rows.iter().flat_map(|(_, values)| values.iter().flatten());
        let x = Scale::new(values().flat_map(ends), TICKS, (left, right));
        let legend = 64.0 + self.series.iter().map(|label| text_width(label)).fold(0.0, f64::max);
        let mut drawing = Drawing::new(right + legend, bottom + BOTTOM);
        for (value, _) in x.ticks() {
            drawing.line((x.at(value), TOP), (x.at(value), bottom), GRID, 1.0);
        }
        draw_x_axis(&mut drawing, &x, (left, right), bottom, &self.value_label);
        for (i, (label, values)) in self.rows.iter().enumerate() {
            let height = TOP + (i as f64 + 0.75) * ROW;
            drawing.text((left - 12.0, height), Anchor::End, label);
            for (series, value) in values.iter().enumerate() {
                let place = series as f64 - (values.len() as f64 - 1.0) / 2.0;
                draw_value(&mut drawing, value.as_ref(), &x, height + SPREAD * place, series);
            }
        }
        for (i, label) in self.series.iter().enumerate() {
            draw_legend_entry(&mut drawing, i, (right, TOP), label);
        }
        drawing.title((left + PLOT_WIDTH / 2.0, TOP / 2.0), &self.title);
        let beyond = |value: &&Interval| ends(value).iter().any(|end| !end.is_nan() && !is_shown(*end));
        drawing.note_left_out(values().filter(beyond).count());
        drawing.finish()
    }
}

fn ends(value: &Interval) -> [f64; 2] {
    let half = value.half_width.unwrap_or(0.0);
    [value.mean - half, value.mean + half]
}

fn draw_value(drawing: &mut Drawing, value: Option<&Interval>, x: &Scale, height: f64, series: usize) {
    let Some(value) = value.filter(|value| ends(value).iter().all(|end| is_shown(*end))) else { return };
    let ([low, high], colour) = (ends(value).map(|end| x.at(end)), colour(series));
    drawing.line((low, height), (high, height), colour, 2.0);
    for end in [low, high] {
        drawing.line((end, height - CAP), (end, height + CAP), colour, 2.0);
    }
    drawing.dot((x.at(value.mean), height), DOT, series);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_has_a_dot_and_a_bar() {
        let interval = |mean| Some(Interval { mean, half_width: Some(1.0), median: mean, count: 3 });
        let chart = IntervalChart::new("t", "ppl", &["init", "best"])
            .with("full <1>", vec![interval(27.0), interval(26.0)])
            .with("broken", vec![interval(f64::NAN), None]);
        let text = chart.svg();
        // Two dots of the row and two of the legend.
        assert_eq!(text.matches("<circle").count(), 4);
        assert!(text.contains("full &lt;1&gt;") && text.contains("broken") && !text.contains("NaN"));
        assert_eq!(text, chart.clone().svg());
        assert!(IntervalChart::new("", "", &[]).svg().ends_with("</svg>\n"));
    }
}

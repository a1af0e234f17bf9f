//! Line charts with error bars, as SVG text. The same values give the same bytes.
//!
//! ```
//! use segue_report::{LineChart, Point, Series};
//!
//! let points = [(1.0, 2.0), (2.0, 3.5)].map(Point::from).to_vec();
//! let chart = LineChart::new("Loss", "step", "nats").with(Series::new("run 1", points));
//! assert!(chart.svg().starts_with("<svg"));
//! ```

use super::svg::{Anchor, Drawing, GRID, INK, Scale, colour, is_shown, text_width};

/// Pixels from side to side of a line chart's axes.
pub(super) const PLOT_WIDTH: f64 = 560.0;
/// Pixels from top to bottom of a line chart's axes.
const PLOT_HEIGHT: f64 = 340.0;
/// Pixels above the axes: title.
pub(super) const TOP: f64 = 44.0;
/// Pixels below the axes: ticks and label.
pub(super) const BOTTOM: f64 = 56.0;
/// Pixels left of a line chart's axes: ticks and label.
const LEFT: f64 = 84.0;
/// Pixels of one row of an interval chart or of a legend.
pub(super) const ROW: f64 = 26.0;
/// Radius of a dot.
pub(super) const DOT: f64 = 3.5;
/// Half the width of the caps of an error bar.
pub(super) const CAP: f64 = 4.0;
/// Steps between ticks, about.
pub(super) const TICKS: usize = 6;

/// One point of a series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Place on the x axis.
    pub x: f64,
    /// Place on the y axis. A point that is not a number, or beyond what an axis can show, interrupts the line.
    pub y: f64,
    /// Ends of the error bar on the y axis.
    pub interval: Option<(f64, f64)>,
}

impl From<(f64, f64)> for Point {
    fn from((x, y): (f64, f64)) -> Self {
        Self { x, y, interval: None }
    }
}

impl Point {
    fn is_shown(&self) -> bool {
        is_shown(self.x) && is_shown(self.y)
    }

    /// Whether there is something that cannot be shown.
    fn is_left_out(&self) -> bool {
        let (low, high) = self.interval.unwrap_or((self.y, self.y));
        [self.x, self.y, low, high].into_iter().any(|value| !value.is_nan() && !is_shown(value))
    }
}

/// A named line.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Name in the legend.
    pub label: String,
    /// In the order they are joined.
    pub points: Vec<Point>,
}

impl Series {
    /// A line through these points.
    pub fn new(label: impl Into<String>, points: Vec<Point>) -> Self {
        Self { label: label.into(), points }
    }
}

/// Lines over a common x axis, with a legend where there is more than one.
#[derive(Debug, Clone, PartialEq)]
pub struct LineChart {
    title: String,
    x_label: String,
    y_label: String,
    series: Vec<Series>,
    dots: bool,
    logarithmic: bool,
}

impl LineChart {
    /// A chart without lines.
    pub fn new(title: impl Into<String>, x_label: impl Into<String>, y_label: impl Into<String>) -> Self {
        let (title, x_label, y_label) = (title.into(), x_label.into(), y_label.into());
        Self { title, x_label, y_label, series: Vec::new(), dots: true, logarithmic: false }
    }

    /// The chart with lines alone: points are so many that dots would hide them.
    pub fn without_dots(self) -> Self {
        Self { dots: false, ..self }
    }

    /// The chart with a logarithmic x axis: points at or left of 0 are left out.
    pub fn with_logarithmic_x(self) -> Self {
        Self { logarithmic: true, ..self }
    }

    /// The chart with one more line.
    pub fn with(mut self, series: Series) -> Self {
        self.series.push(series);
        self
    }

    /// The chart as an SVG document.
    pub fn svg(&self) -> String {
        match self.logarithmic {
            true => self.by_logarithms().drawn(),
            false => self.drawn(),
        }
    }

    /// The chart with the decimal logarithms of its places on the x axis.
    fn by_logarithms(&self) -> Self {
        let mut chart = self.clone();
        let points = chart.series.iter_mut().flat_map(|series| &mut series.points);
        // The logarithm of 0 is left out as what no axis can show.
        points.for_each(|point| point.x = point.x.log10());
        chart
    }

    fn drawn(&self) -> String {
        let all = || self.series.iter().flat_map(|s| &s.points);
        let points = || all().filter(|p| p.is_shown());
        let heights = points().flat_map(|p| {
            let (low, high) = p.interval.unwrap_or((p.y, p.y));
            [p.y, low, high]
        });
        let x = Scale::new(points().map(|p| p.x), TICKS, (LEFT, LEFT + PLOT_WIDTH));
        let x = if self.logarithmic { x.of_logarithms() } else { x };
        let y = Scale::new(heights, TICKS, (TOP + PLOT_HEIGHT, TOP));
        let height = legend_end(self.series.len()).max(TOP + PLOT_HEIGHT + BOTTOM);
        let mut drawing = Drawing::new(LEFT + PLOT_WIDTH + self.legend_width(), height);
        self.draw_axes(&mut drawing, &x, &y);
        for (i, series) in self.series.iter().enumerate() {
            draw_series(&mut drawing, series, (i, self.dots), &x, &y);
        }
        self.draw_legend(&mut drawing);
        drawing.note_left_out(all().filter(|p| p.is_left_out()).count());
        drawing.finish()
    }

    fn legend_width(&self) -> f64 {
        let widest = self.series.iter().map(|s| text_width(&s.label)).fold(0.0, f64::max);
        if self.series.len() > 1 { widest + 64.0 } else { 24.0 }
    }

    fn draw_axes(&self, drawing: &mut Drawing, x: &Scale, y: &Scale) {
        let (right, bottom) = (LEFT + PLOT_WIDTH, TOP + PLOT_HEIGHT);
        for (value, label) in y.ticks() {
            drawing.line((LEFT, y.at(value)), (right, y.at(value)), GRID, 1.0);
            drawing.text((LEFT - 8.0, y.at(value)), Anchor::End, &label);
        }
        draw_x_axis(drawing, x, (LEFT, right), bottom, &self.x_label);
        drawing.line((LEFT, TOP), (LEFT, bottom), INK, 1.0);
        drawing.upright((18.0, TOP + PLOT_HEIGHT / 2.0), Anchor::Middle, &self.y_label);
        drawing.title((LEFT + PLOT_WIDTH / 2.0, TOP / 2.0), &self.title);
    }

    fn draw_legend(&self, drawing: &mut Drawing) {
        if self.series.len() < 2 {
            return;
        }
        for (i, series) in self.series.iter().enumerate() {
            draw_legend_entry(drawing, i, (LEFT + PLOT_WIDTH, TOP), &series.label);
        }
    }
}

fn draw_series(drawing: &mut Drawing, series: &Series, (i, dots): (usize, bool), x: &Scale, y: &Scale) {
    let colour = colour(i);
    for stretch in series.points.split(|p| !p.is_shown()) {
        let line: Vec<(f64, f64)> = stretch.iter().map(|p| (x.at(p.x), y.at(p.y))).collect();
        if line.len() > 1 {
            drawing.polyline(&line, i);
        }
        for (point, at) in stretch.iter().zip(line) {
            if dots {
                drawing.dot(at, DOT, i);
            }
            if let Some((low, high)) = point.interval.filter(|(low, high)| is_shown(*low) && is_shown(*high))
            {
                let (low, high) = (y.at(low), y.at(high));
                drawing.line((at.0, low), (at.0, high), colour, 1.5);
                for end in [low, high] {
                    drawing.line((at.0 - CAP, end), (at.0 + CAP, end), colour, 1.5);
                }
            }
        }
    }
}

/// Entry `i` of the legend whose corner is `origin`.
pub(super) fn draw_legend_entry(drawing: &mut Drawing, i: usize, origin: (f64, f64), label: &str) {
    let (left, height) = (origin.0 + 18.0, origin.1 + 12.0 + i as f64 * ROW);
    drawing.polyline(&[(left, height), (left + 22.0, height)], i);
    drawing.dot((left + 11.0, height), DOT, i);
    drawing.text((left + 30.0, height), Anchor::Start, label);
}

/// The height that a chart needs for the entries of a legend that begins at its top.
pub(super) fn legend_end(entries: usize) -> f64 {
    TOP + entries as f64 * ROW
}

pub(super) fn draw_x_axis(drawing: &mut Drawing, x: &Scale, sides: (f64, f64), bottom: f64, label: &str) {
    for (value, tick) in x.ticks() {
        drawing.line((x.at(value), bottom), (x.at(value), bottom + 5.0), INK, 1.0);
        drawing.text((x.at(value), bottom + 16.0), Anchor::Middle, &tick);
    }
    drawing.line((sides.0, bottom), (sides.1, bottom), INK, 1.0);
    drawing.text(((sides.0 + sides.1) / 2.0, bottom + 40.0), Anchor::Middle, label);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(text: &str, part: &str) -> usize {
        text.matches(part).count()
    }

    #[test]
    fn every_point_is_drawn_and_a_missing_one_interrupts_the_line() {
        let points = [(0.0, 1.0), (1.0, 2.0), (2.0, f64::NAN), (3.0, 1.5), (4.0, 1.0)].map(Point::from);
        let chart = LineChart::new("t", "x", "y").with(Series::new("a <b>", points.to_vec()));
        let one = chart.svg();
        assert_eq!((count(&one, "<circle"), count(&one, "<polyline")), (4, 2));
        assert!(!one.contains("NaN"));
        let two = chart
            .clone()
            .with(Series::new("c", vec![Point { interval: Some((0.0, 2.0)), ..(1.0, 1.0).into() }]));
        // Five points and two of the legend; the legend escapes its labels.
        assert_eq!(count(&two.svg(), "<circle"), 7);
        assert!(two.svg().contains("a &lt;b&gt;"));
        assert_eq!(two.svg(), two.clone().svg());
        // Those of the legend are left.
        assert_eq!(count(&two.without_dots().svg(), "<circle"), 2);
    }

    #[test]
    fn what_no_axis_can_show_is_left_out_and_said() {
        let points =
            [(0.0, 1.0), (1.0, f64::MAX), (2.0, -f64::MAX), (3.0, f64::NAN), (4.0, 2.0)].map(Point::from);
        let mut points = points.to_vec();
        points.push(Point { interval: Some((1.0, f64::INFINITY)), ..(5.0, 1.5).into() });
        let text = LineChart::new("t", "x", "y").with(Series::new("a", points)).svg();
        // What is not a number is not there.
        assert!(text.contains("3 values left out"), "{text}");
        assert_eq!(count(&text, "<circle"), 3);
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }

    /// What follows `before` in a line, up to a quotation mark.
    fn attribute<'a>(line: &'a str, before: &str) -> &'a str {
        line.split_once(before).map_or("", |(_, rest)| rest.split('"').next().unwrap())
    }

    #[test]
    fn many_lines_have_a_legend_within_the_picture_and_look_different() {
        let line = |i: u32| {
            let points = [(0.0, f64::from(i)), (1.0, f64::from(i))].map(Point::from).to_vec();
            Series::new(format!("line {i}"), points)
        };
        let chart = (0..20).fold(LineChart::new("t", "x", "y"), |chart, i| chart.with(line(i)));
        let text = chart.svg();
        let height: f64 = attribute(&text, "height=\"").parse().unwrap();
        let texts = text.lines().filter(|line| line.starts_with("<text"));
        let lowest = texts.map(|line| attribute(line, " y=\"").parse().unwrap()).fold(0.0, f64::max);
        assert!(text.contains(">line 19<") && lowest + ROW / 2.0 <= height, "{lowest} of {height}");
        let lines = text.lines().filter(|line| line.starts_with("<polyline"));
        let looks: Vec<_> =
            lines.map(|line| (attribute(line, "stroke=\""), attribute(line, "dasharray=\""))).collect();
        // Each line and, in the order of the lines, its entry in the legend.
        assert_eq!((looks.len(), &looks[..20]), (40, &looks[20..]));
        assert_eq!(looks.into_iter().collect::<std::collections::BTreeSet<_>>().len(), 20);
    }

    /// A decade takes as much of a logarithmic axis wherever it is, and its ends have the labels of powers of ten.
    #[test]
    fn a_logarithmic_axis_is_even_in_its_decades() {
        let points = [(0.0, 9.0), (1e-5, 0.0), (1e-3, 2.0), (0.1, 10.0)].map(Point::from).to_vec();
        let chart = LineChart::new("t", "x", "y").with(Series::new("a", points)).with_logarithmic_x();
        let text = chart.svg();
        assert!(text.contains(r#"points="84.0,384.0 364.0,316.0 644.0,44.0""#), "{text}");
        for label in [">1e-5<", ">1e-3<", ">1e-1<", "1 value left out"] {
            assert!(text.contains(label), "{label}: {text}");
        }
    }

    #[test]
    fn points_lie_where_the_ticks_say() {
        let chart = LineChart::new("t", "x", "y")
            .with(Series::new("a", [(0.0, 0.0), (10.0, 10.0)].map(Point::from).to_vec()));
        let text = chart.svg();
        // The corners of the axes.
        assert!(text.contains(r#"points="84.0,384.0 644.0,44.0""#), "{text}");
    }
}

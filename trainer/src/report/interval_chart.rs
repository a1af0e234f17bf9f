//! The figure of a sweep: a line for each cell, perplexity at training length and at the best length with
//! their intervals.

use super::ablation::Row;
use super::statistics::Interval;

/// Pixels for the labels at the left.
const LABELS: f64 = 300.0;
/// Pixels for the values.
const PLOT: f64 = 480.0;
/// Pixels of one row.
const ROW: f64 = 30.0;
/// Pixels above the rows.
const TOP: f64 = 40.0;
/// Pixels below the rows, for the axis.
const BOTTOM: f64 = 50.0;
/// Ticks, about.
const TICKS: f64 = 6.0;
/// Colours of `init` and `best`.
const COLOURS: [&str; 2] = ["#8a8f98", "#1f5fa8"];

/// The chart as SVG text. The same rows give the same bytes.
pub fn interval_chart(title: &str, rows: &[Row]) -> String {
    let shown: Vec<Interval> = rows.iter().flat_map(|row| [row.init, row.best]).flatten().collect();
    let ends = |i: &Interval| [i.mean - i.half_width.unwrap_or(0.0), i.mean + i.half_width.unwrap_or(0.0)];
    let low = shown.iter().flat_map(ends).fold(f64::INFINITY, f64::min);
    let high = shown.iter().flat_map(ends).fold(f64::NEG_INFINITY, f64::max);
    let (low, high) = match (low, high) {
        (low, high) if low < high => (low, high),
        (one, _) if one.is_finite() => (one - 0.5, one + 0.5),
        _ => (0.0, 1.0),
    };
    let margin = (high - low) * 0.04;
    let scale = Scale { low: low - margin, high: high + margin };
    let (width, height) = (LABELS + PLOT + 30.0, TOP + ROW * rows.len() as f64 + BOTTOM);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"10\" y=\"22\" font-size=\"15\">{}</text>\n",
        escaped(title)
    );
    axis(&mut svg, &scale, rows.len());
    for (i, row) in rows.iter().enumerate() {
        let y = TOP + ROW * (i as f64 + 0.5);
        svg.push_str(&format!(
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n",
            LABELS - 10.0,
            y + 4.0,
            escaped(&row.label)
        ));
        for ((interval, colour), offset) in [row.init, row.best].iter().zip(COLOURS).zip([-5.0, 5.0]) {
            if let Some(interval) = interval {
                dot(&mut svg, &scale, interval, y + offset, colour);
            }
        }
    }
    legend(&mut svg, height);
    svg + "</svg>\n"
}

struct Scale {
    low: f64,
    high: f64,
}

impl Scale {
    fn x(&self, value: f64) -> f64 {
        LABELS + PLOT * (value - self.low) / (self.high - self.low)
    }

    /// Distance between ticks: 1, 2 or 5 times a power of ten.
    fn step(&self) -> f64 {
        let rough = (self.high - self.low) / TICKS;
        let power = 10f64.powf(rough.log10().floor());
        let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|f| f * power >= rough);
        factor.unwrap_or(10.0) * power
    }
}

fn axis(svg: &mut String, scale: &Scale, rows: usize) {
    let (step, bottom) = (scale.step(), TOP + ROW * rows as f64);
    let decimals = (-step.log10().floor()).max(0.0) as usize;
    let first = (scale.low / step).ceil() as i64;
    let last = (scale.high / step).floor() as i64;
    for tick in first..=last {
        let value = tick as f64 * step;
        let x = scale.x(value);
        svg.push_str(&format!(
            "<line x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{bottom}\" stroke=\"#dddddd\"/>\n\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{value:.decimals$}</text>\n",
            bottom + 16.0
        ));
    }
}

fn dot(svg: &mut String, scale: &Scale, interval: &Interval, y: f64, colour: &str) {
    let x = scale.x(interval.mean);
    if let Some(half) = interval.half_width {
        let (from, to) = (scale.x(interval.mean - half), scale.x(interval.mean + half));
        svg.push_str(&format!(
            "<line x1=\"{from:.1}\" y1=\"{y:.1}\" x2=\"{to:.1}\" y2=\"{y:.1}\" stroke=\"{colour}\" \
             stroke-width=\"2\"/>\n"
        ));
    }
    svg.push_str(&format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{colour}\"/>\n"));
}

fn legend(svg: &mut String, height: f64) {
    let y = height - 12.0;
    for ((name, colour), x) in
        ["perplexity at the training length", "at the best length"].iter().zip(COLOURS).zip([0.0, 220.0])
    {
        svg.push_str(&format!(
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.5\" fill=\"{colour}\"/>\n\
             <text x=\"{:.1}\" y=\"{y:.1}\">{name}</text>\n",
            LABELS + x,
            y - 4.0,
            LABELS + x + 8.0
        ));
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(label: &str, mean: Option<f64>) -> Row {
        let interval = mean.map(|mean| Interval { mean, half_width: Some(1.0), count: 3 });
        Row {
            label: label.into(),
            init: interval,
            best: interval,
            attention: None,
            lengths: Default::default(),
            published: Default::default(),
        }
    }

    #[test]
    fn each_result_has_a_dot_inside_the_plot() {
        let rows = [row("a & b", Some(27.0)), row("c", Some(31.5)), row("failed", None)];
        let svg = interval_chart("Test", &rows);
        let dots: Vec<f64> = svg
            .lines()
            .filter(|line| line.starts_with("<circle"))
            .map(|line| line.split('"').nth(1).unwrap().parse().unwrap())
            .collect();
        assert_eq!(dots.len(), 2 * 2 + 2);
        assert!(dots.iter().all(|x| (LABELS..=LABELS + PLOT).contains(x)), "{dots:?}");
        assert!(dots[0] < dots[2] && svg.contains("a &amp; b"));
        assert!(interval_chart("Nothing", &[]).ends_with("</svg>\n"));
    }
}

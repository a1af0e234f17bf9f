//! Shared parts of charts: escaped text, ticks, linear scales, SVG elements.

use std::fmt::Write;

use segue_configs::counted;

/// Font of all text.
const FONT: &str = "Helvetica, Arial, sans-serif";
/// Size of labels, in pixels.
const FONT_PIXELS: f64 = 12.0;
/// Width of a letter of a label, in pixels: an estimate that is rather too wide.
const LETTER_PIXELS: f64 = 6.8;
/// Colours that people with any colour vision tell apart (Okabe and Ito 2008), darkest first.
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"];
/// Dashes of lines that have one colour in common, in pixels; the first is drawn through.
const DASHES: [&str; 4] = ["", "8 4", "2 3", "8 3 2 3"];
/// Corners of their dots, in radii from the middle; a circle has none.
const CORNERS: [&[(f64, f64)]; DASHES.len()] = [
    &[],
    &[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
    &[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)],
    &[(0.0, -1.2), (1.2, 1.0), (-1.2, 1.0)],
];
/// Colour of axes and text.
pub(super) const INK: &str = "#333333";
/// Colour of grid lines.
pub(super) const GRID: &str = "#e4e4e4";

/// Largest size of a value that an axis can show: differences of such values are numbers too.
const MOST_SHOWN: f64 = 1e280;
/// Smallest difference of values that an axis has ticks for; of their own size, where that is more.
const LEAST_SHOWN: f64 = 1.0 / MOST_SHOWN;
const LEAST_SHOWN_OF_SIZE: f64 = 1e-12;

/// Whether an axis can show a value.
pub(super) fn is_shown(value: f64) -> bool {
    value.abs() <= MOST_SHOWN
}

/// Colour of series `i`.
pub(super) fn colour(i: usize) -> &'static str {
    COLOURS[i % COLOURS.len()]
}

/// Which dashes and dots series `i` has: other ones than those before it that have its colour, up to the 28th.
fn variant(i: usize) -> usize {
    i / COLOURS.len() % DASHES.len()
}

/// Where a text is held.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// Pixels that a label is wide, about.
pub(super) fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * LETTER_PIXELS
}

/// An SVG document in the making. Coordinates are pixels from the upper left corner.
pub(super) struct Drawing {
    width: f64,
    height: f64,
    body: String,
}

impl Drawing {
    /// An empty sheet.
    pub(super) fn new(width: f64, height: f64) -> Self {
        Self { width, height, body: String::new() }
    }

    /// A straight line.
    pub(super) fn line(&mut self, from: (f64, f64), to: (f64, f64), colour: &str, width: f64) {
        self.push(format_args!(
            r#"<line x1="{:.1}" y1="{:.1}" x2="{:.1}" y2="{:.1}" stroke="{colour}" stroke-width="{width}"/>"#,
            from.0, from.1, to.0, to.1
        ));
    }

    /// A line of series `i` through all points.
    pub(super) fn polyline(&mut self, points: &[(f64, f64)], i: usize) {
        let dashes = match DASHES[variant(i)] {
            "" => String::new(),
            dashes => format!(r#" stroke-dasharray="{dashes}""#),
        };
        self.push(format_args!(
            r#"<polyline points="{}" fill="none" stroke="{}" stroke-width="2" stroke-linejoin="round"{dashes}/>"#,
            coordinates(points),
            colour(i)
        ));
    }

    /// A filled dot of series `i`.
    pub(super) fn dot(&mut self, at: (f64, f64), radius: f64, i: usize) {
        let ((x, y), colour) = (at, colour(i));
        match CORNERS[variant(i)] {
            [] => {
                self.push(format_args!(r#"<circle cx="{x:.1}" cy="{y:.1}" r="{radius}" fill="{colour}"/>"#))
            }
            corners => {
                let corners: Vec<_> =
                    corners.iter().map(|(right, down)| (x + radius * right, y + radius * down)).collect();
                self.push(format_args!(r#"<polygon points="{}" fill="{colour}"/>"#, coordinates(&corners)));
            }
        }
    }

    /// Filled rectangles of one colour: left, top, width and height of each.
    pub(super) fn blocks(&mut self, blocks: &[[f64; 4]], colour: &str) {
        let path: Vec<String> = blocks
            .iter()
            .map(|[x, y, width, height]| format!("M{x:.1} {y:.1}h{width:.1}v{height:.1}h-{width:.1}z"))
            .collect();
        self.push(format_args!(r#"<path d="{}" fill="{colour}"/>"#, path.concat()));
    }

    /// A text, its middle at the height of `at`.
    pub(super) fn text(&mut self, at: (f64, f64), anchor: Anchor, text: &str) {
        self.write_text(at, anchor, FONT_PIXELS, "", text);
    }

    /// The heading.
    pub(super) fn title(&mut self, at: (f64, f64), text: &str) {
        self.write_text(at, Anchor::Middle, FONT_PIXELS + 3.0, r#" font-weight="bold""#, text);
    }

    /// A text that reads upwards.
    pub(super) fn upright(&mut self, at: (f64, f64), anchor: Anchor, text: &str) {
        let turn = format!(r#" transform="rotate(-90 {:.1} {:.1})""#, at.0, at.1);
        self.write_text(at, anchor, FONT_PIXELS, &turn, text);
    }

    fn write_text(&mut self, at: (f64, f64), anchor: Anchor, size: f64, more: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        self.push(format_args!(
            r#"<text x="{:.1}" y="{:.1}" font-size="{size}" text-anchor="{anchor}" dominant-baseline="middle" fill="{INK}"{more}>{}</text>"#,
            at.0,
            at.1,
            escaped(text)
        ));
    }

    /// Says at the bottom how many values are left out, where there are any.
    pub(super) fn note_left_out(&mut self, values: usize) {
        if values > 0 {
            let note = format!("{} left out: beyond what the axis shows", counted(values, "value"));
            self.text((8.0, self.height - 10.0), Anchor::Start, &note);
        }
    }

    fn push(&mut self, element: std::fmt::Arguments) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.body, "{element}");
    }

    /// The whole document.
    pub(super) fn finish(self) -> String {
        let Self { width, height, body } = self;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"{FONT}\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{body}</svg>\n"
        )
    }
}

/// Points as elements list them.
fn coordinates(points: &[(f64, f64)]) -> String {
    points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect::<Vec<_>>().join(" ")
}

/// Text as XML holds it. Characters that XML cannot hold become U+FFFD.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\t' | '\n' | '\r' => out.push(' '),
            '\0'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// A linear map from values to pixels, with ticks at round numbers.
pub(super) struct Scale {
    low: f64,
    high: f64,
    pixels: (f64, f64),
    step: f64,
    /// Whether values are decimal logarithms of what labels say.
    logarithms: bool,
}

impl Scale {
    /// Covers `values` (those that can be shown) with about `ticks` steps, from pixel `pixels.0` to `pixels.1`.
    pub(super) fn new(values: impl Iterator<Item = f64>, ticks: usize, pixels: (f64, f64)) -> Self {
        let (low, high) = values
            .filter(|v| is_shown(*v))
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
        let size = low.abs().max(high.abs());
        let are_one = high - low <= f64::max(LEAST_SHOWN_OF_SIZE * size, LEAST_SHOWN);
        let (low, high) = match (low.is_finite(), are_one) {
            (false, _) => (0.0, 1.0),
            (true, true) => (low - 0.5 * low.abs().max(1.0), high + 0.5 * high.abs().max(1.0)),
            (true, false) => (low, high),
        };
        let step = nice_step((high - low) / ticks.max(1) as f64);
        let (low, high) = ((low / step).floor() * step, (high / step).ceil() * step);
        Self { low, high, pixels, step, logarithms: false }
    }

    /// The same where values are decimal logarithms: labels are the powers of ten.
    pub(super) fn of_logarithms(self) -> Self {
        Self { logarithms: true, ..self }
    }

    /// The pixel of a value.
    pub(super) fn at(&self, value: f64) -> f64 {
        let share = (value - self.low) / (self.high - self.low);
        self.pixels.0 + share * (self.pixels.1 - self.pixels.0)
    }

    /// Tick values with their labels.
    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        let decimals = (-self.step.log10().floor()).clamp(0.0, 12.0) as usize;
        let count = ((self.high - self.low) / self.step).round() as usize;
        (0..=count)
            .map(|i| {
                let value = self.low + i as f64 * self.step;
                // A sum of steps may miss zero by a rounding error.
                let value = if value.abs() < self.step * 1e-9 { 0.0 } else { value };
                let label = match self.logarithms {
                    true => power_label(value, decimals),
                    false => tick_label(value, decimals),
                };
                (value, label)
            })
            .collect()
    }
}

/// Sizes of numbers with all their digits in labels.
const WRITTEN_OUT: std::ops::Range<f64> = 1e-12..1e15;

/// The number with thousands set apart, and with `decimals` digits after the point.
fn tick_label(value: f64, decimals: usize) -> String {
    let sign = if value < 0.0 { "−" } else { "" };
    if value != 0.0 && !WRITTEN_OUT.contains(&value.abs()) {
        return format!("{sign}{:.3e}", value.abs());
    }
    let plain = format!("{:.decimals$}", value.abs());
    let (whole, rest) = plain.split_at(plain.find('.').unwrap_or(plain.len()));
    let mut out = String::from(sign);
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out + rest
}

/// Ten to the power `exponent`, which has `decimals` digits after the point, to as many digits.
fn power_label(exponent: f64, decimals: usize) -> String {
    format!("{:.decimals$e}", 10f64.powf(exponent))
}

/// The nearest of 1, 2, 5 times a power of ten that is not below `rough`.
fn nice_step(rough: f64) -> f64 {
    let power = 10f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|f| f * power >= rough * (1.0 - 1e-9)).unwrap_or(10.0);
    factor * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_numbers_that_cover_the_values() {
        let labels = |values: &[f64]| -> Vec<String> {
            let scale = Scale::new(values.iter().copied(), 5, (0.0, 1.0));
            scale.ticks().into_iter().map(|(_, label)| label).collect()
        };
        assert_eq!(labels(&[3.0, 97.0]), ["0", "20", "40", "60", "80", "100"]);
        assert_eq!(labels(&[-0.02, 0.03, f64::NAN]), ["−0.02", "−0.01", "0.00", "0.01", "0.02", "0.03"]);
        assert_eq!(labels(&[1200.0, 3800.0]), ["1,000", "2,000", "3,000", "4,000"]);
        assert!(!labels(&[]).is_empty() && !labels(&[7.0]).is_empty());
    }

    #[test]
    fn whatever_values_there_are_have_few_ticks_within_the_scale() {
        let sizes = [0.0, 5e-324, 1e-310, 1e-300, 1e-3, 1e16, 1e16 + 2.0, 1e280, f64::MAX, f64::INFINITY];
        let values: Vec<f64> = sizes.into_iter().flat_map(|size| [size, -size]).chain([f64::NAN]).collect();
        for one in &values {
            for other in &values {
                let scale = Scale::new([*one, *other].into_iter(), 6, (100.0, 0.0));
                let ticks = scale.ticks();
                assert!((2..=9).contains(&ticks.len()), "{one} {other}: {ticks:?}");
                assert!(ticks.iter().all(|(_, label)| label.len() < 24), "{one} {other}: {ticks:?}");
                let values = [*one, *other].into_iter().filter(|value| is_shown(*value));
                for value in values.chain(ticks.into_iter().map(|(value, _)| value)) {
                    let at = scale.at(value);
                    assert!((-1e-6..=100.0 + 1e-6).contains(&at), "{one} {other}: {value} at {at}");
                }
            }
        }
    }

    #[test]
    fn markup_in_text_stays_text() {
        assert_eq!(escaped("a<b> & \"c\"\n\u{1}"), "a&lt;b&gt; &amp; &quot;c&quot; \u{fffd}");
    }
}

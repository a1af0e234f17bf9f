//! Points of a plane in the colours of their groups, as SVG text.

use super::chart::{TOP, draw_legend_entry, legend_end};
use super::svg::{Drawing, GRID, Scale, is_shown, text_width};

/// Pixels of the plane's sides.
const SIDE: f64 = 560.0;
/// Pixels left of the plane, and below it.
const MARGIN: f64 = 20.0;
/// Radius of a point, in pixels.
const RADIUS: f64 = 2.5;
/// Steps of the scales, which are not drawn: what maps of points keep is who is near whom.
const STEPS: usize = 8;

/// Points with a group each.
#[derive(Debug, Clone, PartialEq)]
pub struct ScatterChart {
    title: String,
    groups: Vec<String>,
    points: Vec<([f64; 2], usize)>,
}

impl ScatterChart {
    /// A chart without points; `groups` name the colours.
    pub fn new(title: impl Into<String>, groups: Vec<String>) -> Self {
        Self { title: title.into(), groups, points: Vec::new() }
    }

    /// The chart with one more point, of the group of that number.
    pub fn with(mut self, at: [f64; 2], group: usize) -> Self {
        self.points.push((at, group));
        self
    }

    /// The chart as an SVG document. The same points give the same bytes; what cannot be shown is left out, and said to be.
    pub fn svg(&self) -> String {
        let (right, bottom) = (MARGIN + SIDE, TOP + SIDE);
        let along = |axis: usize| self.points.iter().map(move |(at, _)| at[axis]);
        let x = Scale::new(along(0), STEPS, (MARGIN, right));
        let y = Scale::new(along(1), STEPS, (bottom, TOP));
        let legend = 64.0 + self.groups.iter().map(|group| text_width(group)).fold(0.0, f64::max);
        let height = legend_end(self.groups.len()).max(bottom + MARGIN);
        let mut drawing = Drawing::new(right + legend, height);
        for (from, to) in [((MARGIN, TOP), (right, TOP)), ((MARGIN, bottom), (right, bottom))] {
            drawing.line(from, to, GRID, 1.0);
        }
        for side in [MARGIN, right] {
            drawing.line((side, TOP), (side, bottom), GRID, 1.0);
        }
        let shown = || self.points.iter().filter(|(at, _)| at.iter().all(|value| is_shown(*value)));
        for ([a, b], group) in shown() {
            drawing.dot((x.at(*a), y.at(*b)), RADIUS, *group);
        }
        for (group, label) in self.groups.iter().enumerate() {
            draw_legend_entry(&mut drawing, group, (right, TOP), label);
        }
        drawing.title((MARGIN + SIDE / 2.0, TOP / 2.0), &self.title);
        drawing.note_left_out(self.points.len() - shown().count());
        drawing.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_point_is_a_dot_of_its_group() {
        let chart = ScatterChart::new("t", vec!["a <1>".into(), "b".into()])
            .with([0.0, 1.0], 0)
            .with([2.0, -1.0], 1)
            .with([f64::NAN, 0.0], 1);
        let text = chart.svg();
        // Two points and two entries of the legend.
        assert_eq!(text.matches("<circle").count(), 4);
        assert!(text.contains("a &lt;1&gt;") && !text.contains("NaN") && text.contains("1 value left out"));
        assert_eq!(text, chart.svg());
    }

    #[test]
    fn groups_of_one_colour_have_other_dots_and_all_of_them_a_place_in_the_legend() {
        let groups: Vec<String> = (0..30).map(|group| format!("group {group}")).collect();
        let text = ScatterChart::new("t", groups).with([0.0, 0.0], 0).with([1.0, 1.0], 7).svg();
        let dots = |kind: &str| text.lines().filter(|line| line.starts_with(kind)).count();
        // Of groups 0 to 6, of 28 and 29, which nothing tells from 0 and 1, and a point; of the others, and a point.
        assert_eq!((dots("<circle"), dots("<polygon")), (7 + 2 + 1, 21 + 1));
        // The entry of the last group is 12 pixels and 29 rows of 26 below the top of the plane, at 44.
        assert!(text.contains(r#"y="810.0""#) && text.contains(r#"height="824""#), "{text}");
    }
}

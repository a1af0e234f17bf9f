//! Pictures of a discriminator of the plane, as SVG text, and what can be counted in them.

use std::collections::BTreeMap;
use std::fmt::Write;

use segue_configs::counted;
use segue_report::ScatterChart;

use super::sets::{Bounds, Points};

/// What a discriminator makes of the centre of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cell {
    /// The class with the largest logit.
    pub class: u16,
    /// Whether the cell is seen as generated.
    pub is_fake: bool,
}

/// The fraction of cells at a class boundary that are seen as generated; NaN where there is no boundary. A cell is at one if a cell beside, above or below it is of
/// another class. `cells`: `side` × `side`, in the order of [`Bounds::centres`].
pub fn fake_share_on_boundary(cells: &[Cell], side: usize) -> f64 {
    let class = |row: usize, column: usize| {
        (row < side && column < side).then(|| cells.get(row * side + column).map(|cell| cell.class)).flatten()
    };
    let is_at_boundary = |(place, cell): &(usize, &Cell)| {
        let (row, column) = (place / side, place % side);
        // A row or column before the first wraps to a number that is beyond the last.
        [(row.wrapping_sub(1), column), (row + 1, column), (row, column.wrapping_sub(1)), (row, column + 1)]
            .into_iter()
            .filter_map(|(row, column)| class(row, column))
            .any(|class| class != cell.class)
    };
    let boundary: Vec<Cell> =
        cells.iter().enumerate().filter(is_at_boundary).map(|(_, cell)| *cell).collect();
    boundary.iter().filter(|cell| cell.is_fake).count() as f64 / boundary.len() as f64
}

/// Colours of classes, for any colour vision (Okabe and Ito 2008).
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];
/// Colour of text, of crosses and of generated points.
const INK: &str = "#222222";
/// Opacity of cells that are seen as real, and of those seen as generated.
const OPACITY: [f64; 2] = [0.6, 0.2];
/// Sides of the plane, in pixels, that cells are made to fit; a cell has whole pixels, so that no gaps show between two.
const SIDE: usize = 600;
/// Pixels around the plane; above it, the title.
const MARGIN: f64 = 20.0;
const TOP: f64 = 44.0;
/// Width of the legend, and height of its lines, in pixels.
const LEGEND: f64 = 190.0;
const LINE: f64 = 22.0;
/// Radii of a data point and of a generated one, and half the size of a cross, in pixels.
const DATA: f64 = 1.6;
const GENERATED: f64 = 1.0;
const CROSS: f64 = 6.0;

fn colour(class: u16) -> &'static str {
    COLOURS[usize::from(class) % COLOURS.len()]
}

/// The plane with a discriminator's classes and what it sees as generated, with points on it.
#[derive(Debug, Clone, Copy)]
pub struct BoundaryPicture<'a> {
    /// Heading.
    pub title: &'a str,
    /// The part of the plane that is shown; points outside are counted in the legend.
    pub bounds: Bounds,
    /// Number of cells along each side.
    pub side: usize,
    /// `side` × `side` cells, in the order of [`Bounds::centres`].
    pub cells: &'a [Cell],
    /// Data, dots in the colours of their classes.
    pub data: &'a Points,
    /// Those with labels, crosses.
    pub labelled: &'a Points,
    /// Generated points, small dots.
    pub generated: &'a [[f32; 2]],
}

impl BoundaryPicture<'_> {
    /// The picture as an SVG document. The same values give the same bytes.
    pub fn svg(&self) -> String {
        let plane = self.cell_pixels() * self.side as f64;
        let classes = self.data.class_count.max(self.labelled.class_count);
        let lines = 2 * usize::from(classes) + 4;
        let size = (plane + 2.0 * MARGIN + LEGEND, TOP + MARGIN + plane.max(lines as f64 * LINE));
        let mut drawing = Drawing::default();
        self.draw_cells(&mut drawing);
        let left_out = self.draw_points(&mut drawing);
        drawing.text((MARGIN, TOP / 2.0), 15, self.title);
        draw_legend(&mut drawing, MARGIN + plane + MARGIN, classes, left_out);
        drawing.finish(size)
    }

    /// Whole pixels of a cell.
    fn cell_pixels(&self) -> f64 {
        (SIDE / self.side.max(1)).max(1) as f64
    }

    /// One path for each class, real and generated, with a block for each run of like cells in a row.
    fn draw_cells(&self, drawing: &mut Drawing) {
        let pixels = self.cell_pixels();
        let mut paths: BTreeMap<Cell, String> = BTreeMap::new();
        for (row, cells) in self.cells.chunks(self.side.max(1)).take(self.side).enumerate() {
            let top = TOP + pixels * (self.side - 1 - row) as f64;
            let mut from = 0;
            for run in cells.chunk_by(|a, b| a == b) {
                let (left, width) = (MARGIN + pixels * from as f64, pixels * run.len() as f64);
                // Writing to a string cannot fail.
                let _ = write!(paths.entry(run[0]).or_default(), "M{left} {top}h{width}v{pixels}h-{width}z");
                from += run.len();
            }
        }
        for (cell, path) in paths {
            let style = format!(r#"shape-rendering="crispEdges" {}"#, fill(cell));
            drawing.push(format_args!(r#"<path d="{path}" {style}/>"#));
        }
    }

    /// Draws what lies within the bounds, and returns how many points do not.
    fn draw_points(&self, drawing: &mut Drawing) -> usize {
        let mut left_out = 0;
        let mut place = |point: [f32; 2]| {
            let at = self.bounds.contains(point).then(|| self.pixel(point));
            left_out += usize::from(at.is_none());
            at
        };
        for (point, class) in self.data.values.iter().zip(&self.data.classes) {
            place(*point).into_iter().for_each(|at| drawing.dot(at, DATA, colour(*class)));
        }
        for point in self.generated {
            place(*point).into_iter().for_each(|at| drawing.dot(at, GENERATED, INK));
        }
        for (point, class) in self.labelled.values.iter().zip(&self.labelled.classes) {
            place(*point).into_iter().for_each(|at| drawing.cross(at, colour(*class)));
        }
        left_out
    }

    /// The pixel of a point, counted from the upper left corner.
    fn pixel(&self, point: [f32; 2]) -> (f64, f64) {
        let plane = self.cell_pixels() * self.side as f64;
        let [right, up] = [0, 1].map(|axis| {
            let low = f64::from(self.bounds.low[axis]);
            let length = f64::from(self.bounds.high[axis]) - low;
            plane * (f64::from(point[axis]) - low) / length.max(f64::MIN_POSITIVE)
        });
        (MARGIN + right, TOP + plane - up)
    }
}

/// What colours and marks mean, from the pixel `left` on, and how many points are not shown.
fn draw_legend(drawing: &mut Drawing, left: f64, classes: u16, left_out: usize) {
    let mut y = TOP;
    let mut next = |drawing: &mut Drawing, text: &str| {
        y += LINE;
        drawing.text((left + 18.0, y - LINE / 2.0), 12, text);
        (left + 6.0, y - LINE / 2.0)
    };
    let kinds = [(false, "real"), (true, "generated")];
    for (class, (is_fake, seen_as)) in (0..classes).flat_map(|class| kinds.map(|kind| (class, kind))) {
        let (x, y) = next(drawing, &format!("class {class}, seen as {seen_as}"));
        let (x, y, fill) = (x - 6.0, y - 6.0, fill(Cell { class, is_fake }));
        drawing.push(format_args!(r#"<rect x="{x}" y="{y}" width="12" height="12" {fill}/>"#));
    }
    let at = next(drawing, "data");
    drawing.dot(at, DATA, colour(0));
    let at = next(drawing, "data with labels");
    drawing.cross(at, colour(0));
    let at = next(drawing, "generated points");
    drawing.dot(at, GENERATED, INK);
    if left_out > 0 {
        next(drawing, &format!("{} outside", counted(left_out, "point")));
    }
}

/// Attributes of what is filled like a cell.
fn fill(cell: Cell) -> String {
    let opacity = OPACITY[usize::from(cell.is_fake)];
    format!(r#"fill="{}" fill-opacity="{opacity}""#, colour(cell.class))
}

/// Features of two dimensions in the colours of their classes, and those of `generated` points, as an SVG document.
pub fn feature_picture(title: &str, features: &Points, generated: &[[f32; 2]]) -> String {
    let generated_group = usize::from(features.class_count);
    let mut groups: Vec<String> = (0..features.class_count).map(|class| format!("class {class}")).collect();
    groups.push("generated".into());
    let of_data = features.values.iter().zip(&features.classes).map(|(at, class)| (at, usize::from(*class)));
    let of_generated = generated.iter().map(|at| (at, generated_group));
    of_data
        .chain(of_generated)
        .fold(ScatterChart::new(title, groups), |chart, (at, group)| chart.with(at.map(f64::from), group))
        .svg()
}

/// An SVG document in the making. Coordinates are pixels from the upper left corner.
#[derive(Default)]
struct Drawing {
    body: String,
}

impl Drawing {
    fn dot(&mut self, (x, y): (f64, f64), radius: f64, colour: &str) {
        self.push(format_args!(r#"<circle cx="{x:.1}" cy="{y:.1}" r="{radius}" fill="{colour}"/>"#));
    }

    /// A cross of this colour on a broader one of ink, so that it shows on cells of its own class.
    fn cross(&mut self, (x, y): (f64, f64), colour: &str) {
        let (left, top, size) = (x - CROSS, y - CROSS, 2.0 * CROSS);
        let path = format!("M{left:.1} {top:.1}l{size} {size}m0 -{size}l-{size} {size}");
        for (colour, width) in [(INK, 4), (colour, 2)] {
            self.push(format_args!(
                r#"<path d="{path}" fill="none" stroke="{colour}" stroke-width="{width}"/>"#
            ));
        }
    }

    /// A text that begins at `x`, its middle at the height `y`.
    fn text(&mut self, (x, y): (f64, f64), size: u32, text: &str) {
        let place = format!(r#"x="{x}" y="{y}" font-size="{size}" dominant-baseline="middle""#);
        self.push(format_args!(r#"<text {place} fill="{INK}">{}</text>"#, escaped(text)));
    }

    fn push(&mut self, element: std::fmt::Arguments) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.body, "{element}");
    }

    fn finish(self, (width, height): (f64, f64)) -> String {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" font-family=\"Helvetica, Arial, sans-serif\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{}</svg>\n",
            self.body
        )
    }
}

/// Text as XML holds it; control characters become spaces.
fn escaped(text: &str) -> String {
    let plain = text.replace(|c: char| c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}'), " ");
    plain.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plane::PlaneSet;

    /// Cells as rows of digits from the highest down, `'` after a class that is seen as generated.
    fn cells(rows: &[&str]) -> Vec<Cell> {
        let row = |text: &&str| -> Vec<Cell> {
            let parts = text.split(' ');
            parts
                .map(|part| Cell {
                    class: part.trim_end_matches('\'').parse().unwrap(),
                    is_fake: part.ends_with('\''),
                })
                .collect()
        };
        rows.iter().rev().flat_map(row).collect()
    }

    /// Row B20. Eight cells touch another class by a side, four of them generated; a corner does not count, nor does the other end of a row.
    #[test]
    fn the_boundary_is_where_a_neighbour_is_of_another_class() {
        let grid = cells(&["0 0 0 1'", "0 0 0' 1", "0' 0 0 1", "0 0 0' 1'"]);
        assert_eq!(fake_share_on_boundary(&grid, 4), 4.0 / 8.0);
        let corner = cells(&["0' 0 0", "0 0' 0'", "0' 0 2"]);
        assert_eq!(fake_share_on_boundary(&corner, 3), 1.0 / 3.0);
        // All of one class, and no cells: no boundary.
        assert!(fake_share_on_boundary(&cells(&["1 1'", "1' 1"]), 2).is_nan());
        assert!(fake_share_on_boundary(&[], 0).is_nan());
    }

    /// Checks that tags close in the order they open in, that attributes are quoted, and that text has no bare `<` or `&`.
    fn assert_well_formed(svg: &str) {
        let mut open = Vec::new();
        let mut parts = svg.split('<');
        assert_eq!(parts.next(), Some(""));
        for part in parts {
            let (tag, text) = part.split_once('>').unwrap();
            assert_eq!(tag.matches('"').count(), 2 * tag.matches('=').count(), "{tag}");
            let entities = ["&amp;", "&lt;", "&gt;", "&quot;"].map(|entity| text.matches(entity).count());
            assert_eq!(text.matches('&').count(), entities.iter().sum::<usize>(), "{text}");
            assert!(!tag.contains('&') && !text.contains('>'), "{part}");
            let name = tag.split([' ', '/']).next().unwrap();
            match tag.strip_prefix('/') {
                Some(name) => assert_eq!(open.pop(), Some(name)),
                None if !tag.ends_with('/') => open.push(name),
                None => {}
            }
        }
        assert!(open.is_empty() && svg.ends_with("</svg>\n"), "{open:?}");
    }

    fn points(values: &[[f32; 2]], classes: &[u16]) -> Points {
        Points { values: values.to_vec(), classes: classes.to_vec(), class_count: 2 }
    }

    /// Row B20. Expected pixels by hand: a plane of 2 × 2 cells has 300 pixels a cell, and begins at (20, 44).
    #[test]
    fn a_picture_shows_cells_data_labels_and_generated_points() {
        let (data, labelled) =
            (points(&[[0.0, 0.0], [3.0, 0.0]], &[0, 1]), points(&[[1.0, 1.0], [-1.0, -1.0]], &[0, 1]));
        let picture = BoundaryPicture {
            title: "circles & <spins>\n",
            bounds: Bounds { low: [-1.0; 2], high: [1.0; 2] },
            side: 2,
            cells: &cells(&["0 0", "1' 0"]),
            data: &data,
            labelled: &labelled,
            generated: &[[0.5, 0.5], [f32::NAN, 0.0], [0.5, -0.5]],
        };
        let svg = picture.svg();
        assert_well_formed(&svg);
        assert_eq!(svg, picture.svg());
        assert!(svg.contains("circles &amp; &lt;spins&gt; </text>") && !svg.contains("NaN"));
        // The upper row is one block; the lower left cell is class 1, generated.
        assert!(svg.contains(r#"d="M320 344h300v300h-300zM20 44h600v300h-600z""#), "{svg}");
        assert!(svg.contains(
            r##"d="M20 344h300v300h-300z" shape-rendering="crispEdges" fill="#d55e00" fill-opacity="0.2""##
        ));
        assert!(svg.contains(r##"<circle cx="320.0" cy="344.0" r="1.6" fill="#0072b2"/>"##));
        assert!(svg.contains(r##"<circle cx="470.0" cy="194.0" r="1" fill="#222222"/>"##));
        assert!(svg.contains(r#"d="M14.0 638.0l12 12m0 -12l-12 12""#));
        // One data point and two generated ones within, and their entries of the legend; a point right of the plane and one that is not a number.
        assert_eq!(svg.matches("<circle").count(), 3 + 2);
        assert!(svg.contains("2 points outside"));
    }

    #[test]
    fn pictures_of_whole_data_sets_and_of_none_are_well_formed() {
        for set in [PlaneSet::Spins, PlaneSet::Circles] {
            let (data, labelled) = (set.points(200, 1), set.points(12, 2));
            let bounds = Bounds::around(&data.values, 1.1).unwrap();
            let cell = |at: &[f32; 2]| Cell { class: u16::from(at[0] > 0.0), is_fake: at[1] > 0.0 };
            let cells: Vec<Cell> = bounds.centres(120).iter().map(cell).collect();
            let generated = &data.values[..50];
            let title = "study";
            let picture = BoundaryPicture {
                title,
                bounds,
                side: 120,
                cells: &cells,
                data: &data,
                labelled: &labelled,
                generated,
            };
            let svg = picture.svg();
            assert_well_formed(&svg);
            // Two runs in each of 120 rows, as the classes part left from right.
            assert_eq!(svg.matches('M').count(), 2 * 120 + 2 * (12 + 1));
            assert_eq!(fake_share_on_boundary(&cells, 120), 0.5);
        }
        let none = points(&[], &[]);
        let bounds = Bounds { low: [0.0; 2], high: [0.0; 2] };
        let empty = BoundaryPicture {
            title: "",
            bounds,
            side: 0,
            cells: &[],
            data: &none,
            labelled: &none,
            generated: &[],
        };
        assert_well_formed(&empty.svg());
    }

    #[test]
    fn features_have_the_colours_of_their_classes_and_generated_ones_their_own() {
        let features = points(&[[0.0, 1.0], [2.0, -3.0], [1.0, 1.0]], &[0, 1, 1]);
        let svg = feature_picture("a < b", &features, &[[0.5, 0.5]]);
        assert_well_formed(&svg);
        assert_eq!(svg, feature_picture("a < b", &features, &[[0.5, 0.5]]));
        // Four points and three entries of the legend.
        assert_eq!(svg.matches("<circle").count(), 4 + 3);
        assert!(svg.contains("class 1") && svg.contains("generated") && svg.contains("a &lt; b"));
    }
}

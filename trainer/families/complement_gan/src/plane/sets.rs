//! Points of the plane in classes, and points of the complement. The thesis prints no sizes; those here are this project's. Every point is a function of (seed, its number): any
//! rank draws any of them.

use std::f64::consts::{FRAC_PI_2, TAU};

use segue_data_error::DataError;
use segue_random::{Purpose, Stream};

/// What points are drawn for: the first counter of their streams.
#[derive(Clone, Copy)]
enum Use {
    Data = 0,
    Complement = 1,
}

/// Number of uniform draws that come before the normal ones in the stream of a point.
const UNIFORMS: u64 = 2;

/// Radii of the two circles.
const RADII: [f64; 2] = [0.5, 1.0];
/// Standard deviation of a circle's points along each axis.
const CIRCLE_NOISE: f64 = 0.03;

/// Number of arms of the spins.
const ARMS: u16 = 4;
/// Where an arm begins and ends: distances from the origin.
const ARM: [f64; 2] = [0.15, 1.0];
/// Radians that an arm turns by from the origin to the distance 1.
const TURN: f64 = 2.5;
/// Standard deviation of an arm's points along each axis.
const SPIN_NOISE: f64 = 0.02;

/// A data set of the plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlaneSet {
    /// Four arms of a spiral, a class each.
    Spins,
    /// Two circles around the origin, a class each.
    Circles,
}

impl PlaneSet {
    /// Number of classes.
    pub fn class_count(self) -> u16 {
        match self {
            Self::Spins => ARMS,
            Self::Circles => RADII.len() as u16,
        }
    }

    /// Draws the first `count` points. The counts of two classes differ by one at most, whatever `count` is.
    pub fn points(self, count: usize, seed: u64) -> Points {
        let class_count = self.class_count();
        let classes: Vec<u16> = (0..count).map(|number| class_of(number, class_count)).collect();
        let point = |(number, class): (usize, &u16)| {
            self.point(*class, &Stream::new(seed, Purpose::Synthetic, &[Use::Data as u64, number as u64]))
        };
        let values = classes.iter().enumerate().map(point).collect();
        Points { values, classes, class_count }
    }

    /// The point of this class that a stream gives.
    fn point(self, class: u16, stream: &Stream) -> [f32; 2] {
        let along = stream.uniform(0);
        let (radius, angle, noise) = match self {
            Self::Circles => (RADII[usize::from(class)], TAU * along, CIRCLE_NOISE),
            Self::Spins => {
                let t = ARM[0] + (ARM[1] - ARM[0]) * along;
                (t, f64::from(class) * FRAC_PI_2 + TURN * t, SPIN_NOISE)
            }
        };
        let [x, y] = [0, 1].map(|axis| noise * stream.normal(UNIFORMS / 2 + axis));
        [radius * angle.cos() + x, radius * angle.sin() + y].map(|value| value as f32)
    }
}

/// Class of a point. Classes alternate, shifted by one every [`STRIDE`] points: without the shift, every point that the complement keeps away from would be of class 0.
fn class_of(number: usize, class_count: u16) -> u16 {
    ((number + number / STRIDE) % usize::from(class_count)) as u16
}

/// Points of the plane with their classes.
#[derive(Debug, Clone, PartialEq)]
pub struct Points {
    /// Coordinates.
    pub values: Vec<[f32; 2]>,
    /// Class of each point, below `class_count`.
    pub classes: Vec<u16>,
    /// Number of classes.
    pub class_count: u16,
}

/// A rectangle with sides along the axes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds {
    /// Smallest coordinates.
    pub low: [f32; 2],
    /// Largest coordinates.
    pub high: [f32; 2],
}

impl Bounds {
    /// The bounding box of `points` with sides `scale` times as long and the same centre; `None` without points, or if a coordinate of points or
    /// box is not finite.
    pub fn around(points: &[[f32; 2]], scale: f64) -> Option<Self> {
        let first = *points.first()?;
        let (mut low, mut high) = (first, first);
        for (axis, value) in points.iter().flat_map(|point| point.iter().copied().enumerate()) {
            if !value.is_finite() {
                return None;
            }
            low[axis] = low[axis].min(value);
            high[axis] = high[axis].max(value);
        }
        let sides = [0, 1].map(|axis| {
            let (low, high) = (f64::from(low[axis]), f64::from(high[axis]));
            let (centre, half) = (0.5 * (low + high), 0.5 * (high - low) * scale);
            [centre - half, centre + half].map(|value| value as f32)
        });
        let is_finite = sides.iter().flatten().all(|value| value.is_finite());
        is_finite.then_some(Self { low: sides.map(|side| side[0]), high: sides.map(|side| side[1]) })
    }

    /// Whether a point lies within, sides included.
    pub fn contains(&self, point: [f32; 2]) -> bool {
        (0..2).all(|axis| (self.low[axis]..=self.high[axis]).contains(&point[axis]))
    }

    /// The point at these fractions of the sides.
    fn at(&self, fractions: [f64; 2]) -> [f32; 2] {
        [0, 1].map(|axis| {
            let (low, high) = (f64::from(self.low[axis]), f64::from(self.high[axis]));
            (low + fractions[axis] * (high - low)) as f32
        })
    }

    /// Centres of `side` × `side` equal cells, row by row from the lowest, each from left to right.
    pub fn centres(&self, side: usize) -> Vec<[f32; 2]> {
        let fraction = |cell: usize| (cell as f64 + 0.5) / side as f64;
        (0..side * side).map(|cell| self.at([fraction(cell % side), fraction(cell / side)])).collect()
    }
}

/// Scale of the complement's box against the bounding box of the data.
const BOX_SCALE: f64 = 1.1;
/// The complement keeps away from the first of every so many points.
const STRIDE: usize = 4;
/// Distance that it keeps from them.
const DISTANCE: f64 = 0.1;
/// Largest number of candidates for one point: where 2 % of the box are free, one point in 10⁸ has none.
const TRIES: u64 = 1000;
/// Largest number of cells along a side of the grid of neighbours.
const MOST_CELLS: f64 = 256.0;

/// The complement of data: uniform in a box around them, at a distance from every fourth point. Where classes have a period of four in
/// the order of the points, it keeps away from one class alone; those of [`PlaneSet::points`] have none.
#[derive(Debug, Clone)]
pub struct Complement {
    bounds: Bounds,
    neighbours: Neighbours,
}

impl Complement {
    /// The complement of `points`; an error without points, or if their box is not finite.
    pub fn of(points: &[[f32; 2]]) -> Result<Self, DataError> {
        let Some(bounds) = Bounds::around(points, BOX_SCALE) else {
            let why = "a complement needs at least one point, and a finite box around all points";
            return Err(DataError::Usage(why.into()));
        };
        Ok(Self { bounds, neighbours: Neighbours::new(bounds, points.iter().step_by(STRIDE)) })
    }

    /// The box that points are drawn in.
    pub fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// Whether a point is away from the data, in the box or out of it.
    pub fn has(&self, point: [f32; 2]) -> bool {
        self.neighbours.are_far(point)
    }

    /// Draws point `number`: the first candidate that is far enough from the data. An error if no candidate is, as the data then leave hardly any place in the box.
    pub fn draw(&self, seed: u64, number: u64) -> Result<[f32; 2], DataError> {
        let stream = Stream::new(seed, Purpose::Synthetic, &[Use::Complement as u64, number]);
        let candidate = |nth| self.bounds.at([stream.uniform(2 * nth), stream.uniform(2 * nth + 1)]);
        (0..TRIES).map(candidate).find(|point| self.has(*point)).ok_or_else(|| {
            let why = format!("none of {TRIES} points of the box is further than {DISTANCE} from the data");
            DataError::Usage(why + "\nhint: spread the data wider")
        })
    }
}

/// Points by cells of a grid. Cells are at least [`DISTANCE`] wide, so that whatever is nearer lies in the same cell or in one beside it.
#[derive(Debug, Clone)]
struct Neighbours {
    low: [f32; 2],
    cell: f64,
    columns: usize,
    rows: usize,
    cells: Vec<Vec<[f32; 2]>>,
}

impl Neighbours {
    fn new<'a>(bounds: Bounds, points: impl Iterator<Item = &'a [f32; 2]>) -> Self {
        let [width, height] = [0, 1].map(|axis| f64::from(bounds.high[axis]) - f64::from(bounds.low[axis]));
        let cell = DISTANCE.max(width.max(height) / MOST_CELLS);
        let [columns, rows] = [width, height].map(|side| (side / cell).ceil().max(1.0) as usize);
        let cells = vec![Vec::new(); columns * rows];
        let mut neighbours = Self { low: bounds.low, cell, columns, rows, cells };
        for point in points {
            let (column, row) = neighbours.place(*point);
            neighbours.cells[row * columns + column].push(*point);
        }
        neighbours
    }

    /// Column and row of a point.
    fn place(&self, point: [f32; 2]) -> (usize, usize) {
        let along = |axis: usize, cells: usize| {
            let offset = f64::from(point[axis]) - f64::from(self.low[axis]);
            ((offset / self.cell) as usize).min(cells - 1)
        };
        (along(0, self.columns), along(1, self.rows))
    }

    /// Whether all points are further than [`DISTANCE`] away.
    fn are_far(&self, point: [f32; 2]) -> bool {
        let (column, row) = self.place(point);
        let around = |place: usize, cells: usize| place.saturating_sub(1)..(place + 2).min(cells);
        let cells =
            around(row, self.rows).flat_map(|row| around(column, self.columns).map(move |c| (row, c)));
        let mut near = cells.flat_map(|(row, column)| &self.cells[row * self.columns + column]);
        near.all(|other| distance(point, *other) > DISTANCE)
    }
}

fn distance(a: [f32; 2], b: [f32; 2]) -> f64 {
    (f64::from(a[0]) - f64::from(b[0])).hypot(f64::from(a[1]) - f64::from(b[1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETS: [PlaneSet; 2] = [PlaneSet::Spins, PlaneSet::Circles];

    fn radius(point: [f32; 2]) -> f64 {
        distance(point, [0.0; 2])
    }

    /// Row B14.
    #[test]
    fn classes_are_balanced_in_every_count_and_among_every_fourth_point() {
        for set in SETS {
            let of_class = |classes: &[u16], class| classes.iter().filter(|found| **found == class).count();
            for count in [0, 1, 5, 6, 12, 24, 2003] {
                let points = set.points(count, 3);
                assert_eq!((points.values.len(), points.classes.len()), (count, count));
                for class in 0..points.class_count {
                    let expected = count / usize::from(points.class_count);
                    assert!((expected..=expected + 1).contains(&of_class(&points.classes, class)));
                }
            }
            let classes: Vec<u16> = set.points(2000, 3).classes.into_iter().step_by(4).collect();
            for class in 0..set.class_count() {
                assert_eq!(of_class(&classes, class) * usize::from(set.class_count()), 500);
            }
        }
    }

    #[test]
    fn a_point_is_a_function_of_the_seed_and_its_number() {
        for set in SETS {
            let (long, short) = (set.points(100, 7), set.points(40, 7));
            assert_eq!(long.values[..40], short.values);
            assert_eq!(long.classes[..40], short.classes);
            let other = set.points(100, 8);
            assert!(long.values.iter().zip(&other.values).all(|(a, b)| a != b));
        }
    }

    /// Five standard deviations of the noise bound 4000 points: one of them in 10⁶ is beyond.
    #[test]
    fn circles_have_their_radii_and_their_noise() {
        let points = PlaneSet::Circles.points(4000, 1);
        for (class, expected) in [(0, 0.5), (1, 1.0)] {
            let of_class = points.values.iter().zip(&points.classes).filter(|(_, found)| **found == class);
            let radii: Vec<f64> = of_class.map(|(point, _)| radius(*point)).collect();
            assert!(radii.iter().all(|radius| (radius - expected).abs() < 5.0 * 0.03), "{expected}");
            let count = radii.len() as f64;
            let mean = radii.iter().sum::<f64>() / count;
            let deviation = (radii.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / count).sqrt();
            // The noise across the radius moves the mean by about .03² / (2 r) < .001; the error of the mean is .03 / √2000 < .001.
            assert!(
                (mean - expected).abs() < 0.004 && (deviation - 0.03).abs() < 0.003,
                "{mean} {deviation}"
            );
        }
        let quadrant = |point: &[f32; 2]| usize::from(point[0] > 0.0) + 2 * usize::from(point[1] > 0.0);
        for part in 0..4 {
            let count = points.values.iter().filter(|point| quadrant(point) == part).count();
            assert!((850..1150).contains(&count), "{count} of 4000 points in a quadrant");
        }
    }

    /// Distance of a point from the arm `class`, by a fine walk along it.
    fn distance_from_arm(point: [f32; 2], class: u16) -> f64 {
        let on_arm = |step: u32| {
            let t = 0.15 + 0.85 * f64::from(step) / 2000.0;
            let angle = f64::from(class) * FRAC_PI_2 + 2.5 * t;
            distance(point, [(t * angle.cos()) as f32, (t * angle.sin()) as f32])
        };
        (0..=2000).map(on_arm).fold(f64::INFINITY, f64::min)
    }

    #[test]
    fn points_of_the_spins_lie_along_their_arms() {
        let points = PlaneSet::Spins.points(800, 2);
        for (point, class) in points.values.iter().zip(&points.classes) {
            assert!(distance_from_arm(*point, *class) < 5.0 * 0.02);
        }
        let radii = || points.values.iter().map(|point| radius(*point));
        let (least, most) = (radii().fold(1.0, f64::min), radii().fold(0.0, f64::max));
        assert!((0.05..0.2).contains(&least) && (0.95..1.1).contains(&most), "{least} {most}");
        // Uniform in the radius, not in the area: half of the points are nearer than the middle, .575. Five standard deviations are 71.
        let inner = radii().filter(|radius| *radius < 0.575).count();
        assert!((329..=471).contains(&inner), "{inner}");
    }

    /// Row B14: in the box, away from every fourth point (by a search among all of them) and from every arm.
    #[test]
    fn the_complement_keeps_its_distance_within_the_box() {
        for set in SETS {
            let points = set.points(2000, 5).values;
            let complement = Complement::of(&points).unwrap();
            let bounds = complement.bounds();
            for number in 0..2000 {
                let point = complement.draw(9, number).unwrap();
                assert!(bounds.contains(point));
                assert!(points.iter().step_by(4).all(|other| distance(point, *other) > 0.1));
                if set == PlaneSet::Spins {
                    assert!((0..4).all(|class| distance_from_arm(point, class) > 0.05));
                }
            }
        }
    }

    #[test]
    fn the_complement_fills_its_box_and_depends_on_seed_and_number_alone() {
        let points = PlaneSet::Circles.points(2000, 5).values;
        let complement = Complement::of(&points).unwrap();
        let draws = |seed: u64| -> Vec<[f32; 2]> {
            (0..2000).map(|number| complement.draw(seed, number).unwrap()).collect()
        };
        let drawn = draws(9);
        assert_eq!(complement.draw(9, 1234).unwrap(), drawn[1234]);
        assert!(drawn.iter().zip(draws(10)).all(|(a, b)| *a != b));
        // Within the smaller circle, between both and outside: areas about π .4², π (.9² − .6²), 2.4² − π 1.1².
        let counts = [0.0..0.4, 0.6..0.9, 1.1..2.0]
            .map(|range| drawn.iter().filter(|point| range.contains(&radius(**point))).count());
        assert!(counts.iter().all(|count| *count > 250), "{counts:?}");
        let reached = Bounds::around(&drawn, 1.0).unwrap();
        let bounds = complement.bounds();
        for axis in 0..2 {
            assert!(reached.low[axis] - bounds.low[axis] < 0.02);
            assert!(bounds.high[axis] - reached.high[axis] < 0.02);
        }
    }

    #[test]
    fn bounds_keep_their_centre_and_centres_go_from_the_lowest_row_up() {
        let bounds = Bounds::around(&[[0.0, 2.0], [4.0, 3.0], [1.0, 2.5]], 1.5).unwrap();
        assert_eq!(bounds, Bounds { low: [-1.0, 1.75], high: [5.0, 3.25] });
        assert_eq!(bounds.centres(2), [[0.5, 2.125], [3.5, 2.125], [0.5, 2.875], [3.5, 2.875]]);
        assert_eq!(bounds.centres(0), [[0.0; 2]; 0]);
        assert!(!bounds.contains([5.1, 2.0]) && bounds.contains([5.0, 1.75]));
    }

    #[test]
    fn data_without_a_complement_are_refused() {
        for points in [
            &[][..],
            &[[f32::NAN, 0.0]],
            &[[0.0, 1.0], [f32::INFINITY, 0.0]],
            &[[f32::MIN, 0.0], [f32::MAX, 0.0]],
        ] {
            assert!(Complement::of(points).unwrap_err().to_string().contains("at least one point"));
        }
        // One point has a box without area, all of it too near.
        let narrow = Complement::of(&[[1.0, 1.0]]).unwrap();
        assert!(narrow.draw(1, 0).unwrap_err().to_string().contains("none of 1000 points"));
        // Boxes of any size have a grid that can be stored.
        let wide = Complement::of(&[[0.0, 0.0], [1e9, 1e-9]]).unwrap();
        assert!(wide.draw(1, 0).is_ok());
    }
}

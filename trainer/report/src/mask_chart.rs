//! Attention mask of a sequence of pairs, as SVG text: one row per query, one column per key.

use super::svg::{Anchor, Drawing, GRID, INK, colour, text_width};

/// Sides of the square of positions, in pixels, that cells are made to fit.
const SIDE: f64 = 720.0;
/// Smallest and largest cell, in pixels.
const CELL: (f64, f64) = (1.5, 18.0);
/// Positions beyond which their tokens are not written at the sides.
const LABELLED: usize = 64;
/// Pixels of the block that stands for the memory.
const MEMORY: f64 = 36.0;
/// Pixels of the marks of targets.
const MARK: f64 = 6.0;
/// Pixels above and below the square: title and legend.
const TOP: f64 = 40.0;
const BOTTOM: f64 = 40.0;

/// What is drawn of one sequence. Ranks are those of a batch: a content row sees the keys whose rank is not above its
/// own, a prediction those whose rank is below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaskChart {
    /// Heading.
    pub title: String,
    /// The token at each position.
    pub tokens: Vec<String>,
    /// Rank of each position.
    pub ranks: Vec<i64>,
    /// Positions that are predicted.
    pub targets: Vec<usize>,
    /// Position where the second part begins.
    pub border: usize,
    /// Predictions see less than contents do, as in two-stream attention.
    pub two_streams: bool,
    /// Positions of memory; drawn as one block, if there are any.
    pub memory: usize,
}

impl MaskChart {
    /// The chart as an SVG document. The same values give the same bytes.
    pub fn svg(&self) -> String {
        let count = self.ranks.len();
        let cell = (SIDE / count.max(1) as f64).clamp(CELL.0, CELL.1);
        let labels = match count <= LABELLED {
            true => self.tokens.iter().map(|token| text_width(token)).fold(0.0, f64::max),
            false => 0.0,
        };
        let memory = if self.memory > 0 { MEMORY + 4.0 } else { 0.0 };
        let (left, top) = (labels + memory + MARK + 16.0, labels + MARK + TOP + 8.0);
        let side = cell * count as f64;
        let legend = top + side + BOTTOM / 2.0;
        let mut drawing = Drawing::new((left + side + 24.0).max(480.0), top + side + BOTTOM + 20.0);
        self.draw_cells(&mut drawing, (left, top), cell);
        if self.memory > 0 {
            let block = [left - MARK - MEMORY - 4.0, top, MEMORY, side];
            drawing.blocks(&[block], GRID);
            let middle = (block[0] + MEMORY / 2.0, top + side / 2.0);
            drawing.upright(middle, Anchor::Middle, &format!("memory, {} seen by all", self.memory));
        }
        if labels > 0.0 {
            for (i, token) in self.tokens.iter().enumerate() {
                let middle = (i as f64 + 0.5) * cell;
                drawing.text((left - MARK - memory - 6.0, top + middle), Anchor::End, token);
                drawing.upright((left + middle, top - MARK - 4.0), Anchor::Start, token);
            }
        }
        for (i, (name, colour)) in NAMES.into_iter().zip(colours()).enumerate() {
            let (x, y) = (20.0 + 160.0 * (i % 3) as f64, legend + 18.0 * (i / 3) as f64);
            drawing.blocks(&[[x, y - 5.0, 10.0, 10.0]], colour);
            drawing.text((x + 16.0, y), Anchor::Start, name);
        }
        drawing.title((left + side / 2.0, TOP / 2.0), &self.title);
        drawing.finish()
    }

    fn draw_cells(&self, drawing: &mut Drawing, (left, top): (f64, f64), cell: f64) {
        let (mut both, mut content) = (Vec::new(), Vec::new());
        for (i, rank) in self.ranks.iter().enumerate() {
            for (from, to, seen) in self.runs(*rank, self.two_streams && self.targets.contains(&i)) {
                let block =
                    [left + from as f64 * cell, top + i as f64 * cell, (to - from) as f64 * cell, cell];
                match seen {
                    Seen::Both => both.push(block),
                    Seen::Content => content.push(block),
                    Seen::Not => {}
                }
            }
        }
        let marks = self.targets.iter().map(|target| *target as f64 * cell);
        let marks: Vec<[f64; 4]> = marks
            .flat_map(|at| {
                [[left - MARK, top + at, MARK - 2.0, cell], [left + at, top - MARK, cell, MARK - 2.0]]
            })
            .collect();
        let [seen, alone, target] = colours();
        drawing.blocks(&both, seen);
        drawing.blocks(&content, alone);
        drawing.blocks(&marks, target);
        let side = cell * self.ranks.len() as f64;
        let border = cell * self.border as f64;
        for (from, to) in
            [((0.0, 0.0), (side, 0.0)), ((0.0, border), (side, border)), ((0.0, side), (side, side))]
        {
            drawing.line((left + from.0, top + from.1), (left + to.0, top + to.1), INK, 1.0);
            drawing.line((left + from.1, top + from.0), (left + to.1, top + to.0), INK, 1.0);
        }
    }

    /// Keys next to each other that a row sees alike: begin, end and how.
    fn runs(&self, rank: i64, predicts: bool) -> Vec<(usize, usize, Seen)> {
        let mut runs: Vec<(usize, usize, Seen)> = Vec::new();
        for (j, key) in self.ranks.iter().enumerate() {
            let seen = match key.cmp(&rank) {
                std::cmp::Ordering::Less => Seen::Both,
                std::cmp::Ordering::Equal if predicts => Seen::Content,
                std::cmp::Ordering::Equal => Seen::Both,
                std::cmp::Ordering::Greater => Seen::Not,
            };
            match runs.last_mut() {
                Some(last) if last.2 == seen => last.1 = j + 1,
                _ => runs.push((j, j + 1, seen)),
            }
        }
        runs
    }
}

/// How a row sees a key. Positions that are not targets have no prediction, so that what their content sees counts.
#[derive(Clone, Copy, PartialEq)]
enum Seen {
    Both,
    Content,
    Not,
}

const NAMES: [&str; 3] = ["seen", "seen by content alone", "target"];

fn colours() -> [&'static str; 3] {
    [colour(5), colour(4), colour(1)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_run_of_seen_keys_is_one_block() {
        // The order 3, 2, 4, 1 of docs/book/src/contributing/expected-values.md; white cells are blocked for content, orange for predictions alone.
        let chart = MaskChart {
            title: "t <1>".into(),
            tokens: ["a", "b", "c", "d"].map(String::from).to_vec(),
            ranks: vec![4, 2, 1, 3],
            targets: vec![0, 1, 2, 3],
            border: 4,
            two_streams: true,
            memory: 3,
        };
        let cells = |rank| {
            let runs = chart.runs(rank, true);
            let code = |seen| match seen {
                Seen::Both => '.',
                Seen::Content => 'c',
                Seen::Not => '#',
            };
            runs.into_iter().flat_map(|(from, to, seen)| vec![code(seen); to - from]).collect::<String>()
        };
        assert_eq!([4, 2, 1, 3].map(cells), ["c...", "#c.#", "##c#", "#..c"]);
        let svg = chart.svg();
        assert!(svg.contains("t &lt;1&gt;") && svg.contains("memory, 3 seen by all"));
        assert_eq!(svg, chart.svg());
        let long = MaskChart { tokens: vec!["x".into(); 512], ranks: vec![1; 512], ..chart };
        assert!(!long.svg().contains(">x<"));
    }
}

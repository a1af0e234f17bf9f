//! The results of a sweep: cells with intervals over seeds, their published values, and whether the expected orders
//! hold.

use std::collections::{BTreeMap, BTreeSet};

use segue_configs::sweep::{At, Expectation, PublishedRow};
use serde::Serialize;

use super::compared::Compared;
use super::statistics::Interval;

/// A length reaches the best value where it comes this close: Yang 2019, table 2.6, compares two decimals of
/// perplexities near 25.
const REACHED: f64 = 5e-4;

/// What one cell is compared by.
#[derive(Debug, Clone, PartialEq)]
pub struct CellResult {
    /// Name of the cell.
    pub label: String,
    /// Attention length of training.
    pub init: usize,
    /// What is published of it.
    pub published: PublishedRow,
    /// Measures that its runs are to have by protocols; those whose weights diverged lack some.
    pub columns: BTreeSet<String>,
    /// Measures that are fractions of one, which tables have in percent, beside those that always are.
    pub fractions: BTreeSet<String>,
    /// Perplexity, or the accuracy or the metric of runs that evaluate themselves and have none, by seed and attention length. Every seed has the same
    /// lengths.
    pub values: BTreeMap<u64, BTreeMap<usize, f64>>,
    /// What runs have measured in evaluations of their own, by seed and name; empty where `segue eval` has.
    pub measures: BTreeMap<u64, BTreeMap<String, f64>>,
}

/// One row of the table. Values are what the sweep compares by, [`Summary::compared`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Name of the cell.
    pub label: String,
    /// At the attention length of training.
    pub init: Option<Interval>,
    /// At the attention length with the best mean.
    pub best: Option<Interval>,
    /// The smallest attention length that reaches the best mean.
    pub attention: Option<usize>,
    /// At every attention length.
    pub lengths: BTreeMap<usize, Interval>,
    /// What runs have measured themselves.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub measures: BTreeMap<String, Interval>,
    /// Measures that it was to have by protocols.
    #[serde(skip)]
    pub columns: BTreeSet<String>,
    /// Measures that are fractions of one.
    #[serde(skip)]
    pub fractions: BTreeSet<String>,
    /// What is published of it.
    pub published: PublishedRow,
}

/// How an expected order came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The whole interval of the difference has the expected sign.
    Holds,
    /// The interval reaches over zero, or there is none.
    WithinTheInterval,
    /// The whole interval has the other sign.
    Violated,
    /// A cell has no result.
    Unknown,
}

impl Verdict {
    fn of(difference: Option<Interval>) -> Self {
        match difference {
            None => Verdict::Unknown,
            Some(Interval { mean, half_width: Some(half), .. }) if mean > half => Verdict::Holds,
            Some(Interval { mean, half_width: Some(half), .. }) if mean < -half => Verdict::Violated,
            Some(_) => Verdict::WithinTheInterval,
        }
    }

    /// The verdict in words.
    pub fn words(self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::WithinTheInterval => "within the interval",
            Verdict::Violated => "violated",
            Verdict::Unknown => "no result",
        }
    }
}

/// An expected order with what was found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Check {
    /// The order.
    pub expected: Expectation,
    /// How much better the better is than the other, paired by seed.
    pub difference: Option<Interval>,
    /// How it came out.
    pub verdict: Verdict,
}

/// The results of a sweep, worked out.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// Title.
    pub name: String,
    /// What cells are compared by.
    pub compared: Compared,
    /// Which of two values of it is the better one: `higher` or `lower`.
    pub better: &'static str,
    /// One row a cell.
    pub rows: Vec<Row>,
    /// One an expected order.
    pub checks: Vec<Check>,
}

impl Check {
    /// What is compared with what, in words.
    pub fn sides(&self) -> [String; 2] {
        let words = |(label, column): (&str, Option<&str>)| match column {
            Some(column) => format!("{label} ({column})"),
            None => label.to_string(),
        };
        self.expected.sides().map(words)
    }
}

impl CellResult {
    /// The mean at every attention length.
    fn lengths(&self) -> BTreeMap<usize, Interval> {
        let lengths = self.values.values().flat_map(|by_length| by_length.keys().copied());
        let at = |length: usize| Interval::of(&self.at(length).into_values().collect::<Vec<_>>());
        lengths.filter_map(|length| Some((length, at(length)?))).collect()
    }

    /// By seed, at one attention length.
    fn at(&self, length: usize) -> BTreeMap<u64, f64> {
        let value =
            |(seed, by_length): (&u64, &BTreeMap<usize, f64>)| Some((*seed, *by_length.get(&length)?));
        self.values.iter().filter_map(value).collect()
    }

    /// By seed, in a column of the table.
    fn by(&self, column: &str) -> BTreeMap<u64, f64> {
        let value = |(seed, measures): (&u64, &BTreeMap<String, f64>)| Some((*seed, *measures.get(column)?));
        self.measures.iter().filter_map(value).collect()
    }

    /// The attention length with the best mean.
    fn best(&self, compared: &Compared) -> Option<usize> {
        let worse = |(_, interval): &(usize, Interval)| -compared.gain(interval.mean, 0.0);
        Some(self.lengths().into_iter().min_by(|a, b| worse(a).total_cmp(&worse(b)))?.0)
    }

    /// What runs have measured themselves, over seeds.
    fn measured(&self) -> BTreeMap<String, Interval> {
        let mut values: BTreeMap<&String, Vec<f64>> = BTreeMap::new();
        for (name, value) in self.measures.values().flatten() {
            values.entry(name).or_default().push(*value);
        }
        values.into_iter().filter_map(|(name, values)| Some((name.clone(), Interval::of(&values)?))).collect()
    }

    fn row(&self, compared: &Compared) -> Row {
        let lengths = self.lengths();
        let best = self.best(compared).and_then(|length| lengths.get(&length).copied());
        let short_of =
            |interval: &Interval| best.map(|best| compared.gain(best.mean, interval.mean) / best.mean);
        let reaches = |(_, interval): &(&usize, &Interval)| short_of(interval).is_some_and(|s| s <= REACHED);
        Row {
            label: self.label.clone(),
            init: lengths.get(&self.init).copied(),
            best,
            attention: lengths.iter().find(reaches).map(|(length, _)| *length),
            lengths,
            measures: self.measured(),
            columns: self.columns.clone(),
            fractions: self.fractions.clone(),
            published: self.published.clone(),
        }
    }
}

impl Summary {
    /// Works out rows and checks of cells that are compared by perplexity, or by accuracy where they have that alone.
    pub fn new(name: &str, cells: &[CellResult], expectations: &[Expectation]) -> Self {
        let compared = Compared::of(cells.iter().flat_map(|cell| cell.measures.values()));
        Self::by(compared, name, cells, expectations)
    }

    /// The same of cells that are compared by `compared`.
    pub fn by(compared: Compared, name: &str, cells: &[CellResult], expectations: &[Expectation]) -> Self {
        let check = |expected: &Expectation| {
            let difference = paired(cells, expected, &compared);
            Check { expected: expected.clone(), difference, verdict: Verdict::of(difference) }
        };
        Self {
            name: name.into(),
            rows: cells.iter().map(|cell| cell.row(&compared)).collect(),
            checks: expectations.iter().map(check).collect(),
            better: compared.sides()[0],
            compared,
        }
    }

    /// The difference that a check found, in the unit that tables show.
    pub fn difference(&self, check: &Check) -> Option<String> {
        let scale = compared_by(&check.expected, &self.compared).scale();
        check.difference.map(|difference| difference.scaled(scale).text())
    }
}

/// How much better one cell is than another, seed by seed.
fn paired(cells: &[CellResult], expected: &Expectation, compared: &Compared) -> Option<Interval> {
    let compared = compared_by(expected, compared);
    let values = |(label, column): (&str, Option<&str>)| {
        let cell = cells.iter().find(|cell| cell.label == label)?;
        if let Some(column) = column {
            return Some(cell.by(column));
        }
        Some(cell.at(match expected.at {
            At::Init => cell.init,
            At::Best => cell.best(compared)?,
        }))
    };
    let [better, than] = expected.sides();
    let (better, than) = (values(better)?, values(than)?);
    let gain = |(seed, better): (&u64, &f64)| Some(compared.gain(*better, *than.get(seed)?));
    let differences: Vec<f64> = better.iter().filter_map(gain).collect();
    Interval::of(&differences)
}

/// Columns of protocols are losses, whatever the sweep compares by.
fn compared_by<'a>(expected: &Expectation, compared: &'a Compared) -> &'a Compared {
    if expected.column.is_some() { &Compared::Perplexity } else { compared }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(label: &str, published: PublishedRow, table: &[(u64, &[(usize, f64)])]) -> CellResult {
        let values = table.iter().map(|(seed, lengths)| (*seed, lengths.iter().copied().collect())).collect();
        CellResult {
            label: label.into(),
            init: 64,
            published,
            columns: BTreeSet::new(),
            fractions: BTreeSet::new(),
            values,
            measures: BTreeMap::new(),
        }
    }

    fn expected(better: &str, than: &str, at: At) -> Expectation {
        Expectation { better: better.into(), than: than.into(), at, ..Default::default() }
    }

    fn summary() -> Summary {
        let row = |row: &str, init, best, attention| PublishedRow {
            row: row.into(),
            init: Some(init),
            best: Some(best),
            attention: Some(attention),
            ..Default::default()
        };
        let ours = cell(
            "ours",
            row("T-XL (128M)", 27.02, 26.77, 500),
            &[
                (1, &[(64, 101.0), (128, 99.01), (256, 99.0)]),
                (2, &[(64, 103.0), (128, 101.01), (256, 101.0)]),
                (3, &[(64, 102.0), (128, 100.01), (256, 100.0)]),
            ],
        );
        let none = cell(
            "none",
            row("no recurrence", 29.59, 29.02, 260),
            &[(1, &[(64, 109.0)]), (2, &[(64, 111.0)]), (3, &[(64, 110.0)])],
        );
        let failed = cell("failed", PublishedRow::default(), &[]);
        let checks = [
            expected("ours", "none", At::Best),
            expected("none", "ours", At::Init),
            expected("ours", "ours", At::Best),
            expected("ours", "failed", At::Best),
        ];
        Summary::new("Test", &[ours, none, failed], &checks)
    }

    #[test]
    fn table_reads_as_it_should() {
        // By hand: standard deviation 1, so ± 4.3027 / sqrt(3) = 2.48; differences between cells are the
        // same for each seed, so their interval has no width.
        let text = summary().markdown();
        let golden = "\
| ours | 3 | 102.00 (102.00 ± 2.48) | 100.00 (100.00 ± 2.48) | 128 | T-XL (128M) | 27.02 | 26.77 | 500 |
| none | 3 | 110.00 (110.00 ± 2.48) | 110.00 (110.00 ± 2.48) | 64 | no recurrence | 29.59 | 29.02 | 260 |
| failed | 0 | – | – | – | – | – | – | – |

## By attention length

- ours: 64: 102.00 ± 2.48, 128: 100.01 ± 2.48, 256: 100.00 ± 2.48
- none: 64: 110.00 ± 2.48
- failed: 

## Expected orders

The difference of perplexities is paired by seed; above 0 is as expected.

| lower | higher | at | difference | verdict |
|---|---|---|---|---|
| ours | none | best | 10.00 ± 0.00 | holds |
| none | ours | init | -8.00 ± 0.00 | violated |
| ours | ours | best | 0.00 ± 0.00 | within the interval |
| ours | failed | best | – | no result |
";
        assert!(text.ends_with(golden), "{text}");
    }

    #[test]
    fn one_seed_decides_nothing() {
        let cells = [
            cell("a", PublishedRow::default(), &[(1, &[(64, 10.0)])]),
            cell("b", PublishedRow::default(), &[(1, &[(64, 20.0)])]),
        ];
        let summary = Summary::new("Test", &cells, &[expected("a", "b", At::Best)]);
        assert_eq!(summary.checks[0].verdict, Verdict::WithinTheInterval);
        assert_eq!(summary.checks[0].difference.unwrap().mean, 10.0);
    }
}

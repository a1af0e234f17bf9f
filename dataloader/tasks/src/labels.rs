use ahash::AHashMap;
use segue_configs::counted;

use super::json::is_whole;

/// Known labels that a message lists.
const LISTED: usize = 20;
/// Lines that a message lists.
const LINES: usize = 5;
/// Numbers that stand in the place of a label that nobody knows: data sets of Hugging Face's hub have the first in their
/// test files, and loss functions pass over the second.
const MARKS: [f64; 2] = [-1.0, IGNORED];
/// What words have for a label that are read and neither learnt nor scored: the `ignore_index` of PyTorch's losses.
const IGNORED: f64 = -100.0;

/// Whether a cell marks that there is no label.
pub(super) fn is_mark(cell: &str) -> bool {
    as_number(cell).is_some_and(|number| MARKS.contains(&number))
}

/// Whether a word with this cell is neither learnt nor scored.
pub(super) fn is_ignored(cell: &str) -> bool {
    as_number(cell) == Some(IGNORED)
}

/// Whether a cell has no label: it is empty, or a mark.
pub(super) fn is_missing(cell: &str) -> bool {
    cell.trim().is_empty() || is_mark(cell)
}

/// What is wrong with a record that is learnt from and has no label.
pub(super) fn no_label(cell: &str, lacks: &str) -> String {
    let what = match cell.trim() {
        "" => format!("it has no {lacks}"),
        mark => format!("its {lacks} is `{mark}`, which marks what has no {lacks}"),
    };
    format!("{what}\nhint: leave what has none out with task.skip_bad=true")
}

/// That some of `all` records, those that begin on `lines`, are not scored for want of a label, or of what else `lacks`
/// says; none where all are scored.
pub(super) fn unscored(what: &str, lacks: &str, lines: &[u64], all: usize) -> Option<String> {
    let which = match lines.len() {
        0 => return None,
        count if count == all => counted(all, what),
        count => format!("{count} of {} ({})", counted(all, what), listed_lines(lines)),
    };
    Some(format!("without {lacks}, answered and not scored: {which}"))
}

/// `line 3`, or `lines 3, 5, 8, ..`.
pub fn listed_lines(lines: &[u64]) -> String {
    let more = if lines.len() > LINES { ", .." } else { "" };
    let first = lines.iter().take(LINES).map(u64::to_string).collect::<Vec<_>>().join(", ");
    format!("{} {first}{more}", if lines.len() == 1 { "line" } else { "lines" })
}

/// The other spelling of a whole number: tables in which some labels are missing have `1.0` for `1`.
fn respelt(spelling: &str) -> Option<String> {
    match spelling.strip_suffix(".0") {
        Some(whole) => is_whole(whole).then(|| whole.into()),
        None => is_whole(spelling).then(|| format!("{spelling}.0")),
    }
}

fn as_number(cell: &str) -> Option<f64> {
    cell.trim().parse().ok().filter(|number: &f64| number.is_finite())
}

/// The labels of a task in their order, and the ways in which files spell them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Labels {
    pub(super) names: Vec<String>,
    numbers: AHashMap<String, u32>,
}

impl Labels {
    /// Labels that are spelt as they are called.
    pub(super) fn new(names: Vec<String>) -> Labels {
        let numbers = names.iter().zip(0..).map(|(name, number)| (name.clone(), number)).collect();
        Labels { names, numbers }
    }

    /// Labels that files may spell in several ways; they are called by the first.
    pub(super) fn spelt(spellings: &[&[&str]]) -> Labels {
        let mut labels = Labels::new(spellings.iter().map(|own| own[0].to_string()).collect());
        for (own, number) in spellings.iter().zip(0..) {
            labels.numbers.extend(own.iter().map(|spelling| (spelling.to_string(), number)));
        }
        labels
    }

    /// All labels that occur, sorted; as numbers where all are.
    pub(super) fn collected<'a>(occurring: impl Iterator<Item = &'a str>) -> Labels {
        let mut names: Vec<&str> = Vec::new();
        let mut known = ahash::AHashSet::new();
        names.extend(occurring.filter(|name| !name.is_empty() && known.insert(*name)));
        names.sort_unstable();
        if names.iter().all(|name| as_number(name).is_some()) {
            names.sort_by(|a, b| as_number(a).unwrap_or(0.0).total_cmp(&as_number(b).unwrap_or(0.0)));
        }
        Labels::new(names.into_iter().map(str::to_owned).collect())
    }

    /// The labels of a training file: all that occur; the error is a line and what is wrong with it. `told`: the line of each
    /// label. Whether -1 is a class or a mark for no label only its owner knows, unless it stands beside 1 alone, as
    /// one of two classes does, or beside other numbers below 0.
    pub(super) fn of_training<'a>(
        told: impl Iterator<Item = (u64, &'a str)> + Clone,
    ) -> Result<Labels, (u64, String)> {
        let labels = Labels::collected(told.clone().map(|(_, label)| label));
        let (marks, others): (Vec<&String>, Vec<&String>) =
            labels.names.iter().partition(|name| is_mark(name));
        let numbers: Vec<Option<f64>> = others.iter().map(|name| as_number(name)).collect();
        let is_class = numbers == [Some(1.0)] || numbers.iter().flatten().any(|number| *number < 0.0);
        let Some(mark) = marks.first().filter(|_| !is_class) else { return Ok(labels) };
        let lines: Vec<u64> = told.filter(|(_, label)| is_mark(label)).map(|(line, _)| line).collect();
        let first = lines.first().copied().unwrap_or(1);
        if others.is_empty() {
            let why = "which marks what has no label, so that there is nothing to learn";
            return Err((first, format!("every label is `{mark}`, {why}")));
        }
        let known = Labels::new(others.into_iter().cloned().collect());
        let why = format!(
            "the label `{mark}` usually marks what has no label, and stands beside {} here: {}, {}\nhint: where \
             it marks what has none, list the others in task.labels and leave it out with task.skip_bad=true; \
             where it is a class, list it too",
            known.in_words(),
            counted(lines.len(), "time"),
            listed_lines(&lines)
        );
        Err((first, why))
    }

    /// The first of them, for a message.
    fn in_words(&self) -> String {
        let more = if self.names.len() > LISTED { ", .." } else { "" };
        self.names.iter().take(LISTED).map(String::as_str).collect::<Vec<_>>().join(", ") + more
    }

    /// The number of a label as a file spells it, or what is wrong with it.
    pub(super) fn number(&self, spelling: &str) -> Result<u32, String> {
        let number = self.numbers.get(spelling).or_else(|| self.numbers.get(&respelt(spelling)?));
        number.copied().ok_or_else(|| {
            format!(
                "unknown label `{spelling}`, expected one of {}\nhint: correct it; a split without labels has \
                 the column empty or not at all; labels that the training file lacks are listed in task.labels",
                self.in_words()
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collected_labels_are_sorted_as_numbers_where_all_are() {
        let of = |names: &[&str]| Labels::collected(names.iter().copied()).names;
        assert_eq!(of(&["10", "9", "-1", "9"]), ["-1", "9", "10"]);
        assert_eq!(of(&["10", "9", "x", ""]), ["10", "9", "x"]);
    }

    #[test]
    fn minus_one_is_a_class_only_where_it_can_be_nothing_else() {
        let of = |labels: &[&str]| {
            let told: Vec<(u64, &str)> = (2..).zip(labels.iter().copied()).collect();
            Labels::of_training(told.iter().copied()).map(|labels| labels.names)
        };
        assert_eq!(of(&["1", "-1", "1"]).unwrap(), ["-1", "1"]);
        assert_eq!(of(&["-1.0", "1.0"]).unwrap(), ["-1.0", "1.0"]);
        assert_eq!(of(&["-2", "-1", "0", "1"]).unwrap(), ["-2", "-1", "0", "1"]);
        assert_eq!(of(&["b", "", "a"]).unwrap(), ["a", "b"]);
        for (labels, line, known) in [
            (&["0", "-1", "1", "-1"][..], 3, "0, 1 here: 2 times, lines 3, 5"),
            (&["pos", "neg", "-1"], 4, "neg, pos here: 1 time, line 4"),
            (&["O", "-100", "B-PER"], 3, "B-PER, O here"),
            (&["0", "-1"], 3, "0 here"),
        ] {
            let (at, why) = of(labels).unwrap_err();
            assert!(at == line && why.contains(known) && why.contains("no label"), "{why}");
        }
        assert!(of(&["-1", "-1"]).unwrap_err().1.contains("every label is `-1`"));
    }

    #[test]
    fn whole_numbers_are_known_with_an_empty_fraction_and_without() {
        let of = |names: &[&str], spelling: &str| {
            Labels::new(names.iter().map(|name| name.to_string()).collect()).number(spelling)
        };
        assert_eq!((of(&["0", "1"], "1.0"), of(&["0.0", "1.0"], "1")), (Ok(1), Ok(1)));
        assert_eq!((of(&["1", "1.0"], "1.0"), of(&["1", "1.0"], "1")), (Ok(1), Ok(0)));
        assert!(of(&["0", "1"], "1.5").is_err() && of(&["x"], "x.0").is_err() && of(&["1"], "01").is_err());
    }

    #[test]
    fn an_unknown_label_is_told_with_the_known_ones() {
        let labels = Labels::spelt(&[&["World", "1"], &["Sports", "2"]]);
        assert_eq!((labels.number("2"), labels.number("World")), (Ok(1), Ok(0)));
        assert!(labels.number("sports").unwrap_err().contains("expected one of World, Sports\nhint: "));
    }
}

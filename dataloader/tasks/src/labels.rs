use ahash::AHashMap;

/// Known labels that a message lists.
const LISTED: usize = 20;

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
        let number = |name: &&str| name.parse::<f64>().ok().filter(|number| number.is_finite());
        if names.iter().all(|name| number(name).is_some()) {
            names.sort_by(|a, b| number(a).unwrap_or(0.0).total_cmp(&number(b).unwrap_or(0.0)));
        }
        Labels::new(names.into_iter().map(str::to_owned).collect())
    }

    /// The number of a label as a file spells it, or what is wrong with it.
    pub(super) fn number(&self, spelling: &str) -> Result<u32, String> {
        self.numbers.get(spelling).copied().ok_or_else(|| {
            let more = if self.names.len() > LISTED { ", .." } else { "" };
            let known = self.names.iter().take(LISTED).map(String::as_str).collect::<Vec<_>>().join(", ");
            format!(
                "unknown label `{spelling}`, expected one of {known}{more}\nhint: correct it, or list all \
                 labels in task.labels"
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
    fn an_unknown_label_is_told_with_the_known_ones() {
        let labels = Labels::spelt(&[&["World", "1"], &["Sports", "2"]]);
        assert_eq!((labels.number("2"), labels.number("World")), (Ok(1), Ok(0)));
        assert!(labels.number("sports").unwrap_err().contains("expected one of World, Sports\nhint: "));
    }
}

use segue_configs::counted;

use super::input::PairSplit;
use super::lockstep::PairPlace;
use super::options::PairFilter;
use crate::build::observer::BuildObserver;
use crate::corpus::{PairCounts, PairFault, Split};

/// Counts pairs of a split with a fault, and remembers where the first are.
#[derive(Default)]
pub(super) struct FaultList {
    pub(super) counts: PairCounts,
    first: Vec<(PairFault, PairPlace)>,
}

impl FaultList {
    pub(super) fn extend(&mut self, faults: Vec<(PairFault, PairPlace)>) {
        for (fault, place) in faults {
            if self.counts.add(fault, place.number) {
                self.first.push((fault, place));
            }
        }
    }

    /// Says of each fault how many pairs have it, and where the first are.
    pub(super) fn tell(&self, split: &PairSplit, filter: &PairFilter, observer: &dyn BuildObserver) {
        let done = if split.split == Split::Train { "dropped" } else { "kept" };
        for fault in PairFault::ALL {
            let count = self.counts.of(fault).count;
            if count > 0 {
                let (pairs, what) = (counted(count, "pair"), describe(fault, filter));
                let places = self.places(fault, split);
                let first = if count > places.len() as u64 { "first " } else { "" };
                observer.note(&format!(
                    "{}: {done} {pairs} {what}: {first}{}",
                    split.split,
                    places.join(", ")
                ));
            }
        }
    }

    /// `FILE:LINE` of the first pairs of a fault.
    fn places(&self, fault: PairFault, split: &PairSplit) -> Vec<String> {
        let own = self.first.iter().filter(|(found, _)| *found == fault);
        let place =
            |place: &PairPlace| format!("{}:{}", split.inputs[place.input].path().display(), place.line);
        own.map(|(_, at)| place(at)).collect()
    }
}

/// What is wrong with a pair, behind the noun.
fn describe(fault: PairFault, filter: &PairFilter) -> String {
    match fault {
        PairFault::EmptySource => "with an empty source".into(),
        PairFault::EmptyTarget => "with an empty target".into(),
        PairFault::TooLong => {
            format!("with a side of more than {} tokens", filter.max_length.unwrap_or_default())
        }
        PairFault::Ratio => {
            format!(
                "with one side more than {} times as long as the other",
                filter.max_ratio.unwrap_or_default()
            )
        }
    }
}

use std::hash::Hash;

use ahash::AHashMap;
use rayon::ThreadPool;
use segue_data_error::DataError;

use crate::build::{BuildObserver, Next, Reading, Stage, Stretch, Unit, for_each_unit, in_order};

/// Distinct items that are counted at once (with their text, roughly 1 GiB of words); beyond this the rarest are dropped.
const MOST_ITEMS: usize = 12 << 20;

/// Counts of items, in the order in which the items first appeared.
#[derive(Clone, Debug)]
pub(crate) struct Counts<K> {
    places: AHashMap<K, usize>,
    items: Vec<(K, u64)>,
}

impl<K> Default for Counts<K> {
    fn default() -> Self {
        Counts { places: AHashMap::new(), items: Vec::new() }
    }
}

impl<K: Hash + Eq + Clone> Counts<K> {
    pub(crate) fn add(&mut self, item: K, count: u64) {
        match self.places.get(&item) {
            Some(place) => self.items[*place].1 += count,
            None => {
                self.places.insert(item.clone(), self.items.len());
                self.items.push((item, count));
            }
        }
    }

    /// Adds one, making the key only for an item that is new.
    pub(crate) fn add_borrowed<Q>(&mut self, item: &Q)
    where
        K: std::borrow::Borrow<Q> + for<'q> From<&'q Q>,
        Q: Hash + Eq + ?Sized,
    {
        match self.places.get(item) {
            Some(place) => self.items[*place].1 += 1,
            None => self.add(K::from(item), 1),
        }
    }

    /// Adds counts of text that comes later.
    fn append(&mut self, later: Counts<K>) {
        for (item, count) in later.items {
            self.add(item, count);
        }
    }

    /// Where there are too many items, drops the rarest, those that came last first; returns how many.
    fn prune(&mut self, most: usize) -> usize {
        if self.items.len() <= most {
            return 0;
        }
        let before = self.items.len();
        // The order must not depend on anything but the text, so that the same text gives the same vocabulary.
        let mut threshold = 1;
        while self.items.len() > most / 2 {
            self.items.retain(|(_, count)| *count > threshold);
            threshold *= 2;
        }
        self.places = self.items.iter().enumerate().map(|(place, (item, _))| (item.clone(), place)).collect();
        before - self.items.len()
    }

    /// The items by falling count; equal counts stay in the order of their first appearance.
    pub(crate) fn by_frequency(self) -> Vec<(K, u64)> {
        let mut items = self.items;
        items.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        items
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}

/// Counts over all units of some texts, in parallel. The result does not depend on the number of threads.
pub(crate) fn count<K: Hash + Eq + Clone + Send>(
    texts: &[(&Stretch, Reading)],
    pool: &ThreadPool,
    observer: &dyn BuildObserver,
    each: impl Fn(&Unit<'_>, &mut Counts<K>) + Sync,
) -> Result<Counts<K>, DataError> {
    let mut all = Counts::default();
    let mut dropped = 0;
    observer.stage(Stage::Counting, texts.iter().map(|(stretch, _)| stretch.file_bytes()).sum());
    let mut before = 0;
    for (stretch, reading) in texts {
        let already = stretch.file_bytes_before(stretch.begin);
        let mut reader = stretch.reader(reading.layout.cut(), stretch.begin);
        in_order(
            pool,
            &mut reader,
            |chunk| {
                let mut counts = Counts::default();
                for_each_unit(reading, &stretch.sources, chunk, &mut |unit| {
                    each(&unit, &mut counts);
                    Ok(())
                })?;
                Ok(counts)
            },
            |counts, end| {
                all.append(counts);
                dropped += all.prune(MOST_ITEMS);
                observer.progress(before + end.file_bytes_read.saturating_sub(already));
                Ok(Next::Continue)
            },
        )?;
        before += stretch.file_bytes();
    }
    if dropped > 0 {
        observer
            .note(&format!("{dropped} rare words were left out of the counts to bound the memory they take"));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_counts_stay_in_order_of_appearance() {
        let mut counts = Counts::<String>::default();
        for word in ["b", "a", "c", "a", "c"] {
            counts.add_borrowed(word);
        }
        let mut later = Counts::default();
        later.add("d".to_owned(), 2);
        later.add("b".to_owned(), 1);
        counts.append(later);
        let sorted: Vec<String> = counts.by_frequency().into_iter().map(|(word, _)| word).collect();
        assert_eq!(sorted, ["b", "a", "c", "d"]);
    }

    #[test]
    fn pruning_keeps_the_frequent() {
        let mut counts = Counts::<String>::default();
        for i in 0..10 {
            counts.add(i.to_string(), if i == 7 { 5 } else { 1 });
        }
        assert_eq!(counts.prune(10), 0);
        assert_eq!(counts.prune(9), 9);
        counts.add_borrowed("7");
        assert_eq!(counts.by_frequency(), [("7".to_owned(), 6)]);
    }
}

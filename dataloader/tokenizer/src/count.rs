use std::hash::Hash;

use ahash::AHashMap;

/// Counts of items, in the order in which the items first appeared.
#[derive(Clone, Debug)]
pub struct Counts<K> {
    places: AHashMap<K, usize>,
    items: Vec<(K, u64)>,
}

impl<K> Default for Counts<K> {
    fn default() -> Self {
        Counts { places: AHashMap::new(), items: Vec::new() }
    }
}

impl<K: Hash + Eq + Clone> Counts<K> {
    /// Adds a count of one item.
    pub fn add(&mut self, item: K, count: u64) {
        match self.places.get(&item) {
            Some(place) => self.items[*place].1 += count,
            None => {
                self.places.insert(item.clone(), self.items.len());
                self.items.push((item, count));
            }
        }
    }

    /// Adds one, making the key only for an item that is new.
    pub fn add_borrowed<Q>(&mut self, item: &Q)
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
    pub fn append(&mut self, later: Counts<K>) {
        for (item, count) in later.items {
            self.add(item, count);
        }
    }

    /// Where there are too many items, drops the rarest, those that came last first; returns how many.
    pub fn prune(&mut self, most: usize) -> usize {
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
    pub fn by_frequency(self) -> Vec<(K, u64)> {
        let mut items = self.items;
        items.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        items
    }

    /// Whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
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

use segue_random::{Draws, Purpose};

/// Pairs of a query's candidates, a more relevant one first: for each candidate at most `most` less relevant ones,
/// drawn from (seed, number of the query, number of the candidate).
pub(super) fn pairs(grades: &[u32], most: usize, seed: u64, query: u64) -> Vec<[usize; 2]> {
    let mut pairs = Vec::new();
    for (better, grade) in grades.iter().enumerate() {
        let mut worse: Vec<usize> = (0..grades.len()).filter(|&other| grades[other] < *grade).collect();
        Draws::new(seed, Purpose::Negatives, &[query, better as u64]).shuffle(&mut worse);
        pairs.extend(worse.into_iter().take(most).map(|worse| [better, worse]));
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Row X29.
    #[test]
    fn pairs_have_the_more_relevant_document_first() {
        let grades = [0, 2, 1, 0, 0, 2];
        let drawn = pairs(&grades, 3, 1, 4);
        // Three of the four that are worse than each 2, and three of those worse than the 1.
        assert_eq!(drawn.len(), 9);
        assert!(drawn.iter().all(|[better, worse]| grades[*better] > grades[*worse]));
        let mut different = drawn.clone();
        different.sort_unstable();
        different.dedup();
        assert_eq!(different.len(), 9);
        assert_eq!(drawn, pairs(&grades, 3, 1, 4));
        assert_ne!(drawn, pairs(&grades, 3, 2, 4));
        assert_eq!(pairs(&[1, 1], 3, 1, 0), [[0; 2]; 0]);
    }
}

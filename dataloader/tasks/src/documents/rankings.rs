/// The queries of a split, and what is to be ranked for each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rankings {
    /// In the order of the file that names the candidates. Of training none: its examples are pairs.
    pub queries: Vec<RankedQuery>,
    /// The highest grade of the split's judgements.
    pub highest_grade: u32,
}

/// A query with its candidates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankedQuery {
    /// Its name.
    pub id: String,
    /// Documents to bring in order.
    pub candidates: Vec<Candidate>,
    /// Grades of all documents that were judged, candidates or not; empty where nobody judged any.
    pub judged: Vec<u32>,
}

/// A document that may be an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Its name.
    pub document: String,
    /// The example it became.
    pub example: u32,
    /// How relevant it is; 0 where nobody judged it.
    pub grade: u32,
}

/// A candidate in its place.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Placed {
    /// Number of the candidate.
    pub candidate: usize,
    /// What it was placed by.
    pub score: f32,
}

/// The candidates of each query in falling order of their scores, equal ones in the order of their names. Example `i`
/// has the score `scores[i][0]`.
///
/// # Panics
///
/// If an example has no score.
pub fn rank_documents(queries: &[RankedQuery], scores: &[Vec<f32>]) -> Vec<Vec<Placed>> {
    let ranked = |query: &RankedQuery| {
        let placed = |(number, candidate): (usize, &Candidate)| Placed {
            candidate: number,
            score: scores[candidate.example as usize][0],
        };
        let mut order: Vec<Placed> = query.candidates.iter().enumerate().map(placed).collect();
        let name = |placed: &Placed| &query.candidates[placed.candidate].document;
        order.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| name(a).cmp(name(b))));
        order
    };
    queries.iter().map(ranked).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Row X29.
    #[test]
    fn equal_scores_are_ordered_by_name() {
        let candidate = |document: &str, example| Candidate { document: document.into(), example, grade: 0 };
        let candidates = vec![candidate("c", 0), candidate("a", 1), candidate("b", 2), candidate("d", 3)];
        let query = RankedQuery { id: "1".into(), candidates, judged: Vec::new() };
        let ranked = rank_documents(&[query], &[vec![0.5], vec![-1.0], vec![0.5], vec![0.75]]);
        let order: Vec<usize> = ranked[0].iter().map(|placed| placed.candidate).collect();
        assert_eq!(order, [3, 2, 0, 1]);
    }
}

use ahash::AHashSet;

/// How much of what is relevant is among the first of a ranking.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recall {
    /// Relevant nodes among the first k, divided by all relevant ones.
    pub recall: f64,
    /// The most it could be: k, or the relevant nodes that are ranked at all where they are fewer, divided by all relevant ones.
    pub ceiling: f64,
}

impl Recall {
    /// Recall of the first `k` of `ranking`, best first, which names a node once. With no relevant node both are 0.
    pub fn at(k: usize, ranking: &[u32], relevant: &[u32]) -> Recall {
        let relevant: AHashSet<u32> = relevant.iter().copied().collect();
        let hits = |ranked: &[u32]| ranked.iter().filter(|node| relevant.contains(node)).count();
        let found = hits(&ranking[..k.min(ranking.len())]);
        let all = relevant.len().max(1) as f64;
        Recall { recall: found as f64 / all, ceiling: hits(ranking).min(k) as f64 / all }
    }

    /// The means over several classes or splits; `None` of none.
    pub fn mean(recalls: &[Recall]) -> Option<Recall> {
        let mean = |of: fn(&Recall) -> f64| recalls.iter().map(of).sum::<f64>() / recalls.len() as f64;
        (!recalls.is_empty())
            .then(|| Recall { recall: mean(|one| one.recall), ceiling: mean(|one| one.ceiling) })
    }
}

/// Nodes in the order of their scores, highest first; equal scores in the order of nodes, what is not a number last.
pub fn rank_nodes(scores: impl IntoIterator<Item = (u32, f32)>) -> Vec<u32> {
    let mut ranked: Vec<(u32, f32)> = scores.into_iter().collect();
    let key = |score: f32| if score.is_nan() { f32::NEG_INFINITY } else { score };
    ranked.sort_by(|one, other| key(other.1).total_cmp(&key(one.1)).then(one.0.cmp(&other.0)));
    ranked.into_iter().map(|(node, _)| node).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Row P16.
    #[test]
    fn recall_has_a_ceiling() {
        // Of five relevant nodes 7 and 8 are not ranked; the first three hold two.
        let ranking = rank_nodes([(0, 0.9), (1, 0.1), (2, 0.5), (3, 0.7), (4, f32::NAN), (5, 0.2)]);
        assert_eq!(ranking, [0, 3, 2, 5, 1, 4]);
        let relevant = [0, 2, 1, 7, 8];
        assert_eq!(Recall::at(3, &ranking, &relevant), Recall { recall: 0.4, ceiling: 0.6 });
        // A k below the number of relevant nodes bounds it too.
        assert_eq!(Recall::at(1, &ranking, &relevant), Recall { recall: 0.2, ceiling: 0.2 });
        assert_eq!(Recall::at(9, &ranking, &relevant), Recall { recall: 0.6, ceiling: 0.6 });
        assert_eq!(Recall::at(9, &ranking, &[]), Recall { recall: 0.0, ceiling: 0.0 });
    }

    /// Row P18.
    #[test]
    fn recall_is_averaged_over_splits() {
        let one = Recall::at(2, &[3, 1, 2], &[3, 1]);
        let other = Recall::at(2, &[3, 1, 2], &[2, 0, 1, 5]);
        assert_eq!(Recall::mean(&[one, other]), Some(Recall { recall: 0.625, ceiling: 0.75 }));
        assert_eq!(Recall::mean(&[]), None);
    }

    #[test]
    fn equal_scores_keep_the_order_of_nodes() {
        assert_eq!(rank_nodes([(2, 1.0), (0, 1.0), (1, 2.0)]), [1, 0, 2]);
    }
}

/// Groups things of these lengths, in tokens, for an evaluation: the longest first, equal lengths in the order of their
/// numbers. A group has at most `max_rows` rows (0: any number), and at most `max_tokens` tokens once it is padded, rows
/// times its longest; what is longer than that alone stands in a group of its own. All are in one group each, whatever
/// ranks there are.
///
/// ```
/// use segue_sentences::group_by_length;
///
/// assert_eq!(group_by_length(&[3, 9, 2, 3], 6, 0), [vec![1], vec![0, 3], vec![2]]);
/// ```
pub fn group_by_length(lengths: &[u32], max_tokens: usize, max_rows: usize) -> Vec<Vec<u32>> {
    let mut order: Vec<u32> = (0..lengths.len() as u32).collect();
    order.sort_by_key(|&n| std::cmp::Reverse(lengths[n as usize]));
    let mut groups: Vec<Vec<u32>> = Vec::new();
    for n in order {
        let fits = |group: &&mut Vec<u32>| {
            let longest = lengths[group[0] as usize] as usize;
            let rows = group.len() + 1;
            rows.saturating_mul(longest) <= max_tokens && (max_rows == 0 || rows <= max_rows)
        };
        match groups.last_mut().filter(fits) {
            Some(group) => group.push(n),
            None => groups.push(vec![n]),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn groups_hold_everything_once_and_keep_to_their_bounds(
            lengths in prop::collection::vec(1u32..60, 0..200), tokens in 1usize..300, rows in 0usize..9,
        ) {
            let groups = group_by_length(&lengths, tokens, rows);
            for group in &groups {
                let longest = group.iter().map(|n| lengths[*n as usize] as usize).max().unwrap();
                prop_assert!(group.len() == 1 || group.len() * longest <= tokens);
                prop_assert!(rows == 0 || group.len() <= rows);
            }
            let order = groups.concat();
            let key = |n: &u32| (std::cmp::Reverse(lengths[*n as usize]), *n);
            prop_assert!(order.is_sorted_by_key(key));
            prop_assert_eq!(order.len(), lengths.len());
        }
    }
}

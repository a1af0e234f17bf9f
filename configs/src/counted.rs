use std::fmt::Display;

/// A count with its noun, for messages: of one thing in the singular. The plural is a regular one.
///
/// ```
/// use segue_configs::counted;
/// assert_eq!(counted(1, "shard"), "1 shard");
/// assert_eq!(counted(0, "shard"), "0 shards");
/// assert_eq!(counted(3, "memory"), "3 memories");
/// ```
pub fn counted<N: Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    match count == N::from(1) {
        true => format!("{count} {noun}"),
        false => format!("{count} {}", plural(noun)),
    }
}

fn plural(noun: &str) -> String {
    match noun.strip_suffix('y') {
        Some(stem) if !stem.ends_with(['a', 'e', 'o', 'u']) => format!("{stem}ies"),
        _ if ["s", "x", "ch", "sh"].iter().any(|end| noun.ends_with(end)) => format!("{noun}es"),
        _ => format!("{noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular_and_all_others_plural() {
        let counts: Vec<String> = [0u64, 1, 2, 21].map(|count| counted(count, "rank")).to_vec();
        assert_eq!(counts, ["0 ranks", "1 rank", "2 ranks", "21 ranks"]);
        assert_eq!(counted(1usize, "micro-batch"), "1 micro-batch");
    }

    #[test]
    fn plurals_are_regular() {
        for (noun, several) in [
            ("entry", "2 entries"),
            ("key", "2 keys"),
            ("pass", "2 passes"),
            ("micro-batch", "2 micro-batches"),
            ("failed run", "2 failed runs"),
        ] {
            assert_eq!(counted(2, noun), several);
        }
    }
}

//! Names and lists as people write them.

/// Names this similar (Jaro-Winkler, 0 to 1) are worth suggesting: those of one word have less in common by chance than keys.
const SIMILAR_NAMES: f64 = 0.85;

/// Of some names the one that is most like `given`, where one is like it.
pub fn nearest_name<'a>(given: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let scored = names.map(|name| (strsim::jaro_winkler(given, name), name));
    let best = scored.filter(|(likeness, _)| *likeness >= SIMILAR_NAMES).max_by(|a, b| a.0.total_cmp(&b.0));
    best.map(|(_, name)| name)
}

/// Words between commas or spaces as a list of TOML: of numbers, else of texts.
pub fn listed(words: &str) -> String {
    let all = words.trim_matches(|c| ['[', ']', '(', ')'].contains(&c)).split([',', ' ']);
    let all: Vec<&str> = all.map(str::trim).filter(|word| !word.is_empty()).collect();
    match all.iter().all(|word| word.parse::<f64>().is_ok()) {
        true => format!("[{}]", all.join(", ")),
        false => serde_json::json!(all).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_pen_is_known_and_another_word_is_not() {
        let names = || ["demo", "tiny", "mrpc"].into_iter();
        assert_eq!(nearest_name("dmeo", names()), Some("demo"));
        assert_eq!(nearest_name("mprc", names()), Some("mrpc"));
        assert_eq!(nearest_name("large", names()), None);
    }

    #[test]
    fn words_between_commas_are_a_list() {
        for (words, list) in
            [("1, 4", "[1, 4]"), ("q,v", r#"["q","v"]"#), ("(0.5 2)", "[0.5, 2]"), ("3", "[3]")]
        {
            assert_eq!(listed(words), list);
        }
    }
}

/// Whether a line is the title of a WikiText article: ` = Title = ` with a single equals sign on both sides.
pub(super) fn is_heading(line: &str) -> bool {
    let inner = line.trim().strip_prefix("= ").and_then(|rest| rest.strip_suffix(" ="));
    inner.is_some_and(|title| !title.trim_start().starts_with('=') && !title.trim_end().ends_with('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_first_level_headings_begin_articles() {
        for heading in [" = Homarus gammarus = ", " = A = B = ", "= x ="] {
            assert!(is_heading(heading), "{heading:?}");
        }
        for other in [" = = Section = = ", " = = = Deeper = = = ", " text = more ", " = open ", " = = ", ""] {
            assert!(!is_heading(other), "{other:?}");
        }
    }
}

//! Plain text as Markdown.

/// Where paragraphs are wrapped.
const WIDTH: usize = 120;

/// Where pages of the book lie.
const PAGES: &str = "docs/book/src/";

/// Text of a doc comment: options and marks that Markdown would take for its own stand as they are, pages of the book are
/// linked, from a folder beside theirs.
pub fn text(plain: &str) -> String {
    let mut out = String::new();
    for (i, part) in plain.split('`').enumerate() {
        match i % 2 {
            0 => out.push_str(&outside_code(part)),
            _ => out.push_str(&format!("`{part}`")),
        }
    }
    out
}

fn outside_code(text: &str) -> String {
    text.split_inclusive(char::is_whitespace).map(word).collect()
}

fn word(word: &str) -> String {
    let end = word.trim_end_matches(|c: char| c.is_whitespace() || ",.;:)".contains(c)).len();
    let begin = end - word[..end].trim_start_matches('(').len();
    let (before, core, after) = (&word[..begin], &word[begin..end], &word[end..]);
    let core = match core.strip_prefix(PAGES) {
        Some(page) => format!("[{}](../{page})", page.split('#').next().unwrap_or_default()),
        _ if core.starts_with("--") && core.len() > 2 => format!("`{core}`"),
        // `<` begins a tag only before a letter.
        _ if core.len() > 1 => core.replace('<', "\\<").replace('*', "\\*"),
        _ => core.into(),
    };
    format!("{before}{core}{after}")
}

/// A cell of a table.
pub fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

/// A row of a table.
pub fn row(cells: &[String]) -> String {
    let cells =
        cells.iter().map(|text| if text.is_empty() { " |".into() } else { format!(" {} |", cell(text)) });
    format!("|{}\n", cells.collect::<String>())
}

/// The head of a table.
pub fn head(names: &[&str]) -> String {
    format!("| {} |\n|{}\n", names.join(" | "), "---|".repeat(names.len()))
}

/// A text without its end is given one.
pub fn sentence(text: &str) -> String {
    match text.ends_with(['.', ':', '?']) || text.is_empty() {
        true => text.to_string(),
        false => format!("{text}."),
    }
}

/// A paragraph in lines.
pub fn wrapped(text: &str) -> String {
    let mut out = String::new();
    let mut length = 0;
    for word in text.split_whitespace() {
        let width = word.chars().count();
        if length > 0 {
            let full = length + 1 + width > WIDTH;
            out.push(if full { '\n' } else { ' ' });
            length = if full { 0 } else { length + 1 };
        }
        out.push_str(word);
        length += width;
    }
    out + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_and_marks_stand_as_they_are() {
        assert_eq!(text("with --to tf, <eos> of *.json"), "with `--to` tf, \\<eos> of \\*.json");
        let linked = "`a <b>` ([formats/graphs.md](../formats/graphs.md#y)).";
        assert_eq!(text("`a <b>` (docs/book/src/formats/graphs.md#y)."), linked);
        assert_eq!(row(&["a|b".into(), "".into(), "c\nd".into()]), "| a\\|b | | c d |\n");
        assert_eq!(
            wrapped(&"word ".repeat(30)),
            format!("{}\n{}\n", ["word"; 24].join(" "), ["word"; 6].join(" "))
        );
    }
}

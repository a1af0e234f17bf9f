//! WikiText's tokens back to text as people write it. What the tokenisation has lost (which of two straight quotes
//! opens, whether a dash stood alone) is guessed from the neighbours; the text is for reading, not for encoding.

/// Tokens that stand for a character inside a word or number.
const JOINERS: [(&str, char); 3] = [("@-@", '-'), ("@,@", ','), ("@.@", '.')];

/// Text of WikiText's tokens, separated by white space, as people write it: punctuation moves to its word, `@-@`,
/// `@,@` and `@.@` join what they stand between, `= = title = =` becomes `== title ==`.
///
/// ```
/// use segue_tokenizer::detokenize;
///
/// assert_eq!(detokenize("1 @,@ 500 people ( \" hard @-@ shelled \" ) ."), "1,500 people (\"hard-shelled\").");
/// ```
pub fn detokenize(text: &str) -> String {
    detokenize_after("", text)
}

/// [`detokenize`] of a text that follows another: a quotation that is open at the end of `before` is closed by the
/// next quote. The space between both texts, if there is one, is left out.
pub fn detokenize_after(before: &str, text: &str) -> String {
    let mut line = Line::default();
    // Earlier lines have no say in this one.
    line.write(before.rsplit('\n').next().unwrap_or_default());
    let mut out = String::with_capacity(text.len());
    for (i, tokens) in text.split('\n').enumerate() {
        if i > 0 {
            out.push('\n');
            line = Line::default();
        }
        match heading(tokens) {
            Some(heading) if line.is_new() => out.push_str(&heading),
            _ => {
                let words = line.write(tokens);
                out.push_str(words.strip_prefix(' ').unwrap_or(&words));
            }
        }
    }
    out
}

/// A line of WikiText as running text, and whether it is a heading, which loses its marks.
pub fn running_text(line: &str) -> (String, bool) {
    match title(line) {
        Some((title, _)) => (title, true),
        None => (Line::default().write(line).trim_start().to_owned(), false),
    }
}

fn heading(tokens: &str) -> Option<String> {
    let (title, depth) = title(tokens)?;
    let marks = "=".repeat(depth);
    Some(format!("{marks} {title} {marks}"))
}

/// A title between equally many `=` on both sides, and how many they are.
fn title(tokens: &str) -> Option<(String, usize)> {
    let words: Vec<&str> = tokens.split_whitespace().collect();
    let depth = words.iter().take_while(|w| **w == "=").count();
    let closing = words.iter().rev().take_while(|w| **w == "=").count();
    if depth == 0 || depth != closing || words.len() <= 2 * depth {
        return None;
    }
    Some((Line::default().write(&words[depth..words.len() - depth].join(" ")), depth))
}

/// What a line has shown so far.
#[derive(Default)]
struct Line {
    /// The token before, empty at the start of the line.
    last: String,
    /// No space comes before the next token.
    joined: bool,
    double_open: bool,
    single_open: bool,
}

/// On which sides a token has no space.
#[derive(Clone, Copy, PartialEq)]
enum Side {
    Neither,
    Left,
    Right,
    Both,
}

impl Line {
    fn is_new(&self) -> bool {
        self.last.is_empty()
    }

    /// Text of further tokens of the line.
    fn write(&mut self, tokens: &str) -> String {
        let mut out = String::with_capacity(tokens.len());
        let mut words = tokens.split_whitespace().peekable();
        while let Some(word) = words.next() {
            let joiner = JOINERS.iter().find(|(token, _)| *token == word);
            let side = if joiner.is_some() { Side::Both } else { self.side(word, words.peek().copied()) };
            let first = self.is_new() || self.joined || matches!(side, Side::Left | Side::Both);
            if !first {
                out.push(' ');
            }
            match joiner {
                Some((_, character)) => out.push(*character),
                None => out.push_str(word),
            }
            self.joined = matches!(side, Side::Right | Side::Both);
            self.last = word.to_string();
        }
        out
    }

    fn side(&mut self, word: &str, next: Option<&str>) -> Side {
        match word {
            "\"" => toggled(&mut self.double_open),
            // A genitive whose parts were set apart.
            "'" if next == Some("s") => Side::Both,
            // After an s it rather marks a plural's genitive.
            "'" if !self.single_open && self.last.ends_with('s') => Side::Left,
            "'" => toggled(&mut self.single_open),
            "," | "." | ";" | ":" | "!" | "?" | "%" | ")" | "]" | "}" | "..." | "…" | "”" | "’" => {
                Side::Left
            }
            "(" | "[" | "{" | "“" | "‘" | "$" | "£" | "€" | "₹" | "#" | "°" => Side::Right,
            "–" if is_number(&self.last) && next.is_some_and(is_number) => Side::Both,
            // 's, 't, 're
            _ if word.len() > 1 && word.starts_with(['\'', '’']) => Side::Left,
            _ => Side::Neither,
        }
    }
}

/// An opening quote holds to what follows, a closing one to what came before.
fn toggled(open: &mut bool) -> Side {
    *open = !*open;
    if *open { Side::Right } else { Side::Left }
}

fn is_number(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit()) && word.ends_with(|c: char| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_open_and_close_and_genitives_do_neither() {
        assert_eq!(detokenize("the \" <unk> \" , he said"), "the \"<unk>\", he said");
        assert_eq!(detokenize("the lobsters ' claws don 't ' bite ' ."), "the lobsters' claws don't 'bite'.");
    }

    #[test]
    fn headings_keep_their_depth() {
        assert_eq!(detokenize(" = = Life cycle = = \nIt is"), "== Life cycle ==\nIt is");
        assert_eq!(detokenize(" = Du Fu 's poems = "), "= Du Fu's poems =");
        assert_eq!(detokenize("a = b"), "a = b");
        assert_eq!(detokenize(" = = "), "= =");
    }

    #[test]
    fn text_after_an_open_quotation_closes_it() {
        assert_eq!(detokenize_after("he said \" I", "am \" ."), "am\".");
        assert_eq!(detokenize_after("he said \" I\n", "\" am"), "\"am");
    }
}

//! Regular expressions of a `tokenizer.json`. The Python package matches them with Oniguruma, this program by `fancy-regex`: most of them match
//! the same text, and those that would not are refused, as ids would differ without a word.

use std::iter::Peekable;
use std::str::CharIndices;

use serde_json::Value;

/// Classes between `[:` and `:]` that are the same in both; others are of ASCII alone here, and of Unicode there.
const SAME_CLASSES: [&str; 2] = ["ascii", "xdigit"];
/// Letters that one character stands for where case is ignored, as `ß` for `ss`: there, and not here.
const LIGATURES: [&str; 5] = ["ff", "fi", "fl", "ss", "st"];
/// What to do about any of them.
const ADVICE: &str = "put what is meant in its place, of what is the same in both, such as \\p{L}, \\p{N}, \\s, \\r and \\n, and compare the ids with \
                      those of the package; or choose another tokenizer";

/// Refuses patterns in a normaliser or pre-tokenizer that match other text in the Python package than here.
pub(crate) fn check(step: &Value, name: &str) -> Result<(), String> {
    if let Some(pattern) = step["pattern"]["Regex"].as_str()
        && let Some(what) = difference(pattern)
    {
        let kind = step["type"].as_str().unwrap_or_default();
        return Err(format!(
            "the pattern `{pattern}` of a {kind} in its {name} has {what}, which matches other text in the Python package\nhint: {ADVICE}"
        ));
    }
    let nested = ["normalizers", "pretokenizers"].into_iter().filter_map(|list| step[list].as_array());
    nested.flatten().try_for_each(|inner| check(inner, name))
}

/// The first construct that is different in the two, if there is one. Found by comparing all characters and many texts, see `tests/patterns.rs`.
fn difference(pattern: &str) -> Option<String> {
    let mut scan = Scan { pattern, chars: pattern.char_indices().peekable(), ignores_case: vec![false] };
    while let Some((at, c)) = scan.chars.next() {
        let found = match c {
            '\\' => scan.escape(at, false),
            '[' => scan.class(at),
            '(' => scan.group(at),
            ')' => {
                scan.ignores_case.pop();
                None
            }
            '{' => scan.count(at),
            '^' | '$' => Some(format!("`{c}`")),
            _ => scan.letter(c),
        };
        if found.is_some() {
            return found;
        }
    }
    None
}

struct Scan<'a> {
    pattern: &'a str,
    chars: Peekable<CharIndices<'a>>,
    /// Whether case is ignored in each of the groups that are open.
    ignores_case: Vec<bool>,
}

impl<'a> Scan<'a> {
    fn ignores_case(&self) -> bool {
        self.ignores_case.last().is_some_and(|ignores| *ignores)
    }

    fn rest(&mut self) -> &'a str {
        let at = self.chars.peek().map_or(self.pattern.len(), |(at, _)| *at);
        &self.pattern[at..]
    }

    /// Goes on behind so many bytes.
    fn skip(&mut self, bytes: usize) {
        let end = self.pattern.len() - self.rest().len() + bytes;
        while self.chars.next_if(|(at, _)| *at < end).is_some() {}
    }

    /// An escape, whose backslash is behind.
    fn escape(&mut self, at: usize, in_class: bool) -> Option<String> {
        let (place, c) = self.chars.next()?;
        let mut end = place + c.len_utf8();
        if matches!(c, 'p' | 'P' | 'x' | 'u')
            && let Some(close) = self.rest().find('}').filter(|_| self.rest().starts_with('{'))
        {
            self.skip(close + 1);
            end += close + 1;
        }
        let whole = &self.pattern[at..end];
        let differs = match c {
            'w' | 'W' => true,
            // A backspace in a class.
            'b' | 'B' | '<' | '>' | 'Z' => !in_class,
            'p' | 'P' => whole.len() == 2 || self.ignores_case(),
            'x' | 'u' => self.ignores_case(),
            _ => false,
        };
        differs.then(|| self.construct(whole))
    }

    fn construct(&self, text: &str) -> String {
        let case = if self.ignores_case() { " without regard to case" } else { "" };
        format!("`{text}`{case}")
    }

    /// A class, whose first bracket is behind.
    fn class(&mut self, at: usize) -> Option<String> {
        let mut depth = 1;
        self.first_of_class();
        while depth > 0 {
            let (place, c) = self.chars.next()?;
            let found = match c {
                '\\' => self.escape(place, true),
                '[' => match self.class_name() {
                    Some(name) => self.named_class(place, name),
                    None => {
                        depth += 1;
                        self.first_of_class();
                        None
                    }
                },
                ']' => {
                    depth -= 1;
                    None
                }
                // A difference and a symmetric one here, and characters there.
                '-' | '~' if self.rest().starts_with(c) => {
                    Some(format!("`{c}{c}` in `{}`", &self.pattern[at..]))
                }
                _ => self.folded(c),
            };
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// A bracket in front of all else in a class is a character.
    fn first_of_class(&mut self) {
        self.chars.next_if(|(_, c)| *c == '^');
        self.chars.next_if(|(_, c)| *c == ']');
    }

    /// What stands between `[:` and `:]`, whose first bracket is behind.
    fn class_name(&mut self) -> Option<&'a str> {
        let (name, _) = self.rest().strip_prefix(':')?.split_once(":]")?;
        name.chars().all(|c| c == '^' || c.is_ascii_alphabetic()).then_some(name)
    }

    fn named_class(&mut self, at: usize, name: &str) -> Option<String> {
        self.skip(name.len() + ":".len() + ":]".len());
        let same = SAME_CLASSES.contains(&name.trim_start_matches('^'));
        (!same).then(|| self.construct(&self.pattern[at..at + name.len() + "[::]".len()]))
    }

    /// A group, whose parenthesis is behind.
    fn group(&mut self, at: usize) -> Option<String> {
        let outer = self.ignores_case();
        let rest = self.rest();
        if rest.starts_with("?#") {
            let end = rest.find(')').unwrap_or(rest.len());
            self.skip(end + 1);
            return None;
        }
        self.ignores_case.push(outer);
        let flags = rest.strip_prefix('?').unwrap_or_default();
        let length = flags.find(|c: char| c != '-' && !c.is_ascii_alphabetic()).unwrap_or(0);
        let (flags, behind) = flags.split_at(length);
        if flags.is_empty() || !behind.starts_with([':', ')']) {
            // Those with another sign are no flags: groups with names, and what looks ahead or behind.
            return None;
        }
        let ignores = match flags {
            "i" => true,
            "-i" => false,
            _ => return Some(format!("`(?{flags}`")),
        };
        self.skip(length + 2);
        if behind.starts_with(':') {
            *self.ignores_case.last_mut()? = ignores;
            return None;
        }
        self.ignores_case.pop();
        // There, flags hold for what follows up to the group's end as one group, alternatives included.
        let before = &self.pattern[..at];
        let begins_group = before.is_empty() || before.ends_with("(?:") && !before.ends_with("\\(?:");
        *self.ignores_case.last_mut()? = ignores;
        (!begins_group).then(|| format!("`(?{flags})` behind other things"))
    }

    /// A count in braces, whose first is behind: what comes behind it belongs to it here, and counts once more there.
    fn count(&mut self, at: usize) -> Option<String> {
        let end = self.rest().find('}')? + 1;
        let count = &self.rest()[..end - 1];
        let (least, most) = count.split_once(',').unwrap_or((count, "-"));
        let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(least) || most != "-" && !is_number(most) {
            return None;
        }
        self.skip(end);
        let behind = self.rest().chars().next();
        let differs = match behind {
            Some('+' | '*' | '{') => true,
            Some('?') => most == "-",
            _ => least.is_empty() && most.is_empty(),
        };
        let shown = at..at + 1 + end + usize::from(behind.is_some());
        differs.then(|| format!("`{}`", &self.pattern[shown]))
    }

    /// A character outside of classes.
    fn letter(&mut self, c: char) -> Option<String> {
        if !self.ignores_case() {
            return None;
        }
        let mut behind = self.rest();
        // Groups without a number do not keep letters apart there.
        while let Some(rest) = behind.strip_prefix(")").or_else(|| behind.strip_prefix("(?:")) {
            behind = rest;
        }
        let pair: String = behind.chars().next().map(|next| [c, next]).into_iter().flatten().collect();
        match LIGATURES.iter().any(|letters| letters.eq_ignore_ascii_case(&pair)) {
            true => Some(self.construct(&pair)),
            false => self.folded(c),
        }
    }

    /// A character that may have other forms, or make one with the letter before it, where case is ignored.
    fn folded(&self, c: char) -> Option<String> {
        /// Dashes, quotation marks and the like.
        const PUNCTUATION: std::ops::RangeInclusive<char> = '\u{2010}'..='\u{2027}';
        let is_plain = c.is_ascii() || PUNCTUATION.contains(&c) || !self.ignores_case();
        (!is_plain).then(|| self.construct(c.encode_utf8(&mut [0; 4])))
    }
}

//! Runs as one file of HTML that asks for nothing from anywhere.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use crate::RunView;
use crate::page::{HTML, SCRIPT, STYLE, data};

/// Where the page names its style, its script and its data.
const STYLE_LINK: &str = r#"<link rel="stylesheet" href="style.css">"#;
const SCRIPT_LINK: &str = r#"<script src="page.js" defer></script>"#;
const DATA: &str = r#"<script type="application/json" id="data">"#;

/// The page with its style, its script and what is known of `runs` in it.
pub fn html(runs: &[RunView]) -> String {
    let policy = format!(
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src '{}'; style-src '{}'; img-src data:\">",
        hash(SCRIPT),
        hash(STYLE)
    );
    let (head, rest) = cut(HTML, STYLE_LINK);
    let (body, rest) = cut(rest, DATA);
    let (between, end) = cut(rest, SCRIPT_LINK);
    let data = in_script(&data(runs).to_string());
    format!("{head}{policy}\n<style>{STYLE}</style>{body}{DATA}{data}{between}<script>{SCRIPT}</script>{end}")
}

/// A text before and after a part of it, which the page has: a test holds it to that.
fn cut<'a>(text: &'a str, part: &str) -> (&'a str, &'a str) {
    text.split_once(part).unwrap_or((text, ""))
}

/// JSON as it may stand in an element `script`: `<` is only found in its strings, which know it by its number too.
fn in_script(json: &str) -> String {
    json.replace('<', "\\u003c")
}

/// A source of a policy: the element whose text has this hash.
fn hash(text: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(text)))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::SampleView;

    #[test]
    fn the_page_has_each_of_its_parts_once() {
        for part in [STYLE_LINK, SCRIPT_LINK, DATA] {
            assert_eq!(HTML.matches(part).count(), 1, "{part}");
        }
        assert!(!SCRIPT.contains("</script") && !STYLE.contains("</style"));
    }

    #[test]
    fn the_data_of_a_run_never_ends_its_element() {
        let hostile = "</script><script>alert(1)</script><!--<script>";
        let sample = SampleView { sample: hostile.into(), ..SampleView::default() };
        let run = RunView { name: hostile.into(), samples: vec![sample], ..RunView::default() };
        let html = html(&[run]);
        assert!(!html.contains("alert(1)</"));
        assert_eq!(html.matches("<script").count(), 2, "the data and the page's own");
        assert_eq!(html.matches("</script>").count(), 2);
        let data = html.split_once(DATA).unwrap().1.split_once("</script>").unwrap().0;
        let data: Value = serde_json::from_str(data).unwrap();
        assert_eq!(data["runs"][0]["name"], hostile);
    }

    #[test]
    fn the_file_asks_for_nothing() {
        let html = html(&[]);
        assert!(html.contains("default-src 'none'"));
        for request in ["src=", "href=\"style", "url(", "@import"] {
            assert!(!html.contains(request), "{request}");
        }
        // `printf '' | openssl dgst -sha256 -binary | base64`
        assert_eq!(hash(""), "sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
    }
}

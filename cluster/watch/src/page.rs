//! The one page, which is served while runs live and written into reports.

use serde_json::{Value, json};

use crate::{RunView, Series, now, thinned};

/// The page without its style, script and data.
pub const HTML: &str = include_str!("page/index.html");
/// Its style.
pub const STYLE: &str = include_str!("page/style.css");
/// Its script.
pub const SCRIPT: &str = include_str!("page/page.js");

/// Points of a curve that the page gets: more than a screen has columns.
const POINTS: usize = 2000;

/// Runs as the page takes them: whole, with the time that ages count from.
pub fn data(runs: &[RunView]) -> Value {
    json!({ "now": now(), "runs": runs.iter().enumerate().map(|(i, run)| whole(i, run)).collect::<Vec<_>>() })
}

/// A run with its number among those that are shown, and its curves.
pub fn whole(index: usize, run: &RunView) -> Value {
    let mut value = without_curves(index, run);
    let thin = |(name, points): (&String, &Series)| json!([name, thinned(points, POINTS)]);
    value["series"] = run.series.iter().map(thin).collect();
    value
}

/// A run as it is sent where its curves have not grown.
pub fn without_curves(index: usize, run: &RunView) -> Value {
    let mut value = json!(run);
    value["index"] = json!(index);
    value
}

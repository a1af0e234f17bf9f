//! A sweep as Markdown: its cells, by attention length or by measures of their own, and its expected orders.

use segue_configs::sweep::At;

use super::ablation::Summary;
use super::own_measures;
use super::statistics::Interval;

impl Summary {
    /// The summary as Markdown.
    pub fn markdown(&self) -> String {
        if self.rows.iter().any(|row| !row.measures.is_empty() || !row.published.scores.is_empty()) {
            return own_measures::markdown(self) + &self.checks_markdown(false);
        }
        let mut text = format!("# {}\n\n", self.name);
        text.push_str(
            "Perplexity: median over seeds, with mean and 95 % confidence interval. `init` is at the attention length of\n\
             training, `best` at the best one; `attention` is the smallest length that reaches the best.\n\n",
        );
        text.push_str(
            "| cell | seeds | init | best | attention | published row | init | best | attention |\n\
             |---|---|---|---|---|---|---|---|---|\n",
        );
        for row in &self.rows {
            let interval = |i: Option<Interval>| i.map_or("–".into(), |i| i.text_with_median());
            let published = |value: Option<f64>| value.map_or("–".into(), |v| format!("{v:.2}"));
            text.push_str(&format!(
                "| {} | {} | {} | {} | {} | {} | {} | {} | {} |\n",
                row.label,
                row.init.map_or(0, |i| i.count),
                interval(row.init),
                interval(row.best),
                or_dash(row.attention),
                if row.published.row.is_empty() { "–" } else { &row.published.row },
                published(row.published.init),
                published(row.published.best),
                or_dash(row.published.attention),
            ));
        }
        text + &self.lengths_markdown() + &self.checks_markdown(true)
    }

    fn lengths_markdown(&self) -> String {
        let mut text = "\n## By attention length\n\n".to_string();
        for row in &self.rows {
            let each: Vec<String> =
                row.lengths.iter().map(|(length, i)| format!("{length}: {}", i.text())).collect();
            text.push_str(&format!("- {}: {}\n", row.label, each.join(", ")));
        }
        text
    }

    /// `with_lengths`: at which attention length cells were compared.
    fn checks_markdown(&self, with_lengths: bool) -> String {
        if self.checks.is_empty() {
            return String::new();
        }
        let (at, rule) = if with_lengths { (" at |", "---|") } else { ("", "") };
        let ([better, worse], compared) = (self.compared.sides(), self.compared.of_differences());
        let by_columns = self.checks.iter().any(|check| check.expected.column.is_some());
        let of_columns = if by_columns { " Columns in brackets have their own unit." } else { "" };
        let mut text = format!(
            "\n## Expected orders\n\n\
             The difference of {compared} is paired by seed; above 0 is as expected.{of_columns}\n\n\
             | {better} | {worse} |{at} difference | verdict |\n|---|---|{rule}---|---|\n"
        );
        for check in &self.checks {
            let at = match check.expected.at {
                _ if !with_lengths => "",
                At::Init => " init |",
                At::Best => " best |",
            };
            let [better, worse] = check.sides();
            text.push_str(&format!(
                "| {} | {} |{at} {} | {} |\n",
                better,
                worse,
                self.difference(check).unwrap_or("–".into()),
                check.verdict.words(),
            ));
        }
        text
    }
}

fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or("–".into(), |v| v.to_string())
}

//! Answers to texts, as a table for people and as JSON for programs.

use segue_report::csv_line;
use segue_tasks::{Kind, TaggedSentence};
use serde_json::{Map, Value, json};

use super::head_spec::HeadSpec;
use super::model::Scores;
use super::scoring::argmax;
use super::squad::{Candidate, DecodedQuestion};

/// The label of a word that is nothing, and of those that did not fit.
const OUTSIDE: &str = "O";

/// What is answered to one text.
#[derive(Debug, Clone, PartialEq)]
pub enum TextAnswer {
    /// It is blank.
    Nothing,
    /// Number and probability of each class, the most probable first.
    Classes(Vec<(usize, f32)>),
    /// A number.
    Number(f32),
    /// A label for each word.
    Words(Vec<WordAnswer>),
    /// Spans of a text that answer a question.
    Span(DecodedQuestion),
}

/// What is answered to a word.
#[derive(Debug, Clone, PartialEq)]
pub struct WordAnswer {
    word: String,
    /// Number of its label and its probability; none of a word that did not fit.
    label: Option<(usize, f32)>,
}

impl TextAnswer {
    /// Of the scores of a text, and of its words where they are labelled.
    pub fn of(head: &HeadSpec, scores: &Scores, words: Option<&TaggedSentence>) -> Self {
        match (head.kind, words) {
            (Kind::Regression, _) => Self::Number(scores.first().copied().unwrap_or(f32::NAN)),
            (_, None) => Self::Classes(ranked(scores)),
            (_, Some(sentence)) => {
                let labels = head.labels.len();
                let label = |place: u32| best(&scores[place as usize * labels..][..labels]);
                let words = sentence.words.iter().zip(&sentence.positions);
                let word = |(word, place): (&String, &Option<u32>)| WordAnswer {
                    word: word.clone(),
                    label: place.map(label),
                };
                Self::Words(words.map(word).collect())
            }
        }
    }
}

/// Classes by their scores, the first of equals first, with their probabilities.
fn ranked(scores: &[f32]) -> Vec<(usize, f32)> {
    let mut classes: Vec<(usize, f32)> = probabilities(scores).into_iter().enumerate().collect();
    classes.sort_by(|(a, _), (b, _)| scores[*b].total_cmp(&scores[*a]));
    classes
}

/// The class that is answered, with its probability.
fn best(scores: &[f32]) -> (usize, f32) {
    let class = argmax(scores) as usize;
    (class, probabilities(scores)[class])
}

/// Softmax.
fn probabilities(scores: &[f32]) -> Vec<f32> {
    let most = scores.iter().fold(f32::NEG_INFINITY, |most, score| most.max(*score));
    let odds: Vec<f64> = scores.iter().map(|score| f64::from(score - most).exp()).collect();
    let sum: f64 = odds.iter().sum();
    odds.into_iter().map(|odds| (odds / sum) as f32).collect()
}

/// Answers to the texts of an input.
pub struct AnswerTable<'a> {
    head: &'a HeadSpec,
    /// How many classes or spans of each text are shown; `None` for the first, and the probabilities of all classes.
    shown: Option<usize>,
    answers: Vec<(u64, TextAnswer)>,
}

impl<'a> AnswerTable<'a> {
    /// What `head` answers on lines of the input. `top`: how many classes or spans are asked for; no more are shown than there are.
    pub fn new(head: &'a HeadSpec, top: Option<usize>, answers: Vec<(u64, TextAnswer)>) -> Self {
        let spans = |(_, answer): &(u64, TextAnswer)| match answer {
            TextAnswer::Span(question) => question.candidates.len(),
            _ => 1,
        };
        let all = match head.kind {
            Kind::Span => answers.iter().map(spans).max().unwrap_or(1),
            _ => head.labels.len(),
        };
        Self { head, shown: top.map(|top| top.min(all)), answers }
    }

    /// RFC 4180, with a header: a row for each text, or for each word.
    pub fn csv(&self) -> String {
        let rows = self.answers.iter().flat_map(|(line, answer)| self.rows(*line, answer));
        csv_line(self.header()) + &rows.map(csv_line).collect::<String>()
    }

    /// An object for each text.
    pub fn json(&self) -> Vec<Value> {
        self.answers.iter().map(|(line, answer)| self.object(*line, answer)).collect()
    }

    fn header(&self) -> Vec<String> {
        let of = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
        match (self.head.kind, self.shown) {
            (Kind::Regression, _) => of(&["line", "number"]),
            (Kind::Tagging, _) => of(&["line", "place", "word", "label", "probability"]),
            (Kind::Span, shown) => {
                let answers = (1..=shown.unwrap_or(1)).flat_map(|rank| match shown {
                    Some(_) => [format!("answer_{rank}"), format!("p_{rank}")],
                    None => ["answer".into(), "probability".into()],
                });
                of(&["line", "null_odds"]).into_iter().chain(answers).collect()
            }
            (_, Some(shown)) => {
                let pairs = (1..=shown).flat_map(|rank| [format!("label_{rank}"), format!("p_{rank}")]);
                std::iter::once("line".into()).chain(pairs).collect()
            }
            (_, None) => {
                let of_labels = self.head.labels.iter().map(|label| format!("p_{label}"));
                ["line".into(), "label".into()].into_iter().chain(of_labels).collect()
            }
        }
    }

    fn rows(&self, line: u64, answer: &TextAnswer) -> Vec<Vec<String>> {
        let row = |cells: Vec<String>| std::iter::once(line.to_string()).chain(cells).collect();
        match answer {
            TextAnswer::Nothing => vec![row(vec![String::new(); self.header().len() - 1])],
            TextAnswer::Number(number) => vec![row(vec![number.to_string()])],
            TextAnswer::Classes(classes) => vec![row(self.cells(classes))],
            TextAnswer::Span(question) => {
                let spans = question.candidates.iter().take(self.shown.unwrap_or(1));
                let spans = spans.flat_map(|span| [span.text.clone(), span.probability.to_string()]);
                let mut cells: Vec<String> =
                    std::iter::once(question.null_odds.to_string()).chain(spans).collect();
                cells.resize(self.header().len() - 1, String::new());
                vec![row(cells)]
            }
            TextAnswer::Words(words) => {
                let cells = |(place, word): (usize, &WordAnswer)| {
                    let probability =
                        word.label.map_or(String::new(), |(_, probability)| probability.to_string());
                    let label = self.label_of(word).unwrap_or_default().to_string();
                    row(vec![(place + 1).to_string(), word.word.clone(), label, probability])
                };
                words.iter().enumerate().map(cells).collect()
            }
        }
    }

    fn cells(&self, classes: &[(usize, f32)]) -> Vec<String> {
        let label = |class: usize| self.head.labels[class].clone();
        match self.shown {
            Some(shown) => {
                let shown = classes.iter().take(shown);
                shown.flat_map(|(class, probability)| [label(*class), probability.to_string()]).collect()
            }
            None => {
                let mut by_class = classes.to_vec();
                by_class.sort_by_key(|(class, _)| *class);
                let best = classes.first().map(|(class, _)| label(*class));
                best.into_iter()
                    .chain(by_class.iter().map(|(_, probability)| probability.to_string()))
                    .collect()
            }
        }
    }

    fn object(&self, line: u64, answer: &TextAnswer) -> Value {
        let mut object = json!({ "line": line });
        match answer {
            TextAnswer::Nothing => match self.head.kind {
                Kind::Regression => object["number"] = Value::Null,
                Kind::Tagging => object["words"] = json!([]),
                Kind::Span => object["answer"] = Value::Null,
                _ => object["label"] = Value::Null,
            },
            TextAnswer::Number(number) => object["number"] = json!(number),
            TextAnswer::Words(words) => object["words"] = words.iter().map(|word| self.word(word)).collect(),
            TextAnswer::Span(question) => {
                let one = |span: &Candidate| json!({ "answer": span.text, "probability": span.probability });
                let best = question.candidates.first().map(one).unwrap_or_default();
                (object["answer"], object["probability"]) =
                    (best["answer"].clone(), best["probability"].clone());
                object["null_odds"] = json!(question.null_odds);
                if let Some(shown) = self.shown {
                    object["top"] = question.candidates.iter().take(shown).map(one).collect();
                }
            }
            TextAnswer::Classes(classes) => {
                object["label"] = json!(classes.first().map(|(class, _)| &self.head.labels[*class]));
                let (key, shown) = self.classes(classes);
                object[key] = shown;
            }
        }
        object
    }

    fn word(&self, word: &WordAnswer) -> Value {
        let probability = word.label.map(|(_, probability)| probability);
        json!({ "word": word.word, "label": self.label_of(word), "probability": probability })
    }

    /// What is shown of the classes of a text, and its key.
    fn classes(&self, classes: &[(usize, f32)]) -> (&'static str, Value) {
        let label = |class: usize| &self.head.labels[class];
        let one = |(class, p): &(usize, f32)| json!({ "label": label(*class), "probability": p });
        let named = |(class, p): &(usize, f32)| (label(*class).clone(), json!(p));
        match self.shown {
            Some(shown) => ("top", classes.iter().take(shown).map(one).collect()),
            None => ("probabilities", Value::Object(classes.iter().map(named).collect::<Map<_, _>>())),
        }
    }

    /// The label of a word. One that did not fit is nothing, where there is a label for that.
    fn label_of(&self, word: &WordAnswer) -> Option<&str> {
        let labels = &self.head.labels;
        match word.label {
            Some((label, _)) => labels.get(label).map(String::as_str),
            None => labels.iter().map(String::as_str).find(|label| *label == OUTSIDE),
        }
    }
}

#[cfg(test)]
mod tests {
    use segue_tasks::TaskSummary;

    use super::*;

    fn head(kind: Kind, labels: &[&str]) -> HeadSpec {
        let labels = labels.iter().map(|label| label.to_string()).collect();
        HeadSpec { task: "task".into(), kind, labels, summary: TaskSummary::Last }
    }

    #[test]
    fn classes_come_with_the_probability_of_each() {
        let head = head(Kind::Classification, &["a", "b,c", "d"]);
        // e⁰ : e^ln 2 : e^ln 1 = 1 : 2 : 1.
        let scores = vec![0.0, 2f32.ln(), 0.0];
        let answers = vec![(1, TextAnswer::of(&head, &scores, None)), (4, TextAnswer::Nothing)];
        let table = |top| AnswerTable::new(&head, top, answers.clone());
        assert_eq!(table(None).csv(), "line,label,p_a,\"p_b,c\",p_d\n1,\"b,c\",0.25,0.5,0.25\n4,,,,\n");
        assert_eq!(table(Some(2)).csv(), "line,label_1,p_1,label_2,p_2\n1,\"b,c\",0.5,a,0.25\n4,,,,\n");
        assert_eq!(table(Some(9)).csv().lines().next(), Some("line,label_1,p_1,label_2,p_2,label_3,p_3"));
        assert_eq!(
            table(None).json(),
            [
                json!({ "line": 1, "label": "b,c", "probabilities": { "a": 0.25, "b,c": 0.5, "d": 0.25 } }),
                json!({ "line": 4, "label": null })
            ]
        );
        let top = json!([{ "label": "b,c", "probability": 0.5 }]);
        assert_eq!(table(Some(1)).json()[0], json!({ "line": 1, "label": "b,c", "top": top }));
    }

    #[test]
    fn numbers_and_words_have_tables_of_their_own() {
        let number = head(Kind::Regression, &[]);
        let answers = vec![(2, TextAnswer::of(&number, &vec![1.5], None)), (3, TextAnswer::Nothing)];
        let table = AnswerTable::new(&number, None, answers);
        assert_eq!(table.csv(), "line,number\n2,1.5\n3,\n");
        assert_eq!(table.json(), [json!({ "line": 2, "number": 1.5 }), json!({ "line": 3, "number": null })]);
        let tags = head(Kind::Tagging, &["B", "O"]);
        let words = ["x", "y", "z"].map(String::from).to_vec();
        let sentence = TaggedSentence { words, gold: Vec::new(), positions: vec![Some(0), Some(2), None] };
        let scores = vec![3f32.ln(), 0.0, 9.0, 9.0, 0.0, 0.0];
        let answers = vec![(1, TextAnswer::of(&tags, &scores, Some(&sentence)))];
        let table = AnswerTable::new(&tags, None, answers);
        let csv = "line,place,word,label,probability\n1,1,x,B,0.75\n1,2,y,B,0.5\n1,3,z,O,\n";
        assert_eq!(table.csv(), csv);
        assert_eq!(table.json()[0]["words"][2], json!({ "word": "z", "label": "O", "probability": null }));
    }

    #[test]
    fn spans_come_with_the_odds_that_there_is_none() {
        let span = head(Kind::Span, &[]);
        let candidate = |text: &str, probability| Candidate {
            text: text.into(),
            probability,
            start_log_prob: 0.0,
            end_log_prob: 0.0,
        };
        let decoded = |candidates| DecodedQuestion { id: "1".into(), candidates, null_odds: -2.5 };
        let two = TextAnswer::Span(decoded(vec![candidate("a, b", 0.75), candidate("c", 0.25)]));
        let answers = vec![
            (1, two),
            (2, TextAnswer::Span(decoded(vec![candidate("d", 1.0)]))),
            (3, TextAnswer::Nothing),
        ];
        let table = |top| AnswerTable::new(&span, top, answers.clone());
        assert_eq!(
            table(None).csv(),
            "line,null_odds,answer,probability\n1,-2.5,\"a, b\",0.75\n2,-2.5,d,1\n3,,,\n"
        );
        let csv =
            "line,null_odds,answer_1,p_1,answer_2,p_2\n1,-2.5,\"a, b\",0.75,c,0.25\n2,-2.5,d,1,,\n3,,,,,\n";
        assert_eq!(table(Some(5)).csv(), csv);
        let first = json!({ "line": 2, "answer": "d", "probability": 1.0, "null_odds": -2.5 });
        assert_eq!(table(None).json()[1..], [first, json!({ "line": 3, "answer": null })]);
    }
}

//! RACE (Yang 2019, §2.2.3): a folder a split, in it `high` and `middle`, in them a JSON file an article.

use std::path::{Path, PathBuf};

use segue_data_error::{DataError, without_mark};
use segue_publish::read_regular;
use serde::Deserialize;
use serde_json::Value;

use super::data::{Split, TaskData};
use super::example::Kind;
use super::json::{Name, whole_number};
use super::labels::is_missing;
use super::questions::{Article, Question, of_letter, of_number, of_text, split_of};
use super::request::{Request, nothing_read};
use super::reviews::text_files;
use super::table::cell_of;

/// Folders of the parts that are scored apart.
const LEVELS: &[&str] = &["high", "middle"];

/// A file of RACE's.
#[derive(Deserialize)]
struct RaceFile {
    #[serde(default)]
    id: Option<Name>,
    article: String,
    questions: Vec<String>,
    options: Vec<Vec<String>>,
    /// Letters, or numbers from 0; test files of other makers may lack them.
    answers: Option<Vec<Value>>,
}

pub(super) fn open(request: &Request<'_>) -> Result<TaskData, DataError> {
    let mut data = nothing_read(request, Kind::Choice, Vec::new());
    if request.splits.train {
        data.train = Some(read(request, "train")?);
    }
    if request.splits.dev {
        data.dev.push(read(request, "dev")?);
    }
    if request.splits.test && request.folder().join("test").is_dir() {
        data.test.push(read(request, "test")?);
    }
    Ok(data)
}

fn read(request: &Request<'_>, split: &str) -> Result<Split, DataError> {
    let only = request.name().strip_prefix("race-");
    let folder = request.folder().join(split);
    let files = files(&folder, only)?;
    if files.is_empty() {
        return Err(request.missing(&folder, &["high/*.txt", "middle/*.txt", "*.txt"]));
    }
    let mut sieve = request.sieve_of(split);
    let mut hasher = blake3::Hasher::new();
    let mut articles = Vec::with_capacity(files.len());
    for (level, path) in files {
        let bytes = read_regular(&path).map_err(|e| DataError::read(&path, e))?;
        hasher.update(&bytes);
        let article = article(&path, level, &bytes);
        if let Some(article) = sieve.keep(article)?
            && only.is_none_or(|only| article.questions.iter().all(|q| q.group.as_deref() == Some(only)))
        {
            articles.push(article);
        }
    }
    split_of(request, split, &folder, &articles, hasher.finalize().to_hex().to_string(), sieve)
}

/// The files of a split with their levels, those of one level only where it is asked for; files that lie in no level's
/// folder tell theirs in their `id`, if at all.
fn files(folder: &Path, only: Option<&str>) -> Result<Vec<(Option<&'static str>, PathBuf)>, DataError> {
    let mut files = Vec::new();
    for level in LEVELS.iter().filter(|level| only.is_none_or(|only| only == **level)) {
        let folder = folder.join(level);
        if folder.is_dir() {
            files.extend(text_files(&folder)?.into_iter().map(|path| (Some(*level), path)));
        }
    }
    if folder.is_dir() {
        files.extend(text_files(folder)?.into_iter().map(|path| (None, path)));
    }
    Ok(files)
}

fn article(path: &Path, level: Option<&str>, bytes: &[u8]) -> Result<Article, DataError> {
    let file: RaceFile = serde_json::from_slice(without_mark(bytes)).map_err(|e| {
        DataError::line(path, e.line().max(1) as u64, format!("it is not an article in RACE's layout: {e}"))
    })?;
    // An empty list is how some write that no answer is told.
    let answers = file.answers.filter(|answers| !answers.is_empty());
    let counts = [file.options.len(), answers.as_ref().map_or(file.questions.len(), Vec::len)];
    if counts.iter().any(|count| *count != file.questions.len()) {
        let why = format!(
            "it has {} questions, but options for {} and answers for {}",
            file.questions.len(),
            counts[0],
            counts[1]
        );
        return Err(DataError::line(path, 1, why));
    }
    let id = file.id.map(String::from).unwrap_or_default();
    let level = level.or_else(|| LEVELS.iter().copied().find(|level| id.starts_with(level)));
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let mut answers = answers.into_iter().flatten();
    let mut questions = Vec::with_capacity(file.questions.len());
    for (number, (text, options)) in file.questions.into_iter().zip(file.options).enumerate() {
        let told = answers.next();
        let written = cell_of(told.clone());
        let answer = told
            .filter(|_| !is_missing(&written))
            .map_or(Ok(None), |answer| place(&answer, &options).map(Some));
        let index = match level {
            Some(level) => format!("{level}/{stem}-{number}"),
            None => format!("{stem}-{number}"),
        };
        let group = level.map(str::to_owned);
        questions.push(Question { index, text, options, answer, written, group });
    }
    Ok(Article { path: path.into(), line: 1, passage: file.article, questions })
}

/// The place of the option that an answer names, or why it names none.
fn place(answer: &Value, options: &[String]) -> Result<u32, String> {
    if let Some(place) = answer.as_str().and_then(|letter| of_letter(letter, options.len())) {
        return Ok(place);
    }
    let (number, text) = (of_number(answer, options.len()), of_text(answer, options));
    // A text in digits may be that of another option, which no number is in these files.
    let number = number.filter(|number| answer.is_number() || text.is_none_or(|text| text == *number));
    number.ok_or_else(|| {
        let hint = match (whole_number(answer), text) {
            (Some(_), None) => "\nhint: name options by letters, or by numbers from 0",
            (Some(_), Some(_)) => "\nhint: name options by letters",
            (None, _) => "",
        };
        let answer = cell_of(Some(answer.clone()));
        format!("the answer `{answer}` is not one of its {} options{hint}", options.len())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Article, DataError> {
        article("dev/high/7.txt".as_ref(), Some("high"), text.as_bytes())
    }

    /// Row X24.
    #[test]
    fn an_article_has_its_questions_with_options_and_answers() {
        let text = r#"{"answers": ["B", "A"], "options": [["a", "b"], ["c", "d"]], "questions": ["x _ .", "y?"],
                       "article": "Long ago.", "id": "high7.txt"}"#;
        let article = read(text).unwrap();
        assert_eq!(article.passage, "Long ago.");
        let told: Vec<_> = article.questions.iter().map(|q| (q.index.as_str(), q.answer.clone())).collect();
        assert_eq!(told, [("high/7-0", Ok(Some(1))), ("high/7-1", Ok(Some(0)))]);
        assert_eq!(article.questions[0].group.as_deref(), Some("high"));
    }

    #[test]
    fn articles_that_do_not_hang_together_are_refused() {
        for (text, why) in [
            ("{\"article\": 3", "line 1: it is not an article in RACE's layout"),
            (r#"{"article": "a", "questions": ["q"], "options": [], "answers": ["A"]}"#, "options for 0"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.to_string().contains(why), "{error}");
            assert_eq!(error.exit_code(), 65);
        }
    }

    #[test]
    fn answers_that_are_not_told_are_none_and_a_wrong_one_costs_its_own_question_alone() {
        let told = |answers: &str| -> Vec<_> {
            let text = format!(
                r#"{{"article": "a", "questions": ["q", "p"], "options": [["x", "y"], ["x", "y"]], "answers": {answers}}}"#
            );
            read(&text).unwrap().questions.into_iter().map(|q| q.answer).collect()
        };
        for answers in ["null", "[]", r#"["", ""]"#, r#"["-1", null]"#] {
            assert_eq!(told(answers), [Ok(None), Ok(None)], "{answers}");
        }
        let why = Err("the answer `C` is not one of its 2 options".to_string());
        assert_eq!(told(r#"["C", "B"]"#), [why, Ok(Some(1))]);
        for answers in ["[0, 1]", "[0.0, 1.0]", r#"["0", "1"]"#, r#"["A", 1]"#] {
            assert_eq!(told(answers), [Ok(Some(0)), Ok(Some(1))], "{answers}");
        }
        assert_eq!(told("[-1, null]"), [Ok(None), Ok(None)]);
        for (answers, wrong) in [("[2, 1]", "2"), ("[0.5, 1]", "0.5"), ("[true, 1]", "true")] {
            let [first, second] = told(answers).try_into().unwrap();
            assert!(first.unwrap_err().starts_with(&format!("the answer `{wrong}` is not one of its 2")));
            assert_eq!(second, Ok(Some(1)), "{answers}");
        }
    }

    #[test]
    fn digits_that_are_the_text_of_another_option_name_none() {
        let options = ["1".to_string(), "2".into(), "3".into()];
        assert_eq!((place(&2.into(), &options), place(&"0".into(), &options)), (Ok(2), Ok(0)));
        assert!(place(&"2".into(), &options).unwrap_err().ends_with("hint: name options by letters"));
    }
}

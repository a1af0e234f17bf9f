use proptest::prelude::*;

use super::*;

/// How a file is read for a model of the task `name`.
fn asked_of<'a>(name: &'a str, task: &'a TaskConfig) -> InputOptions<'a> {
    InputOptions { name, task, format: None, text: None, second_text: None }
}

fn read(file: &str, text: &str, task: &str) -> Result<Inputs, DataError> {
    Inputs::parse(file.as_ref(), text.as_bytes(), &asked_of(task, &TaskConfig::default()))
}

fn texts(inputs: &Inputs) -> Vec<(u64, &str, Option<&str>)> {
    inputs.texts.iter().map(|text| (text.line, text.first.as_str(), text.second.as_deref())).collect()
}

#[test]
fn each_line_of_text_keeps_its_number_and_blank_ones_are_told() {
    let task = "text";
    let inputs = read("in.txt", "\u{FEFF}a\tb\r\n\r\n  \nc, \"d\n", task).unwrap();
    assert_eq!(texts(&inputs), [(1, "a\tb", None), (2, "", None), (3, "  ", None), (4, "c, \"d", None)]);
    assert_eq!((inputs.blank(), inputs.notes.len()), (vec![2, 3], 0));
    assert_eq!(texts(&read("in", "a", task).unwrap()), [(1, "a", None)]);
    for (bytes, why) in
        [(&b""[..], "in.txt, line 1: the file is empty"), (b"a\n\xFF\n", "in.txt, line 2: it is not UTF-8")]
    {
        let (usual, file) = (TaskConfig::default(), "in.txt".as_ref());
        let error = Inputs::parse(file, bytes, &asked_of(task, &usual)).unwrap_err();
        assert!(error.to_string().starts_with(why) && error.exit_code() == 65, "{error}");
    }
}

#[test]
fn tables_need_no_label_and_leave_one_out() {
    let task = "text";
    let tsv = read("in.tsv", "sentence\tlabel\nplain \"text\t1\n\n\t0\nlast\t\n", task).unwrap();
    assert_eq!(texts(&tsv), [(2, "plain \"text", None), (4, "", None), (5, "last", None)]);
    assert_eq!(tsv.blank(), [4]);
    assert_eq!(
        tsv.notes,
        ["text from `sentence`; not read: `label`", "warning: blank lines, which are no rows: line 3"]
    );
    let csv = read("in.csv", "review\n\"two\nlines\"\n\"\"\n\nb\n", task).unwrap();
    assert_eq!(texts(&csv), [(2, "two\nlines", None), (4, "", None), (6, "b", None)]);
    assert_eq!(csv.notes[1], "warning: blank lines, which are no rows: line 5");
    let json =
        read("in.jsonl", "{\"text\": \"a\", \"text_pair\": \"b\"}\n{\"text\": \"c\"}\n", task).unwrap();
    assert_eq!(texts(&json), [(1, "a", Some("b")), (2, "c", Some(""))]);
    assert_eq!(json.blank(), [2]);
    let bare = read("in.tsv", "good food\t1\nbad\t0\n", task).unwrap();
    assert_eq!(texts(&bare), [(1, "good food", None), (2, "bad", None)]);
    let error = read("in.jsonl", "{\"text\": \"a\"}\n[1]\n", task).unwrap_err();
    assert!(!error.hint().unwrap().contains("skip_bad"), "{:?}", error.hint());
}

#[test]
fn columns_are_those_that_are_named_then_those_of_the_training() {
    let table = "a\tb\ttext\nx\ty\tz\n";
    let asked = |task: &TaskConfig, text, second_text| {
        let format = Some(InputFormat::Tsv);
        let options = InputOptions { format, text, second_text, ..asked_of("text", task) };
        Inputs::parse("in".as_ref(), table.as_bytes(), &options)
    };
    let trained = TaskConfig { text: "b".into(), second_text: "a".into(), ..TaskConfig::default() };
    let elsewhere = TaskConfig { text: "body".into(), ..TaskConfig::default() };
    for (found, expected) in [
        (asked(&trained, Some("text"), None), (2, "z", Some("x"))),
        (asked(&trained, None, Some("text")), (2, "y", Some("z"))),
        (asked(&elsewhere, Some("a"), None), (2, "x", None)),
        (asked(&trained, Some("2"), Some("b")), (2, "z", Some("y"))),
        (asked(&trained, None, None), (2, "y", Some("x"))),
        (asked(&elsewhere, None, None), (2, "z", None)),
    ] {
        assert_eq!(texts(&found.unwrap()), [expected]);
    }
    let error = asked(&trained, Some("body"), None).unwrap_err().to_string();
    assert!(error.contains("--text: there is no column `body`; there are a, b, text"), "{error}");
    let options = InputOptions { text: Some("a"), ..asked_of("text", &trained) };
    let error = Inputs::parse("in.txt".as_ref(), table.as_bytes(), &options).unwrap_err();
    assert!(error.exit_code() == 64 && error.hint().unwrap().contains("--format"), "{error}");
}

#[test]
fn a_model_of_pairs_that_is_given_single_texts_is_told() {
    let pairs = "sentence1\tsentence2\na\tb\n";
    let warned = |name: &str, file: &str, text: &str| {
        read(file, text, name).unwrap().notes.iter().any(|note| note.starts_with("warning: the model"))
    };
    assert!(warned("rte", "in.txt", "a\n") && warned("sst2", "in.tsv", pairs));
    assert!(
        !warned("rte", "in.tsv", pairs)
            && !warned("sst2", "in.txt", "a\n")
            && !warned("text", "in.txt", "a\n")
    );
}

proptest! {
    #[test]
    fn any_bytes_give_texts_of_lines_that_rise_or_an_error(
        bytes in proptest::collection::vec(any::<u8>(), 0..120),
        format in proptest::sample::select(InputFormat::NAMES.map(|(_, format)| format).to_vec()),
        task in proptest::sample::select(vec!["text", "rte", "agnews"]),
    ) {
        let usual = TaskConfig::default();
        let options = InputOptions { format: Some(format), ..asked_of(task, &usual) };
        if let Ok(inputs) = Inputs::parse("in".as_ref(), &bytes, &options) {
            prop_assert!(!inputs.texts.is_empty() && inputs.texts.is_sorted_by_key(|text| text.line));
        }
    }
}

use serde_json::{Value, json};

/// Segments of the first text, the second, `<cls>`, and of what fills up a batch, as XLNet's program numbers them.
pub(crate) const SEGMENTS: [u8; 4] = [0, 1, 2, 3];

/// `A <sep> <cls>` and `A <sep> B <sep> <cls>` as a `post_processor` of `tokenizer.json`.
pub(crate) fn template(sep: (&str, u32), cls: (&str, u32)) -> Value {
    let [first, second, last, _] = SEGMENTS;
    let special = |(name, id): (&str, u32)| json!({ "id": name, "ids": [id], "tokens": [name] });
    let sequence = |name: &str, segment: u8| json!({ "Sequence": { "id": name, "type_id": segment } });
    let token =
        |(name, _): (&str, u32), segment: u8| json!({ "SpecialToken": { "id": name, "type_id": segment } });
    let (a, b, cls_last) = (sequence("A", first), sequence("B", second), token(cls, last));
    json!({
        "type": "TemplateProcessing",
        "single": [a, token(sep, first), cls_last],
        "pair": [a, token(sep, first), b, token(sep, second), cls_last],
        "special_tokens": { sep.0: special(sep), cls.0: special(cls) },
    })
}

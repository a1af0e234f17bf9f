use segue_data_error::DataError;

/// Text that is encoded by itself.
pub(crate) struct Unit<'a> {
    pub(crate) text: Content<'a>,
    /// Where it lies in its file: the start of the line that it is in, or begins with.
    pub(crate) offset: u64,
    /// Whether a document begins here.
    pub(crate) begins_document: bool,
    /// Whether the unit's first line begins here; otherwise it goes on with a line that was cut.
    pub(crate) begins_sentence: bool,
    /// Whether the token that ends a line or document comes after it.
    pub(crate) ends: bool,
}

/// What a unit holds.
pub(crate) enum Content<'a> {
    /// One line without its end.
    Line(&'a str),
    /// One line without its end, of bytes that need not be text.
    RawLine(&'a [u8]),
    /// A sentence of running text, which no token ends.
    Sentence(&'a str),
    /// No text: a document of running text ends here.
    DocumentEnd,
    /// Text with line breaks.
    Text(&'a str),
    /// Bytes that need not be text.
    Bytes(&'a [u8]),
}

impl Content<'_> {
    /// Number of its bytes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Content::Line(text) | Content::Sentence(text) | Content::Text(text) => text.len(),
            Content::RawLine(bytes) | Content::Bytes(bytes) => bytes.len(),
            Content::DocumentEnd => 0,
        }
    }
}

/// Takes units as they come.
pub(super) type Each<'e> = &'e mut dyn FnMut(Unit<'_>) -> Result<(), DataError>;

/// The token that ends a sentence or a document in the vocabularies trained here.
pub const EOS: &str = "<eos>";
/// The token that stands for what a vocabulary lacks.
pub const UNK: &str = "<unk>";

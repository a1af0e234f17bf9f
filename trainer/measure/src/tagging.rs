//! Scores of entities in tagged sequences, as `conlleval` and the default mode of `seqeval` count them.

use std::collections::HashSet;

use serde::Serialize;
use thiserror::Error;

use super::classification::BinaryScores;

/// An entity of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Entity<'t> {
    /// What it is: the tag behind its prefix, such as `PER`.
    pub kind: &'t str,
    /// Place of its first token.
    pub first: usize,
    /// Place of its last token.
    pub last: usize,
}

/// How well entities are found, all kinds together (micro average).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct EntityScores {
    /// Precision, recall and F1; an entity counts where first token, last token and kind are right.
    #[serde(flatten)]
    pub scores: BinaryScores,
    /// Entities that are there.
    pub gold: usize,
    /// Entities that were predicted.
    pub predicted: usize,
}

/// A tag that is neither `O` nor `B-`, `I-`, `E-` or `S-` with a kind.
#[derive(Debug, PartialEq, Eq, Error)]
#[error("`{tag}` is not a tag: use O, B-KIND, I-KIND, E-KIND or S-KIND")]
pub struct UnknownTag {
    /// The tag.
    pub tag: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Prefix {
    Begins,
    Inside,
    Ends,
    Single,
}

/// The entities of a sequence of tags.
///
/// IOB1, IOB2 and IOBES are all understood, and faulty sequences too: an `I-` or `E-` that follows nothing of its kind
/// begins an entity, a `B-` or `S-` always does, an `E-` or `S-` ends one.
///
/// ```
/// use segue_measure::{Entity, entities};
/// let found = entities(&["B-PER", "I-PER", "O", "I-LOC"]).unwrap();
/// assert_eq!(found[0], Entity { kind: "PER", first: 0, last: 1 });
/// assert_eq!(found[1], Entity { kind: "LOC", first: 3, last: 3 });
/// ```
pub fn entities<'t>(tags: &[&'t str]) -> Result<Vec<Entity<'t>>, UnknownTag> {
    let mut found: Vec<Entity<'t>> = Vec::new();
    let mut before = None;
    for (place, tag) in tags.iter().enumerate() {
        let tag = parse(tag)?;
        if let Some((prefix, kind)) = tag {
            match found.last_mut() {
                Some(open) if goes_on(before, prefix, kind) => open.last = place,
                _ => found.push(Entity { kind, first: place, last: place }),
            }
        }
        before = tag;
    }
    Ok(found)
}

/// Whether a tag belongs to the entity of the tag before it.
fn goes_on(before: Option<(Prefix, &str)>, prefix: Prefix, kind: &str) -> bool {
    let follows =
        matches!(before, Some((Prefix::Begins | Prefix::Inside, kind_before)) if kind_before == kind);
    follows && matches!(prefix, Prefix::Inside | Prefix::Ends)
}

/// Prefix and kind of a tag; none of `O`.
fn parse(tag: &str) -> Result<Option<(Prefix, &str)>, UnknownTag> {
    let unknown = || UnknownTag { tag: tag.to_owned() };
    if tag == "O" {
        return Ok(None);
    }
    let (prefix, kind) = tag.split_once('-').filter(|(_, kind)| !kind.is_empty()).ok_or_else(unknown)?;
    let prefix = match prefix {
        "B" => Prefix::Begins,
        "I" => Prefix::Inside,
        "E" => Prefix::Ends,
        "S" => Prefix::Single,
        _ => return Err(unknown()),
    };
    Ok(Some((prefix, kind)))
}

/// Scores of the predicted tags of many sequences (`conlleval`; `seqeval`'s `f1_score` and its companions).
///
/// # Panics
/// Where there are not as many predicted sequences, or tags in one, as there are true ones.
pub fn entity_scores(gold: &[Vec<&str>], predicted: &[Vec<&str>]) -> Result<EntityScores, UnknownTag> {
    assert_eq!(gold.len(), predicted.len(), "as many predicted sequences as true ones");
    let (mut right, mut golds, mut predictions) = (0, 0, 0);
    for (gold, predicted) in gold.iter().zip(predicted) {
        assert_eq!(gold.len(), predicted.len(), "as many predicted tags as tokens");
        let gold: HashSet<Entity> = entities(gold)?.into_iter().collect();
        let predicted = entities(predicted)?;
        right += predicted.iter().filter(|entity| gold.contains(entity)).count();
        golds += gold.len();
        predictions += predicted.len();
    }
    let scores = BinaryScores::of(right, predictions, golds);
    Ok(EntityScores { scores, gold: golds, predicted: predictions })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entities_of_both_schemes_are_the_same() {
        let iob1 = entities(&["I-PER", "I-PER", "B-PER", "O", "I-LOC"]).unwrap();
        let iob2 = entities(&["B-PER", "I-PER", "B-PER", "O", "B-LOC"]).unwrap();
        let iobes = entities(&["B-PER", "E-PER", "S-PER", "O", "S-LOC"]).unwrap();
        assert!(iob1 == iob2 && iob2 == iobes);
        assert_eq!(iob1.len(), 3);
    }

    #[test]
    fn a_tag_without_a_known_prefix_is_named() {
        for tag in ["PER", "X-PER", "B-", ""] {
            assert_eq!(entities(&["O", tag]), Err(UnknownTag { tag: tag.into() }));
        }
    }
}

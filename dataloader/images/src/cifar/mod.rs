//! CIFAR-10 (Krizhevsky 2009): 32 x 32 colour images of ten classes, in batches.

pub mod binary;
pub mod python;

use std::path::Path;

use segue_data_error::DataError;

use crate::{ImageSet, Labels, Shape, Split};

const SHAPE: Shape = Shape { channels: 3, height: 32, width: 32 };
/// Bytes of an image: a plane each of red, green and blue, row by row.
const IMAGE: usize = 3 * 32 * 32;
const CLASSES: usize = 10;

/// Images and labels of batches, one after the other.
#[derive(Default)]
struct Batches {
    pixels: Vec<u8>,
    labels: Vec<u16>,
}

impl Batches {
    /// Reads the batches of a split, all of which have to be there; `ending` ends the names of their files.
    fn read(
        folder: &Path,
        split: Split,
        ending: &str,
        add: impl Fn(&mut Batches, &Path) -> Result<(), DataError>,
    ) -> Result<Self, DataError> {
        let mut batches = Batches::default();
        for name in names(split) {
            add(&mut batches, &folder.join(format!("{name}{ending}")))?;
        }
        Ok(batches)
    }

    /// All of them as a set, with what the folder calls the classes.
    fn into_set(
        self,
        source: &'static str,
        folder: &Path,
        names: Option<Vec<String>>,
    ) -> Result<ImageSet, DataError> {
        let labels = Labels { of_images: self.labels, classes: CLASSES, names };
        ImageSet::new(source, SHAPE, self.pixels, Some(labels)).map_err(|why| DataError::foreign(folder, why))
    }
}

/// Names of a split's batches, without their ending.
fn names(split: Split) -> &'static [&'static str] {
    match split {
        Split::Train => &["data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5"],
        Split::Test => &["test_batch"],
    }
}

/// Whether a folder has some batch of a split; `ending` ends its name.
fn has_batches(folder: &Path, split: Split, ending: &str) -> bool {
    names(split).iter().any(|name| folder.join(format!("{name}{ending}")).is_file())
}

/// The class of a label.
fn class(label: i64) -> Option<u16> {
    u16::try_from(label).ok().filter(|class| usize::from(*class) < CLASSES)
}

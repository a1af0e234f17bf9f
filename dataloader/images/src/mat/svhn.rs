//! Street View House Numbers (Netzer et al. 2011) in its cropped format: `X`, pixels of `[rows, columns, channels, images]`, and
//! `y`, labels of `[images, 1]` in which 10 is the digit 0.

use std::path::Path;

use segue_data_error::DataError;
use segue_foreign::SharedBytes;

use super::elements::{Array, Element, Elements, Flaw, HEADER, Order, UINT8_CLASS, inflated, kind};
use crate::bytes::{bad, spelled};
use crate::{ImageSet, Labels, Shape, Split};

/// Digits.
const CLASSES: usize = 10;

/// The arrays of a file as far as they were read.
#[derive(Default)]
struct Found {
    images: Option<(Shape, Vec<u8>)>,
    labels: Option<Vec<u16>>,
}

/// Reads a split from the folder that has `train_32x32.mat` and `test_32x32.mat`.
///
/// # Errors
///
/// Those of [`read`].
pub fn read_folder(folder: &Path, split: Split) -> Result<ImageSet, DataError> {
    read(&folder.join(name(split)))
}

/// Whether a folder has the file of a split.
pub(crate) fn has(folder: &Path, split: Split) -> bool {
    folder.join(name(split)).is_file()
}

fn name(split: Split) -> String {
    format!("{split}_32x32.mat")
}

/// Reads a file of images and their labels. A label 0 is the digit 0 too, as some write it.
///
/// # Errors
///
/// A file that is missing, damaged, or without `X` or `y` of such shapes, with the byte where what is wrong begins: in a compressed
/// element, that where the element begins.
pub fn read(path: &Path) -> Result<ImageSet, DataError> {
    let file = SharedBytes::map(path)?;
    let found = read_arrays(&file).map_err(|flaw| bad(path, flaw.at, flaw.why))?;
    let lacking = |name: &str| DataError::foreign(path, format!("it has no array `{name}`"));
    let (shape, pixels) = found.images.ok_or_else(|| lacking("X"))?;
    let labels =
        Labels { of_images: found.labels.ok_or_else(|| lacking("y"))?, classes: CLASSES, names: None };
    ImageSet::new("SVHN", shape, pixels, Some(labels)).map_err(|why| DataError::foreign(path, why))
}

fn read_arrays(file: &[u8]) -> Result<Found, Flaw> {
    let order = Order::of_header(file)?;
    let (mut elements, mut found) = (Elements::new(&file[HEADER..], HEADER, order), Found::default());
    while let Some(element) = elements.next()? {
        match element.kind {
            kind::MATRIX => found.add(&element, order)?,
            kind::COMPRESSED => {
                let bytes = inflated(&element, order)?;
                let in_packed = |flaw: Flaw| {
                    let why = format!("in the compressed element, at byte {}: {}", flaw.at, flaw.why);
                    element.flaw(why)
                };
                let matrix =
                    Elements::new(&bytes, 0, order).expect(kind::MATRIX, "element").map_err(in_packed)?;
                found.add(&matrix, order).map_err(in_packed)?;
            }
            other => return Err(element.flaw(format!("an element of type {other}, expected an array"))),
        }
    }
    Ok(found)
}

impl Found {
    /// Adds the array of an element, where it is one of the two.
    fn add(&mut self, element: &Element<'_>, order: Order) -> Result<(), Flaw> {
        let array = Array::of(element, order)?;
        let is_second = match array.name {
            b"X" => self.images.replace(images(array)?).is_some(),
            b"y" => self.labels.replace(labels(array, order)?).is_some(),
            _ => false,
        };
        match is_second {
            true => Err(element.flaw("a second array of one name")),
            false => Ok(()),
        }
    }
}

/// Images of an array of `[rows, columns, channels, images]`, in which rows vary fastest: `[images, channels, rows, columns]`.
fn images(array: Array<'_>) -> Result<(Shape, Vec<u8>), Flaw> {
    let (at, class) = (array.at, array.class);
    // MATLAB drops a last size of 1.
    let (height, width, channels) = match array.sizes[..] {
        [height, width, channels] | [height, width, channels, _] => (height, width, channels),
        _ => return Err(Flaw { at, why: format!("`X` of {}, expected four sizes", spelled(&array.sizes)) }),
    };
    let spelled = spelled(&array.sizes);
    let (count, values) = array.values()?;
    if class != UINT8_CLASS || values.kind != kind::UINT8 {
        return Err(values.flaw("`X` is not of unsigned bytes"));
    }
    if count == 0 || !matches!(channels, 1 | 3) {
        return Err(values.flaw(format!("`X` of {spelled}, expected images of 1 or 3 channels")));
    }
    let mut pixels = Vec::with_capacity(count);
    for plane in values.data.chunks_exact(height * width) {
        pixels.extend((0..height * width).map(|i| plane[i / width + height * (i % width)]));
    }
    Ok((Shape { channels, height, width }, pixels))
}

/// Labels of an array with one size that is not 1.
fn labels(array: Array<'_>, order: Order) -> Result<Vec<u16>, Flaw> {
    let (at, sizes) = (array.at, array.sizes.clone());
    if sizes.iter().filter(|size| **size != 1).count() > 1 {
        return Err(Flaw { at, why: format!("`y` of {}, expected images x 1", spelled(&sizes)) });
    }
    let (_, values) = array.values()?;
    let label = |(image, value): (usize, i64)| match value {
        0..=9 => Ok(value as u16),
        10 => Ok(0),
        _ => Err(values.flaw(format!("label {value} of image {image}, expected 1 to 10"))),
    };
    values.integers(order)?.into_iter().enumerate().map(label).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::made::{mat, peer_image, refusals_of_beginnings};

    fn read_bytes(bytes: &[u8]) -> Result<ImageSet, DataError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), bytes).unwrap();
        read(file.path())
    }

    fn refusal(parts: &[Vec<u8>]) -> String {
        read_bytes(&[&[mat::header(false)], parts].concat().concat()).unwrap_err().to_string()
    }

    /// Value (row, column, channel, image) of the file is its place in MATLAB's order.
    #[test]
    fn every_form_holds_the_same_images() {
        for (big_endian, is_compressed) in [(false, false), (false, true), (true, false), (true, true)] {
            let set = read_bytes(&mat::file(big_endian, is_compressed)).unwrap();
            assert_eq!(set.shape(), Shape { channels: 3, height: 2, width: 3 });
            let mut expected = Vec::new();
            for image in 0..2 {
                for channel in 0..3 {
                    for row in 0..2 {
                        expected.extend((0..3).map(|column| row + 2 * (column + 3 * (channel + 3 * image))));
                    }
                }
            }
            assert_eq!((set.pixels(), set.label(0), set.label(1)), (&expected[..], Some(0), Some(3)));
            assert_eq!(set.labels().unwrap().classes, 10);
        }
    }

    #[test]
    fn files_of_scipy_hold_what_was_put_in() {
        for file in [
            &include_bytes!("../../tests/files/plain.mat")[..],
            include_bytes!("../../tests/files/compressed.mat"),
        ] {
            let set = read_bytes(file).unwrap();
            assert_eq!(set.pixels(), (0..3).flat_map(peer_image).collect::<Vec<_>>());
            assert_eq!((set.shape().height, &set.labels().unwrap().of_images[..]), (4, &[0, 3, 9][..]));
        }
    }

    #[test]
    fn every_beginning_of_a_file_is_refused() {
        for is_compressed in [false, true] {
            refusals_of_beginnings(&mat::file(false, is_compressed), read_bytes);
        }
    }

    #[test]
    fn one_image_without_its_last_size_and_labels_of_other_types_are_read() {
        let images = mat::array(false, "X", 9, &[1, 2, 3], (2, &[1, 2, 3, 4, 5, 6]));
        for (kind, value) in [(9, 7f64.to_le_bytes()), (12, 7i64.to_le_bytes())] {
            let labels = mat::array(false, "y", 6, &[1, 1], (kind, &value));
            let set = read_bytes(&[mat::header(false), images.clone(), labels].concat()).unwrap();
            assert_eq!((set.len(), set.pixels(), set.label(0)), (1, &[1, 2, 3, 4, 5, 6][..], Some(7)));
        }
    }

    #[test]
    fn arrays_that_are_not_those_of_svhn_are_named() {
        let images = || mat::array(false, "X", 9, &[1, 2, 3, 1], (2, &[0; 6]));
        let labels = |sizes: &[u32], kind, values: &[u8]| mat::array(false, "y", 9, sizes, (kind, values));
        let x =
            |class, sizes: &[u32], kind, values: &[u8]| mat::array(false, "X", class, sizes, (kind, values));
        for (parts, expected) in [
            (vec![images()], "it has no array `y`"),
            (vec![labels(&[1], 2, &[1])], "it has no array `X`"),
            (vec![images(), labels(&[2], 2, &[1, 1])], "2 labels for 1 image"),
            (vec![images(), images()], "byte 200: a second array of one name"),
            (vec![labels(&[1, 1], 2, &[11])], "label 11 of image 0, expected 1 to 10"),
            (vec![labels(&[1], 9, &0.5f64.to_le_bytes())], "a value that is not a whole number"),
            (vec![labels(&[1], 4, &[1, 0])], "elements of type 4, expected uint8, int64 or double"),
            (vec![labels(&[2, 2], 2, &[1; 4])], "`y` of 2 x 2, expected images x 1"),
            (vec![x(6, &[1, 2, 3, 1], 2, &[0; 6])], "`X` is not of unsigned bytes"),
            (vec![x(1, &[1, 2, 3, 1], 2, &[0; 6])], "an array that is not one of real numbers"),
            (vec![x(9 | 0x800, &[1, 2, 3, 1], 2, &[0; 6])], "an array that is not one of real numbers"),
            (vec![x(9, &[2, 3], 2, &[0; 6])], "`X` of 2 x 3, expected four sizes"),
            (
                vec![x(9, &[1, 3, 2, 1], 2, &[0; 6])],
                "`X` of 1 x 3 x 2 x 1, expected images of 1 or 3 channels",
            ),
            (vec![x(9, &[0, 0, 3, 1], 2, &[])], "`X` of 0 x 0 x 3 x 1, expected images of 1 or 3 channels"),
        ] {
            let found = refusal(&parts);
            assert!(found.contains(expected), "{found}");
        }
    }

    #[test]
    fn sizes_that_lie_are_named() {
        let x = |sizes: &[u32]| mat::array(false, "X", 9, sizes, (2, &[0; 6]));
        let with_length = |mut element: Vec<u8>, length: u32| {
            element[4..8].copy_from_slice(&length.to_le_bytes());
            element
        };
        let bomb = mat::compressed(false, &with_length(x(&[1, 2, 3, 1]), u32::MAX));
        let short = mat::compressed(false, &with_length(x(&[1, 2, 3, 1]), 90));
        let long = mat::compressed(false, &with_length(x(&[1, 2, 3, 1]), 30));
        let huge = mat::compressed(false, &x(&[1, 2, 3, 9]));
        for (part, expected) in [
            (x(&[1, 2, 3, 2]), "byte 184: 6 bytes for an array of 1 x 2 x 3 x 2"),
            (x(&[0x7FFF_FFFF; 4]), "bytes for an array of 2147483647 x 2147483647 x 2147483647 x 2147483647"),
            (x(&[1, 2, 3, u32::MAX]), "an array of a negative size"),
            (with_length(x(&[1, 2, 3, 1]), 900), "byte 128: an element of 900 bytes, of which 64 are there"),
            (bomb, "bytes that claim to hold 4294967295 compressed"),
            (short, "it holds 72 bytes compressed, expected 98"),
            (long, "it holds 39 bytes compressed, expected 38"),
            (huge, "byte 128: in the compressed element, at byte 56: 6 bytes for an array of 1 x 2 x 3 x 9"),
            (mat::element(false, 2, &[0; 8]), "an element of type 2, expected an array"),
            (vec![2, 0, 5, 0, 1, 2, 3, 4], "a small element of 5 bytes, expected 4 at the most"),
        ] {
            let found = refusal(&[part]);
            assert!(found.contains(expected), "{found}");
        }
    }

    #[test]
    fn files_of_other_versions_are_named() {
        let other = [&b"MATLAB 7.3 MAT-file"[..], &[0; 500]].concat();
        let error = read_bytes(&other).unwrap_err();
        assert!(
            error.to_string().ends_with("a file of version 7.3, which is HDF5, expected version 5"),
            "{error}"
        );
        assert_eq!(error.hint().unwrap(), "save it with `-v7`");
        let error = read_bytes(&[0; 500]).unwrap_err().to_string();
        assert!(
            error.ends_with("at byte 124: its header is not that of a MATLAB file of version 5"),
            "{error}"
        );
    }
}

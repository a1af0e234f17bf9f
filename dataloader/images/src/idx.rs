//! IDX files, as MNIST is published in (LeCun, Cortes and Burges 1998) and later sets of its kind: big-endian sizes, then bytes.
//! Either form, plain or as `.gz`, is known by its content, not by its name.

use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use segue_configs::counted;
use segue_data_error::DataError;
use segue_foreign::SharedBytes;

use crate::bytes::{MOST_PER_BYTE, bad, product, read_up_to, spelled};
use crate::{ImageSet, Labels, Shape, Split};

/// What a gzip file begins with (RFC 1952, §2.3.1).
const GZIP_MAGIC: [u8; 2] = [0x1F, 0x8B];
/// Begins a file of bytes, before the number of its dimensions.
const BYTES_MAGIC: [u8; 3] = [0, 0, 8];
/// Where the sizes of the dimensions begin.
const SIZES_AT: usize = 4;

/// Bytes of an array in any number of dimensions.
struct Array {
    sizes: Vec<usize>,
    values: Vec<u8>,
}

/// Reads the images of a file, and their labels from another one. There are as many classes as the highest label shows.
///
/// # Errors
///
/// Files that are missing, truncated, longer or shorter than they say, or of different numbers of images.
pub fn read(images: &Path, labels: Option<&Path>) -> Result<ImageSet, DataError> {
    let found = read_array(images, 3)?;
    let [count, height, width] = found.sizes[..] else { unreachable!("three sizes were read") };
    let shape = Shape { channels: 1, height, width };
    if found.values.is_empty() {
        return Err(bad(images, SIZES_AT, format!("no images: {count} x {height} x {width} pixels")));
    }
    let labels = labels.map(|path| read_labels(path, count, images)).transpose()?;
    ImageSet::new("IDX files", shape, found.values, labels).map_err(|why| DataError::foreign(images, why))
}

fn read_labels(path: &Path, count: usize, images: &Path) -> Result<Labels, DataError> {
    let found = read_array(path, 1)?;
    if found.values.len() != count {
        let labels = counted(found.values.len(), "label");
        let why = format!("{labels} for the {} of {}", counted(count, "image"), images.display());
        return Err(bad(path, SIZES_AT, why));
    }
    Ok(Labels::up_to_highest(found.values.into_iter().map(u16::from).collect()))
}

/// Reads the images and labels of a split from the folder that has them under the names of MNIST: `train-images-idx3-ubyte` and
/// `train-labels-idx1-ubyte`, `t10k-` for the test split, each possibly with `.gz`.
///
/// # Errors
///
/// Those of [`read`].
pub fn read_folder(folder: &Path, split: Split) -> Result<ImageSet, DataError> {
    let file = |part| find(folder, split, part).ok_or_else(|| missing(folder, split, part));
    read(&file(IMAGES)?, Some(&file(LABELS)?))
}

const IMAGES: &str = "images-idx3-ubyte";
const LABELS: &str = "labels-idx1-ubyte";

/// Whether a folder has images of a split.
pub(crate) fn has(folder: &Path, split: Split) -> bool {
    find(folder, split, IMAGES).is_some()
}

fn name(split: Split, part: &str) -> String {
    match split {
        Split::Train => format!("train-{part}"),
        Split::Test => format!("t10k-{part}"),
    }
}

fn find(folder: &Path, split: Split, part: &str) -> Option<PathBuf> {
    let name = name(split, part);
    [name.clone(), format!("{name}.gz")].iter().map(|name| folder.join(name)).find(|path| path.is_file())
}

fn missing(folder: &Path, split: Split, part: &str) -> DataError {
    let what = if part == IMAGES { "images" } else { "labels" };
    let why = format!("the {what} of the {split} split, plain or as .gz");
    DataError::Missing { path: folder.join(name(split, part)), why }
}

fn read_array(path: &Path, dimensions: usize) -> Result<Array, DataError> {
    let file = SharedBytes::map(path)?;
    match file.starts_with(&GZIP_MAGIC) {
        true => {
            let most = file.len().saturating_mul(MOST_PER_BYTE);
            array_of(&mut MultiGzDecoder::new(&file[..]), most, path, dimensions)
        }
        false => array_of(&mut &file[..], file.len(), path, dimensions),
    }
}

/// The array in a stream of `most` bytes at the most.
fn array_of(stream: &mut impl Read, most: usize, path: &Path, dimensions: usize) -> Result<Array, DataError> {
    let damaged = |e: std::io::Error| DataError::foreign(path, format!("it is damaged or truncated: {e}"));
    let header = read_up_to(stream, SIZES_AT + 4 * dimensions).map_err(damaged)?;
    let sizes = sizes(&header, dimensions).map_err(|(at, why)| bad(path, at, why))?;
    let expected = product(&sizes).filter(|bytes| *bytes <= most.saturating_sub(header.len()));
    let expected = expected.ok_or_else(|| {
        bad(path, SIZES_AT, format!("{} values, more than a file of its size can hold", spelled(&sizes)))
    })?;
    // One byte more shows whether the stream goes on, and has a gzip stream check its sum.
    let values = read_up_to(stream, expected.saturating_add(1)).map_err(damaged)?;
    let at = header.len() + values.len().min(expected);
    match values.len() {
        found if found < expected => {
            Err(bad(path, at, format!("it ends after {found} values, expected {}", spelled(&sizes))))
        }
        found if found > expected => {
            Err(bad(path, at, format!("it goes on after {} values", spelled(&sizes))))
        }
        _ => Ok(Array { sizes, values }),
    }
}

/// The sizes of a header, or where it is wrong and why.
fn sizes(header: &[u8], dimensions: usize) -> Result<Vec<usize>, (usize, String)> {
    let short =
        || (header.len(), format!("it ends inside the header of {} bytes", SIZES_AT + 4 * dimensions));
    let (magic, sizes) = header.split_at_checked(SIZES_AT).ok_or_else(short)?;
    if magic[..3] != BYTES_MAGIC || usize::from(magic[3]) != dimensions {
        let found: u32 = magic.iter().fold(0, |word, byte| word << 8 | u32::from(*byte));
        let what = if dimensions == 1 { "labels" } else { "images" };
        return Err((
            0,
            format!("it begins with {found:#010x}, expected {:#010x} of {what}", 0x800 + dimensions),
        ));
    }
    let (words, []) = sizes.as_chunks::<4>() else { return Err(short()) };
    match words.len() == dimensions {
        true => Ok(words.iter().map(|word| u32::from_be_bytes(*word) as usize).collect()),
        false => Err(short()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::made::{gzip, idx, refusals_of_beginnings};

    fn images(count: u32) -> Vec<u8> {
        idx(&[count, 2, 3], &(0..count as u8 * 6).collect::<Vec<_>>())
    }

    /// Reads images and labels of these bytes.
    fn read_bytes(images: &[u8], labels: &[u8]) -> Result<ImageSet, DataError> {
        let dir = tempfile::tempdir().unwrap();
        let (of_images, of_labels) = (dir.path().join("images"), dir.path().join("labels"));
        fs::write(&of_images, images).unwrap();
        fs::write(&of_labels, labels).unwrap();
        read(&of_images, Some(&of_labels))
    }

    #[test]
    fn images_are_read_plain_and_compressed_by_their_content() {
        let plain = read_bytes(&images(3), &idx(&[3], &[4, 0, 4])).unwrap();
        assert_eq!(plain.shape(), Shape { channels: 1, height: 2, width: 3 });
        assert_eq!(plain.pixels(), (0..18).collect::<Vec<u8>>());
        let labels = plain.labels().unwrap();
        assert_eq!((&labels.of_images[..], labels.classes), (&[4, 0, 4][..], 5));
        let packed = read_bytes(&gzip(&images(3)), &gzip(&idx(&[3], &[4, 0, 4]))).unwrap();
        assert_eq!(packed, plain);
    }

    #[test]
    fn every_beginning_of_a_file_is_refused() {
        let labels = idx(&[2], &[0, 1]);
        refusals_of_beginnings(&images(2), |bytes| read_bytes(bytes, &labels));
        refusals_of_beginnings(&gzip(&images(2)), |bytes| read_bytes(bytes, &labels));
        refusals_of_beginnings(&labels, |bytes| read_bytes(&images(2), bytes));
        refusals_of_beginnings(&gzip(&labels), |bytes| read_bytes(&images(2), bytes));
    }

    #[test]
    fn headers_that_lie_are_named() {
        let refusal = |images: &[u8], labels: &[u8]| read_bytes(images, labels).unwrap_err().to_string();
        let labels = idx(&[2], &[0, 1]);
        let cases = [
            (idx(&[3, 2, 3], &[0; 12]), "byte 4: 3 x 2 x 3 values, more than a file of its size can hold"),
            (idx(&[u32::MAX; 3], &[0; 12]), "4294967295 x 4294967295 x 4294967295 values, more than"),
            (idx(&[1, 2, 3], &[0; 12]), "byte 22: it goes on after 1 x 2 x 3 values"),
            (idx(&[0, 2, 3], &[]), "byte 4: no images: 0 x 2 x 3 pixels"),
            (labels.clone(), "byte 0: it begins with 0x00000801, expected 0x00000803 of images"),
            (vec![0, 0, 13, 3], "it begins with 0x00000d03, expected"),
        ];
        for (images, expected) in &cases {
            let found = refusal(images, &labels);
            assert!(found.contains(expected), "{found}");
        }
        let found = refusal(&gzip(&idx(&[3, 2, 3], &[0; 12])), &labels);
        assert!(found.contains("byte 28: it ends after 12 values, expected 3 x 2 x 3"), "{found}");
        let found = refusal(&gzip(&idx(&[1, 2, 3], &[0; 12])), &labels);
        assert!(found.contains("byte 22: it goes on after 1 x 2 x 3 values"), "{found}");
        let found = refusal(&gzip(&idx(&[u32::MAX, 1, 1], &[0; 12])), &labels);
        assert!(found.contains("more than a file of its size can hold"), "{found}");
        let found = refusal(&images(2), &idx(&[3], &[0; 3]));
        assert!(found.contains("labels, at byte 4: 3 labels for the 2 images of "), "{found}");
    }

    #[test]
    fn a_damaged_checksum_is_refused() {
        let mut packed = gzip(&images(2));
        let sum = packed.len() - 8;
        packed[sum] ^= 1;
        let error = read_bytes(&packed, &idx(&[2], &[0, 1])).unwrap_err().to_string();
        assert!(error.contains("it is damaged or truncated"), "{error}");
    }

    #[test]
    fn a_folder_without_labels_is_refused_by_their_name() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("t10k-images-idx3-ubyte.gz"), images(2)).unwrap();
        let error = read_folder(dir.path(), Split::Test).unwrap_err();
        let expected = "t10k-labels-idx1-ubyte is missing: the labels of the test split, plain or as .gz";
        assert!(error.to_string().ends_with(expected), "{error}");
        let error = read_folder(dir.path(), Split::Train).unwrap_err();
        assert!(error.to_string().contains("train-images-idx3-ubyte is missing: the images"), "{error}");
        fs::write(dir.path().join("t10k-labels-idx1-ubyte"), idx(&[2], &[0, 1])).unwrap();
        assert_eq!(read_folder(dir.path(), Split::Test).unwrap().len(), 2);
        let images = dir.path().join("t10k-images-idx3-ubyte.gz");
        assert_eq!(read(&images, None).unwrap().labels(), None);
    }

    /// The sums are of `zlib.crc32` over what `gzip` and `struct` of Python read, without the headers; counts of labels likewise.
    #[test]
    fn the_shared_digits_are_those_that_python_reads() {
        let Some(folder) = segue_skip::shared_data("mnist10k") else { return };
        for (split, count, pixels, labels, counts) in crate::made::MNIST {
            let set = read_folder(&folder, split).unwrap();
            assert_eq!((set.len(), set.shape()), (count, Shape { channels: 1, height: 28, width: 28 }));
            let of_images = &set.labels().unwrap().of_images;
            let sum = |bytes: &[u8]| {
                let mut sum = flate2::Crc::new();
                sum.update(bytes);
                sum.sum()
            };
            let bytes: Vec<u8> = of_images.iter().map(|label| *label as u8).collect();
            assert_eq!((sum(set.pixels()), sum(&bytes)), (pixels, labels), "{split}");
            let found = |class: u16| of_images.iter().filter(|label| **label == class).count();
            assert_eq!((0..10).map(found).collect::<Vec<_>>(), counts, "{split}");
        }
    }
}

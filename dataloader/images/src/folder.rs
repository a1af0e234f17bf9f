//! A folder with a folder of PNG files for each class. Classes are numbered in the order of their names, and images come in that of
//! their classes and names, as torchvision's `ImageFolder` has it. Or a folder with the PNG files themselves, whose classes nobody knows.

use std::fs;
use std::path::{Path, PathBuf};

use segue_data_error::DataError;

use crate::png_file::{self, Expected};
use crate::{ImageSet, Labels, Split};

/// Reads the classes of a folder. All images have the size of the first. Hidden files are passed over.
///
/// # Errors
///
/// No class, a class without images, a file that is not a PNG file, or one of another size or form than 8 bits a value, grey or RGB.
pub fn read(folder: &Path) -> Result<ImageSet, DataError> {
    let names = class_names(folder)?;
    let (mut files, mut of_images) = (Vec::new(), Vec::new());
    for (class, name) in names.iter().enumerate() {
        let class =
            u16::try_from(class).map_err(|_| DataError::foreign(folder, "more than 65536 classes"))?;
        for file in files_of_class(&folder.join(name))? {
            files.push(format!("{name}/{file}"));
            of_images.push(class);
        }
    }
    let labels = Labels { of_images, classes: names.len(), names: Some(names) };
    read_files(folder, files, Some(labels))
}

/// Reads the PNG files that a folder itself has, in the order of their names. Other files are passed over.
///
/// # Errors
///
/// Those of [`read`], and no PNG file.
pub fn read_flat(folder: &Path, _: Split) -> Result<ImageSet, DataError> {
    read_files(folder, png_files(folder)?, None)
}

/// Reads these files of a folder.
fn read_files(folder: &Path, files: Vec<String>, labels: Option<Labels>) -> Result<ImageSet, DataError> {
    let (mut pixels, mut first) = (Vec::new(), None);
    for file in &files {
        let path = folder.join(file);
        let expected = first.as_ref().map(|(shape, of): &(_, PathBuf)| Expected { shape: *shape, of });
        let (shape, image) = png_file::read(&path, expected.as_ref())?;
        first.get_or_insert((shape, path));
        pixels.extend(image);
    }
    let Some((shape, _)) = first else { return Err(DataError::foreign(folder, "no images")) };
    let set = ImageSet::new("PNG files", shape, pixels, labels);
    Ok(set.map_err(|why| DataError::foreign(folder, why))?.of_files(files))
}

/// Reads a split from a folder that has `train`, `test` or both. Where it has both they are to have the same classes: of different
/// ones, the same number would be another class.
///
/// # Errors
///
/// Those of [`read`], and a class that is missing in one of the two.
pub fn read_folder(folder: &Path, split: Split) -> Result<ImageSet, DataError> {
    let [train, test] = [Split::Train, Split::Test].map(|split| folder.join(split.to_string()));
    if train.is_dir() && test.is_dir() {
        let (in_train, in_test) = (class_names(&train)?, class_names(&test)?);
        let lacks =
            |names: &[String], other: &[String]| other.iter().find(|name| !names.contains(name)).cloned();
        let lacking = lacks(&in_test, &in_train).map(|name| (&test, &train, name));
        let lacking = lacking.or_else(|| lacks(&in_train, &in_test).map(|name| (&train, &test, name)));
        if let Some((path, other, name)) = lacking {
            let why = format!("it lacks the class `{name}`, which {} has", other.display());
            return Err(DataError::foreign(path, why));
        }
    }
    read(&folder.join(split.to_string()))
}

/// Whether a folder has one for a split.
pub(crate) fn has(folder: &Path, split: Split) -> bool {
    folder.join(split.to_string()).is_dir()
}

/// Whether a folder has PNG files itself, which are images to learn from.
pub(crate) fn is_flat(folder: &Path, split: Split) -> bool {
    split == Split::Train && png_files(folder).is_ok_and(|files| !files.is_empty())
}

fn is_png(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension.eq_ignore_ascii_case("png"))
}

/// Names of the PNG files of a folder.
fn png_files(folder: &Path) -> Result<Vec<String>, DataError> {
    let is_image = |(name, is_folder): &(String, bool)| !is_folder && is_png(name);
    Ok(entries(folder)?.into_iter().filter(is_image).map(|(name, _)| name).collect())
}

/// Names of what is in a folder, sorted, with whether each is a folder itself.
fn entries(folder: &Path) -> Result<Vec<(String, bool)>, DataError> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder).map_err(|e| DataError::read(folder, e))? {
        let path = entry.map_err(|e| DataError::read(folder, e))?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            return Err(DataError::foreign(&path, "its name is not UTF-8"));
        };
        if !name.starts_with('.') {
            entries.push((name.to_owned(), path.is_dir()));
        }
    }
    entries.sort();
    Ok(entries)
}

/// Classes of a folder, in their order.
fn class_names(folder: &Path) -> Result<Vec<String>, DataError> {
    let names: Vec<String> =
        entries(folder)?.into_iter().filter(|(_, is_folder)| *is_folder).map(|(name, _)| name).collect();
    match names.is_empty() {
        true => Err(DataError::foreign(folder, "it has no folder of a class")),
        false => Ok(names),
    }
}

/// Images of a class.
fn files_of_class(folder: &Path) -> Result<Vec<String>, DataError> {
    let mut files = Vec::new();
    for (name, is_folder) in entries(folder)? {
        if is_folder || !is_png(&name) {
            let path = folder.join(name);
            return Err(DataError::foreign(&path, "not a .png file, but in the folder of a class"));
        }
        files.push(name);
    }
    match files.is_empty() {
        true => Err(DataError::foreign(folder, "a class without images")),
        false => Ok(files),
    }
}

#[cfg(test)]
mod tests {
    use png::{BitDepth, ColorType};

    use super::*;
    use crate::made::png;

    /// A folder with files of these names and sizes, of which each grey level is its place.
    fn folder(files: &[(&str, u32, u32)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, width, height) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, png(*width, *height, ColorType::Grayscale, BitDepth::Eight)).unwrap();
        }
        dir
    }

    #[test]
    fn classes_and_images_come_in_the_order_of_their_names() {
        let dir =
            folder(&[("b/10.png", 2, 1), ("b/9.PNG", 2, 1), ("B/x.png", 2, 1), ("a/.hidden.png", 1, 1)]);
        fs::write(dir.path().join("a/y.png"), fs::read(dir.path().join("B/x.png")).unwrap()).unwrap();
        fs::write(dir.path().join("readme.txt"), "beside the classes").unwrap();
        let set = read(dir.path()).unwrap();
        let labels = set.labels().unwrap();
        assert_eq!(labels.names.as_deref().unwrap(), ["B", "a", "b"]);
        assert_eq!((&labels.of_images[..], set.pixels()), (&[0, 1, 2, 2][..], &[0, 1, 0, 1, 0, 1, 0, 1][..]));
        assert_eq!(set.files().unwrap(), ["B/x.png", "a/y.png", "b/10.png", "b/9.PNG"]);
    }

    #[test]
    fn files_without_folders_of_classes_are_images_without_classes() {
        let dir = folder(&[("2.png", 2, 1), ("10.PNG", 2, 1), (".hidden.png", 1, 1), ("a/0.png", 1, 1)]);
        fs::write(dir.path().join("readme.txt"), "beside the images").unwrap();
        assert!(is_flat(dir.path(), Split::Train) && !is_flat(dir.path(), Split::Test));
        let set = read_flat(dir.path(), Split::Test).unwrap();
        assert_eq!((set.files().unwrap(), set.labels()), (&["10.PNG".into(), "2.png".into()][..], None));
        assert!(!is_flat(&dir.path().join("nowhere"), Split::Train));
    }

    #[test]
    fn what_is_no_set_of_images_is_named() {
        let refusal = |dir: &tempfile::TempDir| read(dir.path()).unwrap_err().to_string();
        let error = refusal(&folder(&[("a/0.png", 2, 1), ("b/1.png", 1, 2)]));
        assert!(error.contains("b/1.png cannot be read: an image with 1 channel of 2 x 1 pixels"), "{error}");
        assert!(error.ends_with("a/0.png"), "{error}");
        let dir = folder(&[("a/0.png", 2, 1)]);
        fs::create_dir(dir.path().join("b")).unwrap();
        assert!(refusal(&dir).ends_with("b cannot be read: a class without images"));
        fs::write(dir.path().join("b/0.jpg"), "").unwrap();
        let error = refusal(&dir);
        assert!(
            error.ends_with("b/0.jpg cannot be read: not a .png file, but in the folder of a class"),
            "{error}"
        );
        assert!(refusal(&folder(&[])).ends_with("it has no folder of a class"));
    }

    #[test]
    fn both_splits_have_the_same_classes() {
        let dir = folder(&[("train/a/0.png", 1, 1), ("train/b/0.png", 1, 1), ("test/b/0.png", 1, 1)]);
        for split in [Split::Train, Split::Test] {
            let error = read_folder(dir.path(), split).unwrap_err().to_string();
            assert!(error.contains("test cannot be read: it lacks the class `a`, which "), "{error}");
        }
        fs::remove_dir_all(dir.path().join("train/a")).unwrap();
        assert_eq!(read_folder(dir.path(), Split::Test).unwrap().len(), 1);
        fs::remove_dir_all(dir.path().join("test")).unwrap();
        assert_eq!(read_folder(dir.path(), Split::Train).unwrap().len(), 1);
        assert_eq!(read_folder(dir.path(), Split::Test).unwrap_err().exit_code(), 66);
    }
}

//! Images and classes of every kind of file, against torchvision's arrays of the same files.

use std::path::Path;
use std::process::Command;

use segue_images::{Split, open};
use segue_skip::peer_python;

#[test]
fn every_form_is_read_as_torchvision_reads_it() {
    let Some(python) = peer_python("base") else { return };
    let place = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/peers/image_arrays.py");
    let output = Command::new(python).arg(script).arg(place.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for (name, train, test) in [
        ("idx", 30, 20),
        ("idx_gz", 30, 20),
        ("cifar_python", 50, 10),
        ("cifar_binary", 50, 10),
        ("svhn", 30, 20),
        ("png", 12, 12),
    ] {
        for (split, count) in [(Split::Train, train), (Split::Test, test)] {
            let expected =
                |part: &str| std::fs::read(place.path().join(format!("{name}.{split}.{part}"))).unwrap();
            let found = open(&place.path().join(name), split).unwrap();
            let labels: Vec<u16> = expected("labels").into_iter().map(u16::from).collect();
            assert_eq!(found.len(), count, "{name} {split}");
            assert!(found.pixels() == expected("pixels"), "{name} {split}");
            assert_eq!(found.labels().unwrap().of_images, labels, "{name} {split}");
        }
    }
}

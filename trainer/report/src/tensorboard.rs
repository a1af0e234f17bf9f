//! TensorBoard event files: TFRecord frames around `tensorflow.Event` messages.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use segue_kernels::TrainError;
use segue_publish::make_own_folder;

/// Rotation and offset that TFRecord adds to a CRC, so that a CRC of data with CRCs stays good.
const MASK_DELTA: u32 = 0xa282_ead8;
/// `SessionLog.SessionStatus.START`: events of this step and of later ones are void in earlier files.
const SESSION_START: u64 = 1;

/// An event file that is being written.
pub struct EventFile {
    path: PathBuf,
    file: File,
}

impl EventFile {
    /// Starts a new file in `folder`. Events of the step `from` and of later ones are void in earlier files.
    pub fn create(folder: &Path, from: u64) -> Result<Self, TrainError> {
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host = if host.trim().is_empty() { "localhost" } else { host.trim() };
        let name = format!("events.out.tfevents.{:010}.{host}.{}", now() as u64, std::process::id());
        let (path, file) = create_numbered(folder, &name)?;
        let mut events = Self { path, file };
        events.write(0, |event| bytes(event, 3, b"brain.Event:2"))?;
        events.write(from, |event| message(event, 7, |log| varint_field(log, 1, SESSION_START)))?;
        Ok(events)
    }

    /// Adds values of one step.
    pub fn scalars(&mut self, step: u64, values: &[(String, f64)]) -> Result<(), TrainError> {
        self.write(step, |event| {
            message(event, 5, |summary| {
                for (tag, value) in values {
                    message(summary, 1, |entry| {
                        bytes(entry, 1, tag.as_bytes());
                        key(entry, 2, 5);
                        entry.extend((*value as f32).to_le_bytes());
                    });
                }
            });
        })
    }

    fn write(&mut self, step: u64, fill: impl FnOnce(&mut Vec<u8>)) -> Result<(), TrainError> {
        let mut event = Vec::new();
        key(&mut event, 1, 1);
        event.extend(now().to_le_bytes());
        varint_field(&mut event, 2, step);
        fill(&mut event);
        self.file
            .write_all(&frame(&event))
            .map_err(|source| TrainError::Write { path: self.path.clone(), source })
    }
}

/// Makes the first of the files `NAME.0`, `NAME.1`, … that is not there: a run that goes back within a second of its start begins a second one.
fn create_numbered(folder: &Path, name: &str) -> Result<(PathBuf, File), TrainError> {
    let failed = |path: &Path, source| TrainError::Write { path: path.into(), source };
    make_own_folder(folder).map_err(|e| failed(folder, e))?;
    let mut number = 0;
    loop {
        let path = folder.join(format!("{name}.{number}"));
        match File::create_new(&path) {
            Ok(file) => return Ok((path, file)),
            Err(e) if e.kind() == ErrorKind::AlreadyExists => number += 1,
            Err(e) => return Err(failed(&path, e)),
        }
    }
}

/// One TFRecord: length, its masked CRC-32C, data, its masked CRC-32C.
fn frame(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    [&length[..], &masked_crc(&length), data, &masked_crc(data)].concat()
}

fn masked_crc(data: &[u8]) -> [u8; 4] {
    crc32c::crc32c(data).rotate_right(15).wrapping_add(MASK_DELTA).to_le_bytes()
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Field number and wire type (0 varint, 1 eight bytes, 2 length-delimited, 5 four bytes).
fn key(out: &mut Vec<u8>, field: u64, wire: u64) {
    varint(out, field << 3 | wire);
}

fn varint_field(out: &mut Vec<u8>, field: u64, value: u64) {
    key(out, field, 0);
    varint(out, value);
}

fn bytes(out: &mut Vec<u8>, field: u64, value: &[u8]) {
    key(out, field, 2);
    varint(out, value.len() as u64);
    out.extend(value);
}

fn message(out: &mut Vec<u8>, field: u64, fill: impl FnOnce(&mut Vec<u8>)) {
    let mut inner = Vec::new();
    fill(&mut inner);
    bytes(out, field, &inner);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_written_through_no_link() {
        let dir = tempfile::tempdir().unwrap();
        let (other, link) = (dir.path().join("other"), dir.path().join("tensorboard"));
        fs::create_dir(&other).unwrap();
        std::os::unix::fs::symlink(&other, &link).unwrap();
        let error = EventFile::create(&link, 1).err().unwrap();
        assert!(error.to_string().ends_with("tensorboard: it is a symbolic link"), "{error}");
        assert_eq!(fs::read_dir(&other).unwrap().count(), 0);
    }

    #[test]
    fn frames_are_as_tensorflow_writes_them() {
        // Made with TensorFlow's own writer around the message `file_version: "brain.Event:2"`,
        // wall_time 0: lengths and CRCs of the header record every event file begins with.
        let length = 24u64.to_le_bytes();
        assert_eq!(masked_crc(&length), [0xa3, 0x7f, 0x4b, 0x22]);
        assert_eq!(frame(b"x").len(), 8 + 4 + 1 + 4);
    }

    #[test]
    fn a_file_voids_steps_and_takes_no_file_from_another() {
        let dir = tempfile::tempdir().unwrap();
        let events = EventFile::create(dir.path(), 21).unwrap();
        let again = EventFile::create(dir.path(), 21).unwrap();
        assert_ne!(events.path, again.path);
        let bytes = fs::read(&events.path).unwrap();
        // By the .proto files of TensorFlow: `step` is field 2 of an event, `session_log` field 7, and in it `status` field 1, of which 1
        // is START. Before them the time: a key, and eight bytes.
        let begin: [u8; 6] = [2 << 3, 21, 7 << 3 | 2, 2, 1 << 3, 1];
        assert_eq!(bytes[bytes.len() - 4 - begin.len()..bytes.len() - 4], begin);
    }

    #[test]
    fn varints_are_little_endian_groups_of_seven() {
        let mut out = Vec::new();
        varint(&mut out, 300);
        assert_eq!(out, [0xac, 0x02]);
    }
}

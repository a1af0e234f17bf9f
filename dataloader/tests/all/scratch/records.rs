//! TFRecords as XLNet's reference lays them out, made the plain way for tests.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

/// What `corpus_info.json` says, and the text.
#[derive(Clone, Debug)]
pub struct Recipe {
    pub rows: usize,
    pub cores: usize,
    pub seq_len: usize,
    pub reuse_len: usize,
    pub uncased: bool,
    pub bi_data: bool,
    pub num_predict: usize,
    pub vocab_size: usize,
    /// Whether numbers are written packed, as TensorFlow does.
    pub packed: bool,
}

impl Recipe {
    pub fn name(&self) -> String {
        format!(
            "bsz-{}.seqlen-{}.reuse-{}.{}{}.alpha-6.beta-1.fnp-{}",
            self.rows,
            self.seq_len,
            self.reuse_len,
            if self.uncased { "uncased." } else { "" },
            if self.bi_data { "bi" } else { "uni" },
            self.num_predict
        )
    }

    pub fn corpus_info(&self) -> serde_json::Value {
        json!({
            "vocab_size": self.vocab_size, "bsz_per_host": self.rows, "num_core_per_host": self.cores,
            "seq_len": self.seq_len, "reuse_len": self.reuse_len, "uncased": self.uncased,
            "bi_data": self.bi_data, "mask_alpha": 6, "mask_beta": 1, "num_predict": self.num_predict,
            "use_eod": true, "sp_path": "/old/place/spiece.model", "input_glob": "/old/place/*.txt",
        })
    }

    /// The rows of a stream in the order of a step's records, each as it is read.
    pub fn streams(&self, text: &[u32]) -> Vec<Vec<u32>> {
        let directions = if self.bi_data { 2 } else { 1 };
        let pieces = self.rows / directions;
        let length = text.len() / pieces;
        let cut: Vec<&[u32]> = text[..length * pieces].chunks(length).collect();
        let mut rows = Vec::new();
        for core in cut.chunks(pieces / self.cores) {
            rows.extend(core.iter().map(|row| row.to_vec()));
            if self.bi_data {
                rows.extend(core.iter().map(|row| row.iter().rev().copied().collect::<Vec<_>>()));
            }
        }
        rows
    }

    /// Writes the folder, with one file for this task and pass; returns the number of steps.
    pub fn write(&self, folder: &Path, split: &str, task: u64, pass: u64, text: &[u32]) -> u64 {
        let records = folder.join("tfrecords");
        fs::create_dir_all(&records).unwrap();
        fs::write(folder.join("corpus_info.json"), self.corpus_info().to_string()).unwrap();
        let streams = self.streams(text);
        let (mut file, mut steps) = (Vec::new(), 0);
        while (steps as usize) * self.reuse_len + self.seq_len <= streams[0].len() {
            for (row, stream) in streams.iter().enumerate() {
                let payload = self.example(stream, steps as usize, row + steps as usize + pass as usize);
                file.extend(framed(&payload));
            }
            steps += 1;
        }
        let name = format!("{split}-{task}-{pass}.{}.tfrecords", self.name());
        fs::write(records.join(&name), file).unwrap();
        let info = json!({ "filenames": [format!("/old/place/tfrecords/{name}")], "num_batch": steps });
        fs::write(records.join(self.info_name(split, task, pass)), info.to_string()).unwrap();
        steps
    }

    pub fn info_name(&self, split: &str, task: u64, pass: u64) -> PathBuf {
        format!("record_info-{split}-{task}-{pass}.{}.json", self.name()).into()
    }

    /// One row: what is reused, A, `<sep>` (4), B from somewhere, `<sep>`, `<cls>` (3).
    fn example(&self, stream: &[u32], step: usize, choice: usize) -> Vec<u8> {
        let begin = step * self.reuse_len;
        let room = self.seq_len - self.reuse_len - 3;
        let a = 1 + choice * 7 % (room - 1);
        let b_begin = if choice.is_multiple_of(2) {
            begin + self.reuse_len + a
        } else {
            choice * 13 % (stream.len() - room)
        };
        let a_begin = begin + self.reuse_len;
        let mut input: Vec<i64> = stream[begin..a_begin + a].iter().map(|id| *id as i64).collect();
        input.push(4);
        input.extend(stream[b_begin..b_begin + room - a].iter().map(|id| *id as i64));
        input.extend([4, 3]);
        let seg_id: Vec<i64> = [vec![0; self.reuse_len + a + 1], vec![1; room - a + 1], vec![2]].concat();
        let is_masked: Vec<i64> = (0..self.seq_len).map(|i| i64::from(i < self.num_predict)).collect();
        let target: Vec<i64> = input[1..].iter().copied().chain([3]).collect();
        let fields = [
            ("input", input),
            ("is_masked", is_masked),
            ("target", target),
            ("seg_id", seg_id),
            ("label", vec![i64::from(choice.is_multiple_of(2))]),
        ];
        let entries = fields.map(|(name, numbers)| {
            let feature = message(3, &self.int64_list(&numbers));
            message(1, &[message(1, name.as_bytes()), message(2, &feature)].concat())
        });
        message(1, &entries.concat())
    }

    fn int64_list(&self, numbers: &[i64]) -> Vec<u8> {
        match self.packed {
            true => message(1, &numbers.iter().flat_map(|n| varint(*n as u64)).collect::<Vec<u8>>()),
            false => numbers.iter().flat_map(|n| [vec![0x08], varint(*n as u64)].concat()).collect(),
        }
    }
}

/// A TFRecord.
pub fn framed(payload: &[u8]) -> Vec<u8> {
    let masked =
        |bytes: &[u8]| crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xA282_EAD8).to_le_bytes();
    let length = (payload.len() as u64).to_le_bytes();
    [&length[..], &masked(&length), payload, &masked(payload)].concat()
}

/// A field of a protocol buffer that holds bytes.
fn message(number: u8, content: &[u8]) -> Vec<u8> {
    [vec![number << 3 | 2], varint(content.len() as u64), content.to_vec()].concat()
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

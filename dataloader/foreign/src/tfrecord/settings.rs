use serde::Deserialize;

/// `corpus_info.json`: with what settings the reference's `data_utils.py` made a folder of records.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct RecordSettings {
    /// Number of ids.
    pub vocab_size: usize,
    /// Rows of a step.
    pub bsz_per_host: usize,
    /// Groups that the rows of a step are ordered by; stands here alone and not in file names.
    pub num_core_per_host: usize,
    /// Tokens of a row.
    pub seq_len: usize,
    /// Tokens by which a row's text advances each step.
    pub reuse_len: usize,
    /// Whether text was turned into lower case.
    pub uncased: bool,
    /// Whether half of the rows read the text of the others backwards.
    pub bi_data: bool,
    /// Tokens of context for every `mask_beta` targets.
    pub mask_alpha: usize,
    /// Targets for every `mask_alpha` tokens of context.
    pub mask_beta: usize,
    /// Targets of a row, where that is fixed.
    pub num_predict: Option<usize>,
    /// Whether documents end in `<eod>`.
    pub use_eod: bool,
    /// The SentencePiece model, where it lay then.
    #[serde(default)]
    pub sp_path: String,
    /// The text, where it lay then.
    #[serde(default)]
    pub input_glob: String,
}

/// `[SEP]`, `[SEP]` and `[CLS]` of a row.
const FUNCTIONAL: usize = 3;

impl RecordSettings {
    /// What is wrong with settings that no program can have written.
    pub(super) fn check(&self) -> Result<(), String> {
        let RecordSettings { bsz_per_host: rows, num_core_per_host: cores, seq_len, reuse_len, .. } = *self;
        let directions = if self.bi_data { 2 } else { 1 };
        let groups = cores.checked_mul(directions).filter(|groups| *groups > 0);
        if rows == 0 || groups.is_none_or(|groups| !rows.is_multiple_of(groups)) {
            return Err(format!(
                "bsz_per_host {rows} is not a multiple of num_core_per_host {cores}{}",
                if self.bi_data { " times two directions" } else { "" }
            ));
        }
        if reuse_len == 0 || reuse_len.checked_add(FUNCTIONAL).is_none_or(|least| least >= seq_len) {
            return Err(format!("seq_len {seq_len} leaves no room beside reuse_len {reuse_len}"));
        }
        match self.vocab_size {
            0 => Err("vocab_size is 0".into()),
            _ => Ok(()),
        }
    }

    /// The part of file names that carries these settings.
    pub(super) fn name(&self) -> String {
        let uncased = if self.uncased { "uncased." } else { "" };
        let direction = if self.bi_data { "bi" } else { "uni" };
        let predict = self.num_predict.map_or_else(String::new, |count| format!(".fnp-{count}"));
        format!(
            "bsz-{}.seqlen-{}.reuse-{}.{uncased}{direction}.alpha-{}.beta-{}{predict}",
            self.bsz_per_host, self.seq_len, self.reuse_len, self.mask_alpha, self.mask_beta
        )
    }

    /// Rows of one core that read in one direction.
    fn rows_together(&self) -> usize {
        self.bsz_per_host / self.num_core_per_host / if self.bi_data { 2 } else { 1 }
    }

    /// Whether a row of a step reads its text backwards: the second half of each core's rows.
    pub fn is_backward(&self, row: usize) -> bool {
        self.bi_data && (row / self.rows_together()) % 2 == 1
    }

    /// The row that reads the same text in the other direction.
    pub fn twin(&self, row: usize) -> Option<usize> {
        let distance = self.rows_together();
        match (self.bi_data, self.is_backward(row)) {
            (false, _) => None,
            (true, true) => Some(row - distance),
            (true, false) => Some(row + distance),
        }
    }

    /// The rows that read forward, in the order of the text.
    pub fn forward_rows(&self) -> Vec<usize> {
        (0..self.bsz_per_host).filter(|row| !self.is_backward(*row)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(rows: usize, cores: usize, bi_data: bool) -> RecordSettings {
        RecordSettings {
            vocab_size: 32_000,
            bsz_per_host: rows,
            num_core_per_host: cores,
            seq_len: 512,
            reuse_len: 256,
            uncased: true,
            bi_data,
            mask_alpha: 6,
            mask_beta: 1,
            num_predict: Some(85),
            use_eod: true,
            sp_path: String::new(),
            input_glob: String::new(),
        }
    }

    /// As the reference's README shows its files.
    #[test]
    fn names_are_those_of_the_reference() {
        let name = "bsz-32.seqlen-512.reuse-256.uncased.bi.alpha-6.beta-1.fnp-85";
        assert_eq!(settings(32, 16, true).name(), name);
        let plain = RecordSettings { uncased: false, num_predict: None, ..settings(8, 1, false) };
        assert_eq!(plain.name(), "bsz-8.seqlen-512.reuse-256.uni.alpha-6.beta-1");
    }

    #[test]
    fn each_core_has_its_forward_rows_before_its_backward_ones() {
        let rows = |settings: &RecordSettings| {
            let backward = |row| if settings.is_backward(row) { 'b' } else { 'f' };
            (0..settings.bsz_per_host).map(backward).collect::<String>()
        };
        assert_eq!(rows(&settings(8, 1, true)), "ffffbbbb");
        assert_eq!(rows(&settings(8, 2, true)), "ffbbffbb");
        assert_eq!(rows(&settings(8, 4, true)), "fbfbfbfb");
        assert_eq!(rows(&settings(4, 2, false)), "ffff");
        let two = settings(8, 2, true);
        assert_eq!((two.twin(1), two.twin(3), two.twin(4)), (Some(3), Some(1), Some(6)));
        assert_eq!(two.forward_rows(), [0, 1, 4, 5]);
    }

    #[test]
    fn impossible_settings_are_refused() {
        assert!(settings(8, 2, true).check().is_ok());
        for bad in [
            settings(6, 2, true),
            settings(8, 0, false),
            settings(0, 1, false),
            RecordSettings { reuse_len: 509, ..settings(8, 1, true) },
            RecordSettings { reuse_len: usize::MAX, ..settings(8, 1, true) },
            RecordSettings { num_core_per_host: usize::MAX, ..settings(8, 1, true) },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }
}

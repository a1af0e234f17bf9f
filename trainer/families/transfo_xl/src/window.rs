//! What a layer keeps of the positions that a token still sees.

use tch::Tensor;

/// Keys and values of the last positions of a layer, `[heads * lanes, positions, width]` each, in buffers with as much
/// room ahead as they hold: a position more is one copied row, and only now and then the move of all.
pub struct Window {
    keys: Tensor,
    values: Tensor,
    /// Where in the buffers they begin, and how many there are.
    start: i64,
    len: i64,
    /// Positions before the newest that it sees.
    limit: i64,
}

impl Window {
    /// The last `limit` of `keys` and `values`, `[heads * lanes, positions, width]`.
    pub fn new(keys: &Tensor, values: &Tensor, limit: i64) -> Self {
        let [rows, positions, width] = keys.size()[..] else {
            unreachable!("[heads * lanes, positions, width]")
        };
        let len = positions.min(limit);
        let buffer = |last: &Tensor| {
            let buffer = Tensor::zeros([rows, 2 * (limit + 1), width], (last.kind(), last.device()));
            buffer.narrow(1, 0, len).copy_(&last.narrow(1, positions - len, len));
            buffer
        };
        Self { keys: buffer(keys), values: buffer(values), start: 0, len, limit }
    }

    /// Takes in the newest position, `[heads * lanes, 1, width]`; returns keys and values of all that it sees, itself
    /// last, `[heads * lanes, seen, width]`.
    pub fn push(&mut self, key: &Tensor, value: &Tensor) -> [Tensor; 2] {
        if self.len > self.limit {
            (self.start, self.len) = (self.start + 1, self.limit);
        }
        if self.start + self.len == self.keys.size()[1] {
            for buffer in [&self.keys, &self.values] {
                buffer.narrow(1, 0, self.len).copy_(&buffer.narrow(1, self.start, self.len));
            }
            self.start = 0;
        }
        for (buffer, new) in [(&self.keys, key), (&self.values, value)] {
            buffer.narrow(1, self.start + self.len, 1).copy_(new);
        }
        self.len += 1;
        [&self.keys, &self.values].map(|buffer| buffer.narrow(1, self.start, self.len))
    }

    /// Keeps the lanes of these numbers, `[kept]`, of each of `heads` heads.
    pub fn keep(&mut self, lanes: &Tensor, heads: i64) {
        for buffer in [&mut self.keys, &mut self.values] {
            let [_, positions, width] = buffer.size()[..] else {
                unreachable!("[heads * lanes, positions, width]")
            };
            let by_head = buffer.view([heads, -1, positions, width]).index_select(1, lanes);
            *buffer = by_head.reshape([-1, positions, width]);
        }
    }
}

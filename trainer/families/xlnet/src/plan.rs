//! What all layers of one forward pass share: tables of positions, masks and codes of segments.
//!
//! Lanes that read forward and lanes that read backwards go through attention one after the other, and the
//! queries of each in blocks of rows: a block needs only the distances that its own rows span, and none of the
//! keys that all of its rows must not see.

use std::slice;
use std::sync::OnceLock;

use segue_kernels::libtorch::Autocast;
use segue_kernels::{Kernels, Options};
use segue_layers::attention::chunked::Chunks;
use segue_layers::attention::fused::Block;
use segue_layers::attention::{COLUMNS, Context, attention_mask, even_columns, sinusoids_between};
use segue_layers::{Memory, NO_DOCUMENT};
use tch::{Kind, Tensor};

use super::sequence::{Sequence, Visibility};

/// Queries of one block: short enough to waste few distances, long enough for the matrix products.
pub const BLOCK_ROWS: i64 = 128;

/// Which segment keys and targets are of.
pub struct Segments {
    /// The segment of each key as a number, `[lanes, key]`.
    pub ids: Tensor,
    /// The same of each target, `[lanes, targets]`.
    pub ids_of_targets: Option<Tensor>,
    /// How many of the keys are memory.
    mem: i64,
    codes: OnceLock<SegmentCodes>,
}

/// Codes of segments that turn "same or other" into a product: a key's code has a 1 at its segment, a query's at
/// all segments but its own.
pub struct SegmentCodes {
    /// `[lanes, key, segments]`.
    pub keys: Tensor,
    /// `[lanes, segment, segments]`.
    pub queries: Tensor,
    /// `[lanes, targets, segments]`, where there are targets.
    pub targets: Option<Tensor>,
}

impl Segments {
    /// For attention in tensors. How many segments there are is read from them, for which a card is waited for.
    pub fn codes(&self) -> &SegmentCodes {
        self.codes.get_or_init(|| {
            let count = self.ids.max().double_value(&[]) as i64 + 1;
            let numbers = Tensor::arange(count, (self.ids.kind(), self.ids.device()));
            // A 1 at the own segment for keys, at all others for queries: their product is 1 where segments
            // differ, else 0.
            let is = |ids: &Tensor| ids.unsqueeze(2).eq_tensor(&numbers).to_kind(ids.kind());
            let own = self.ids.narrow(1, self.mem, self.ids.size()[1] - self.mem);
            SegmentCodes {
                keys: is(&self.ids),
                queries: 1.0 - is(&own),
                targets: self.ids_of_targets.as_ref().map(|ids| 1.0 - is(ids)),
            }
        })
    }
}

/// Rows of the query stream.
pub struct Targets {
    /// Their positions, `[lanes, targets]`.
    pub at: Tensor,
    /// All of them, for attention in tiles.
    pub block: Block,
    /// The same for attention in chunks, where that is taken.
    pub chunks: Option<Chunks>,
    /// `[lanes, target, 1]`: 0 for those that may see nothing, else 1; `None` where there are none.
    pub seeing: Option<Tensor>,
    /// The table's row for each key, `[lanes, targets, key]`.
    pub distances: Tensor,
}

/// The lanes of one reading direction.
pub struct Group {
    /// First lane.
    pub start: i64,
    /// Lanes.
    pub lanes: i64,
    /// Positions of the segment.
    pub segment: i64,
    /// Sinusoids of the distances `key - 1, .., -(segment - 1)` and some beyond, negated for text read backwards, so that
    /// distances have the sign they have in the text: `[distance, d_model]`. Windows of [`even_columns`] find room.
    pub positions: Tensor,
    /// The content stream's rows; keys include the memory.
    pub blocks: Vec<Block>,
    /// The same for attention in chunks, where that is taken.
    pub chunks: Option<Chunks>,
    /// The query stream's rows.
    pub targets: Option<Targets>,
    /// Where segments count.
    pub segments: Option<Segments>,
}

/// What all layers share.
pub struct Plan {
    /// Forward lanes, then backward ones; at least one group.
    pub groups: Vec<Group>,
    /// Positions of all groups, one after another, `[distance, d_model]`, on a card.
    pub positions: Option<Tensor>,
}

impl Plan {
    /// For one sequence and its memory. `uni`: nobody sees what comes later. `drop` is the dropout of positions.
    pub fn new(
        sequence: &Sequence,
        memory: &Memory,
        context: &Context,
        uni: bool,
        d_model: i64,
        options: Options,
        drop: impl Fn(Tensor) -> Tensor,
    ) -> Self {
        let batch = sequence.ids.size()[0];
        let forward = batch - sequence.reversed;
        // One table of distances serves all lanes of a direction; lanes of the other need its mirror image.
        let groups = [(0, forward, false), (forward, sequence.reversed, true)];
        let lanes = groups.into_iter().filter(|(_, lanes, _)| *lanes > 0);
        let causal = (uni || matches!(sequence.visibility, Visibility::Before)).then(|| {
            let segment = sequence.ids.size()[1];
            let mask = attention_mask(segment, memory.len(), context.same_length, options);
            // The additive mask of Transformer-XL as a boolean one, so that same-length attention is counted
            // in one place.
            mask.isfinite().logical_not().unsqueeze(0)
        });
        let scene = Scene { sequence, memory, context, causal, options };
        let groups: Vec<Group> = lanes
            .map(|(start, lanes, backwards)| scene.group(start, lanes, backwards, d_model, &drop))
            .collect();
        let joined = || match &groups[..] {
            [only] => only.positions.shallow_clone(),
            all => Tensor::cat(&all.iter().map(|group| &group.positions).collect::<Vec<_>>(), 0),
        };
        let positions = Kernels::Fused.chunk(&groups[0].positions).then(joined);
        Self { groups, positions }
    }

    /// `x`, `[batch, ..]`, cut into the lanes of each group.
    pub fn by_lanes(&self, x: &Tensor) -> Vec<Tensor> {
        self.cut(x, |group| group.lanes)
    }

    /// `x`, `[distance, ..]`, cut into the distances of each group.
    pub fn by_distances(&self, x: &Tensor) -> Vec<Tensor> {
        self.cut(x, |group| group.positions.size()[0])
    }

    fn cut(&self, x: &Tensor, length: impl Fn(&Group) -> i64) -> Vec<Tensor> {
        match &self.groups[..] {
            [_] => vec![x.shallow_clone()],
            groups => x.split_with_sizes(&groups.iter().map(length).collect::<Vec<i64>>()[..], 0),
        }
    }

    /// Whether segments count.
    pub fn has_segments(&self) -> bool {
        self.groups.iter().any(|group| group.segments.is_some())
    }
}

struct Scene<'a> {
    sequence: &'a Sequence<'a>,
    memory: &'a Memory,
    context: &'a Context,
    /// What a left-to-right model hides from each position, whatever the lane: `[1, segment, key]`.
    causal: Option<Tensor>,
    options: Options,
}

impl Scene<'_> {
    fn group(
        &self,
        start: i64,
        lanes: i64,
        backwards: bool,
        d_model: i64,
        drop: &impl Fn(Tensor) -> Tensor,
    ) -> Group {
        let (segment, key) = (self.segment(), self.keys());
        let clamp = self.context.clamp_len;
        // A window that ends where the distances do is rounded up past them by less than COLUMNS.
        let least = key - even_columns(key + segment + COLUMNS as i64 - 2);
        let positions = match backwards {
            false => sinusoids_between(key - 1, least, clamp, d_model, self.options),
            // Of the distances 1 - key, .., -least.
            true => sinusoids_between(-least, 1 - key, clamp, d_model, self.options).flip([0]),
        };
        // Each position sees itself, so that no row is hidden as a whole.
        let mask = self.hidden(start, lanes).map(|hidden| self.added(&hidden));
        let blocks = self.blocks(mask.as_ref());
        let chunks = self.in_chunks(&blocks, mask.as_ref());
        Group {
            start,
            lanes,
            segment,
            // All layers read them in the type of products, which they are cast to once.
            positions: match Autocast::kind_on(self.options.1) {
                Some(kind) => drop(positions).to_kind(kind),
                None => drop(positions),
            },
            blocks,
            chunks,
            targets: self.targets(start, lanes),
            segments: self.segments(start, lanes),
        }
    }

    /// Rows for attention in chunks, where that is taken.
    fn in_chunks(&self, blocks: &[Block], mask: Option<&Tensor>) -> Option<Chunks> {
        self.is_on_card().then(|| Chunks::new(blocks, mask.map(Tensor::shallow_clone), self.options.1))
    }

    fn is_on_card(&self) -> bool {
        Kernels::Fused.chunk(self.sequence.ids)
    }

    fn segment(&self) -> i64 {
        self.sequence.ids.size()[1]
    }

    fn keys(&self) -> i64 {
        self.memory.len() + self.segment()
    }

    /// Keys that the content of each position must not see, `[lanes or 1, segment, key]`; `None` for none.
    fn hidden(&self, start: i64, lanes: i64) -> Option<Tensor> {
        let own = match self.sequence.visibility {
            Visibility::All | Visibility::Before => None,
            Visibility::Ranks { ranks, .. } => {
                let ranks = ranks.narrow(0, start, lanes);
                // `[lanes, 1, key]` against `[lanes, query, 1]`. Equal ranks see each other, and so each
                // position itself.
                Some(ranks.unsqueeze(1).greater_tensor(&ranks.unsqueeze(2)))
            }
            Visibility::Blocked(blocked) => {
                // The mask is that of predictions, which must not see their own token; content may.
                let diagonal = Tensor::eye(self.segment(), (Kind::Bool, self.options.1));
                Some(blocked.narrow(0, start, lanes).logical_and(&diagonal.logical_not()))
            }
        };
        self.with_memory(own, start, lanes, None)
    }

    /// The same for the predictions at `at`, `[lanes, targets]`.
    fn hidden_from_targets(&self, at: &Tensor, start: i64, lanes: i64) -> Option<Tensor> {
        let own = match self.sequence.visibility {
            Visibility::All => None,
            Visibility::Before => {
                let places = Tensor::arange(self.segment(), (Kind::Int64, self.options.1));
                Some(at.unsqueeze(2).eq_tensor(&places))
            }
            Visibility::Ranks { ranks, .. } => {
                let ranks = ranks.narrow(0, start, lanes);
                let of_targets = ranks.gather(1, at, false);
                // Not even its own rank: what is predicted must not be read.
                Some(ranks.unsqueeze(1).greater_equal_tensor(&of_targets.unsqueeze(2)))
            }
            Visibility::Blocked(blocked) => {
                let index = at.unsqueeze(2).expand([-1, -1, self.segment()], false);
                Some(blocked.narrow(0, start, lanes).gather(1, &index, false))
            }
        };
        self.with_memory(own, start, lanes, Some(at))
    }

    /// Adds the columns of the memory and what a left-to-right model hides.
    fn with_memory(
        &self,
        own: Option<Tensor>,
        start: i64,
        lanes: i64,
        at: Option<&Tensor>,
    ) -> Option<Tensor> {
        let (segment, mem) = (self.segment(), self.memory.len());
        let marks = self.memory.documents.as_ref().filter(|_| mem > 0);
        let unwritten = marks.map(|marks| marks.narrow(0, start, lanes).eq(NO_DOCUMENT).unsqueeze(1));
        // Whether there is such a place is worth a look at the values where most passes need no mask of each lane without one.
        let unwritten = unwritten.filter(|hidden| own.is_some() || any(hidden));
        let causal = self.causal.as_ref().map(|hidden| match at {
            None => hidden.shallow_clone(),
            Some(at) => {
                let index = at.unsqueeze(2).expand([-1, -1, mem + segment], false);
                hidden.expand([lanes, -1, -1], false).gather(1, &index, false)
            }
        });
        // One mask for all lanes, or none: no need to spell it out for each.
        if own.is_none() && unwritten.is_none() {
            return causal;
        }
        let rows = at.map_or(segment, |at| at.size()[1]);
        let none = |width: i64| Tensor::zeros([lanes, rows, width], (Kind::Bool, self.options.1));
        // Orders of prediction concern the segment alone. The memory is seen by all, but for places that
        // nothing was written to.
        let before = unwritten.map_or_else(|| none(mem), |hidden| hidden.expand([-1, rows, -1], false));
        let own = own.unwrap_or_else(|| none(segment));
        let hidden = Tensor::cat(&[before, own], 2);
        Some(match causal {
            Some(causal) => hidden.logical_or(&causal),
            None => hidden,
        })
    }

    fn blocks(&self, mask: Option<&Tensor>) -> Vec<Block> {
        let (segment, mem) = (self.segment(), self.memory.len());
        // Nobody in the reused half sees the half after it. Blocks that end where the halves do leave those
        // keys out of the products instead of masking them.
        let halves_at = match self.sequence.visibility {
            Visibility::Ranks { halves_at, .. } if halves_at > 0 => halves_at,
            _ => segment,
        };
        let mut blocks = Vec::new();
        for (first, end) in [(0, halves_at), (halves_at, segment)] {
            let keys = mem + end;
            let mut start = first;
            while start < end {
                let rows = BLOCK_ROWS.min(end - start);
                let own = |mask: &Tensor| mask.narrow(1, start, rows).narrow(2, 0, keys).contiguous();
                let mask = mask.map(own);
                blocks.push(Block { start, rows, keys, mask });
                start += rows;
            }
        }
        blocks
    }

    fn targets(&self, start: i64, lanes: i64) -> Option<Targets> {
        let at = self.sequence.targets?.narrow(0, start, lanes);
        let hidden = self.hidden_from_targets(&at, start, lanes);
        // Row r of the table is distance `keys - 1 - r`, and key j is at distance `mem + i - j` of position i:
        // row `segment - 1 - i + j`. Targets stand anywhere, so their rows are gathered, where those of
        // content are a shift.
        let column = Tensor::arange(self.keys(), (Kind::Int64, self.options.1)) + (self.segment() - 1);
        let (added, seeing) = hidden.map(|hidden| self.open(hidden)).unzip();
        let block = Block { start: 0, rows: at.size()[1], keys: self.keys(), mask: added };
        Some(Targets {
            chunks: self.in_chunks(slice::from_ref(&block), block.mask.as_ref()),
            block,
            seeing: seeing.flatten(),
            distances: column.view([1, 1, -1]) - at.unsqueeze(2),
            at,
        })
    }

    /// What is added to scores, 0 where a query may see a key, else −∞; and which rows have anything to see, where not all have. Those that have
    /// nothing stay open: a softmax over −∞ alone is not a number; over a large negative constant it is uniform, and a prediction would see its own
    /// token. What they read is multiplied by 0 afterwards.
    fn open(&self, hidden: Tensor) -> (Tensor, Option<Tensor>) {
        let seeing = hidden.all_dim(2, true).logical_not();
        // A card is not asked, as that would wait for all that it has to do.
        if !self.is_on_card() && !any(&seeing.logical_not()) {
            return (self.added(&hidden), None);
        }
        (self.added(&hidden.logical_and(&seeing)), Some(seeing.to_kind(self.options.0)))
    }

    fn added(&self, hidden: &Tensor) -> Tensor {
        Tensor::zeros(hidden.size(), self.options).masked_fill(hidden, f64::NEG_INFINITY)
    }

    fn segments(&self, start: i64, lanes: i64) -> Option<Segments> {
        let own = self.sequence.segments?.narrow(0, start, lanes);
        // Memory counts as segment 0, whatever it was when it was read.
        let mem = self.memory.len();
        let before = Tensor::zeros([lanes, mem], (Kind::Int64, self.options.1));
        let ids = Tensor::cat(&[before, own.shallow_clone()], 1).to_kind(self.options.0);
        let at = self.sequence.targets.map(|at| at.narrow(0, start, lanes));
        let ids_of_targets = at.map(|at| own.gather(1, &at, false).to_kind(self.options.0));
        Some(Segments { ids, ids_of_targets, mem, codes: OnceLock::new() })
    }
}

/// Whether one of `marks` is set. A card is waited for.
fn any(marks: &Tensor) -> bool {
    marks.any().int64_value(&[]) != 0
}

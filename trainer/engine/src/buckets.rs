//! Gradient buckets: where micro-steps' gradients add up, and when a sum is ready to be reduced.
//!
//! Micro-steps are the leaves of one binary tree. Inside a rank the tree is walked as a binary counter:
//! level `l` holds the sum of 2^l micro-steps or nothing, and a new gradient carries upwards like a
//! one added to a binary number. Across ranks [`segue_collectives::tree::tree_all_reduce`] goes on in the same
//! tree.

use std::sync::{Arc, Mutex};

use segue_kernels::libtorch::stream::Event;
use segue_kernels::libtorch::{GradReady, Onto, is_alone, put_each, stored_values, take_grad};
use segue_kernels::{ParameterSpec, Parameters};
use segue_world::Sender;
use tch::{Device, Kind, Tensor, no_grad};

use super::alignment::padded;
use super::digest::{Digest, digest};
use super::jobs::{Job, Ready};
use super::row_counter::RowCounter;
use super::rows::Rows;
use super::shard::{BucketShard, Shards};
use super::spoil::spoil_in_callback;

/// Flat storage of a bucket's gradients at one level of the counter.
struct Level {
    flat: Tensor,
    /// One view a parameter, in the bucket's order.
    views: Vec<Tensor>,
}

struct Bucket {
    /// Indices of its parameters.
    members: Vec<usize>,
    /// Memory for them comes with the first gradient that is counted here. Where gradients are divided it goes with the sum.
    levels: Vec<Level>,
    /// Of a table whose rows are counted, while all gradients of the step have been lists of rows: their sums, instead of `levels`.
    counter: Option<RowCounter>,
    /// The step's sum where it lies in no level.
    total: Option<Tensor>,
    /// Gradients of this micro-step, by member, that level 0 is given all at once when the last one is there: a card takes as long to begin with one
    /// as with many.
    waiting: Vec<(usize, Tensor)>,
    /// Of a rank's only micro-step, where no other rank adds to it: the gradients themselves, by member, which are in no level then. Empty where
    /// they are counted.
    kept: Vec<Option<Tensor>>,
    counts_rows: bool,
    /// Which members this micro-step has given a gradient.
    seen: Vec<bool>,
    complete: bool,
    /// Of a bucket that is one table: its width.
    width: Option<usize>,
    /// The rows that have had a gradient in this step's micro-steps, as far as the gradients told.
    rows: Rows,
    /// Level that holds the whole sum once the last micro-step is over.
    result: usize,
    shard: Option<Arc<BucketShard>>,
}

struct State {
    leaves: Vec<Tensor>,
    buckets: Vec<Bucket>,
    /// Micro-steps of a step, and the most that there can be.
    micro_steps: usize,
    most_micro_steps: usize,
    micro_step: usize,
    /// Whether a micro-step is under way that trains these parameters.
    open: bool,
    ready: Option<Sender<Job>>,
    /// In which order buckets are handed over.
    order: Vec<usize>,
    /// How many of them have been in this step.
    sent: usize,
    /// In which order they were complete in the last step.
    arrived: Vec<usize>,
    /// Norms of what has come in of the open micro-step, by parameter, where somebody asked for them.
    norms: Option<Vec<Option<Tensor>>>,
    /// What has come in of it, likewise.
    heard: Option<Vec<Option<Digest>>>,
    /// The open micro-step is made again: its gradients are heard, and thrown away.
    rehearsal: bool,
}

/// Collects gradients as backward makes them. One micro-step is open at a time.
pub struct GradientBuckets {
    /// Bucket and position inside it, per parameter.
    places: Vec<(usize, usize)>,
    specs: Vec<ParameterSpec>,
    device: Device,
    state: Mutex<State>,
}

impl GradientBuckets {
    /// A bucket for each of `groups`, which are those of [`group`]. Sums `micro_steps` gradients a step; each bucket goes to `ready` as soon as its
    /// sum is complete and those before it have gone, in the order of [`Self::hand_over_in`], rising before that.
    pub fn new(
        parameters: &Parameters,
        groups: &[Vec<usize>],
        micro_steps: usize,
        ready: Option<Sender<Job>>,
    ) -> Self {
        let specs = parameters.specs();
        let mut places = vec![(0, 0); specs.len()];
        for (b, members) in groups.iter().enumerate() {
            for (position, &parameter) in members.iter().enumerate() {
                places[parameter] = (b, position);
            }
        }
        let device = parameters.options().1;
        let buckets: Vec<Bucket> = groups.iter().map(|members| Bucket::new(members.clone(), specs)).collect();
        let order = (0..buckets.len()).collect();
        let leaves = parameters.leaves().iter().map(Tensor::shallow_clone).collect();
        let state = State {
            leaves,
            buckets,
            micro_steps,
            most_micro_steps: micro_steps,
            micro_step: 0,
            open: false,
            ready,
            order,
            sent: 0,
            arrived: Vec::new(),
            norms: None,
            heard: None,
            rehearsal: false,
        };
        Self { places, specs: specs.to_vec(), device, state: Mutex::new(state) }
    }

    /// The same where sums go to those ranks alone that `shards` says.
    pub fn divided(self, shards: &Shards) -> Self {
        for bucket in &mut self.lock().buckets {
            bucket.shard = Some(Arc::new(shards.of_bucket(&bucket.members, &self.specs)));
        }
        self
    }

    /// The same where the sum of a table is of those rows alone that a step's gradients list, if every micro-step's is such a list: the sum is a sparse
    /// tensor then. Memory for the whole table is taken only where one is not.
    pub fn by_rows(self) -> Self {
        for bucket in &mut self.lock().buckets {
            bucket.counts_rows = bucket.width.is_some();
        }
        self
    }

    /// Sums `micro_steps` gradients a step from the next one on: at most as many as it was made for.
    pub fn expect(&self, micro_steps: usize) {
        self.lock().micro_steps = micro_steps;
    }

    /// Opens micro-step `index` of this rank's `0..micro_steps`.
    pub fn begin(&self, index: usize) {
        let mut state = self.lock();
        state.micro_step = index;
        state.open = true;
        if index == 0 {
            state.sent = 0;
            state.arrived.clear();
        }
        for bucket in &mut state.buckets {
            bucket.seen.fill(false);
            bucket.complete = false;
            bucket.waiting.clear();
            // Flat sums are not cleared: the first gradient of a step overwrites them. Only what is a list has
            // to be emptied.
            if index == 0 {
                bucket.rows = Rows::Some(Vec::new());
                bucket.counter = bucket.counts_rows.then(RowCounter::default);
                bucket.total = None;
                // Their memory is free for the next ones.
                bucket.kept.clear();
            }
        }
    }

    /// Opens a micro-step that adds to no sum.
    pub fn rehearse(&self) {
        let mut state = self.lock();
        (state.open, state.rehearsal) = (true, true);
    }

    /// Listens to the gradients of the micro-step that is opened next.
    pub fn listen(&self) {
        let mut state = self.lock();
        state.heard = Some(vec![None; self.places.len()]);
    }

    /// What was heard since [`Self::listen`], by parameter; nothing of those that got no gradient.
    pub fn heard(&self) -> Vec<Option<Digest>> {
        self.lock().heard.take().unwrap_or_default()
    }

    /// Measures the gradient of the micro-step that is opened next.
    pub fn measure(&self) {
        let mut state = self.lock();
        state.norms = Some(self.places.iter().map(|_| None).collect());
    }

    /// The norms of what was measured since [`Self::measure`], of each parameter that got a gradient, where they lie.
    pub fn measured(&self) -> Tensor {
        let norms: Vec<Tensor> = self.lock().norms.take().into_iter().flatten().flatten().collect();
        match norms.is_empty() {
            true => Tensor::zeros([0], (Kind::Float, self.device)),
            false => Tensor::stack(&norms, 0),
        }
    }

    /// In which order the buckets of the last step were complete.
    pub fn arrived(&self) -> Vec<usize> {
        self.lock().arrived.clone()
    }

    /// In which order buckets are handed over.
    pub fn order(&self) -> Vec<usize> {
        self.lock().order.clone()
    }

    /// Hands over buckets in `order` from the next step on. It names each once, and is the same on all ranks. Sums stay the same to the bit.
    pub fn hand_over_in(&self, order: Vec<usize>) {
        self.lock().order = order;
    }

    /// Closes the open micro-step: parameters that got no gradient count as zero.
    pub fn finish(&self) {
        let mut state = self.lock();
        if std::mem::take(&mut state.rehearsal) {
            state.open = false;
            return;
        }
        for b in 0..state.buckets.len() {
            if !state.buckets[b].complete {
                for position in 0..state.buckets[b].members.len() {
                    if !state.buckets[b].seen[position] {
                        self.collect(&mut state, b, position, None);
                    }
                }
            }
        }
        state.buckets.iter_mut().for_each(Bucket::own);
        state.open = false;
    }

    /// Number of buckets.
    pub fn len(&self) -> usize {
        self.lock().buckets.len()
    }

    /// Whether there is nothing to train.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sums over all micro-steps, in the parameters' order; valid until the next [`Self::begin`]. An update scales
    /// them in place, so that they are sums only before it. Not there where gradients are divided. Sparse where rows were counted.
    pub fn gradients(&self) -> Vec<Tensor> {
        let state = self.lock();
        let view = |&(b, position): &(usize, usize)| {
            let bucket = &state.buckets[b];
            let elsewhere = bucket.total.as_ref().or(bucket.kept.get(position).and_then(Option::as_ref));
            elsewhere.unwrap_or_else(|| &bucket.levels[bucket.result].views[position]).shallow_clone()
        };
        self.places.iter().map(view).collect()
    }

    /// Puts the sum over ranks of a table's bucket in the place of this rank's.
    pub fn put(&self, bucket: usize, total: Tensor) {
        self.lock().buckets[bucket].total = Some(total);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // A panic while the lock is held ends the process; the state is never seen half done.
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Adds one gradient to the counter; `None` counts as zero.
    fn collect(&self, state: &mut State, b: usize, position: usize, grad: Option<Tensor>) {
        let (micro_step, most) = (state.micro_step, state.most_micro_steps);
        let is_sum = state.micro_steps == 1 && state.ready.is_none();
        let bucket = &mut state.buckets[b];
        // A second call would count a gradient twice and leave the bucket complete before its time.
        if std::mem::replace(&mut bucket.seen[position], true) {
            return;
        }
        // What one micro-step gives a row is added up before it meets others, as every number of ranks does it.
        let grad = grad.map(|grad| if grad.is_sparse() { grad.coalesce() } else { grad });
        if let (Some(_), Some(grad)) = (bucket.width, &grad) {
            bucket.rows.extend(rows(grad));
        }
        if let (Some(norms), Some(grad)) = (&mut state.norms, &grad) {
            norms[bucket.members[position]] = Some(no_grad(|| stored_values(grad).norm()));
        }
        let listed = bucket.counter.is_some() && grad.as_ref().is_none_or(Tensor::is_sparse);
        match is_sum && !listed {
            true => bucket.keep(position, grad, &self.specs, self.device),
            false => {
                bucket.make_room(grad.as_ref(), &self.specs, most, self.device);
                bucket.add(micro_step, position, grad);
            }
        }
        if bucket.seen.iter().all(|&seen| seen) {
            bucket.complete = true;
            bucket.land(micro_step);
            // Levels move as a whole: a bucket that carried a part of its members would need a counter for
            // each.
            bucket.carry(micro_step);
            if micro_step + 1 == state.micro_steps {
                bucket.settle(state.micro_steps, &self.specs, self.device);
                state.arrived.push(b);
                state.send_ready();
            }
        }
    }
}

impl GradReady for GradientBuckets {
    fn ready(&self, parameter: usize) {
        let (b, position) = self.places[parameter];
        let mut state = self.lock();
        // Added to the sums of another step it would go unnoticed.
        assert!(state.open, "a gradient arrives outside its network's turn");
        // Taken, not copied: the leaf is empty again, so that libtorch does not add the next micro-step to it
        // on its own, in an order that is no tree's.
        let grad = take_grad(&state.leaves[parameter]);
        if let Some(grad) = grad.as_ref().filter(|grad| !grad.is_sparse()) {
            spoil_in_callback("micro-step", || grad.shallow_clone());
        }
        if let Some(heard) = &mut state.heard {
            heard[parameter] = grad.as_ref().map(digest);
        }
        if state.rehearsal {
            return;
        }
        self.collect(&mut state, b, position, grad);
    }
}

impl State {
    /// Hands over complete buckets in the order that all ranks have.
    fn send_ready(&mut self) {
        let Some(sender) = &self.ready else { return };
        while let Some(&number) = self.order.get(self.sent).filter(|b| self.buckets[**b].complete) {
            let bucket = &mut self.buckets[number];
            let sum = bucket.total.as_ref().unwrap_or_else(|| &bucket.levels[bucket.result].flat);
            let ready = Ready {
                bucket: number,
                sum: sum.shallow_clone(),
                table: bucket.width.map(|width| (width, bucket.rows.clone())),
                by_rows: bucket.counts_rows,
                shard: bucket.shard.clone(),
                made: Event::now(sum.device()),
            };
            if bucket.shard.is_some() {
                bucket.levels.clear();
            }
            self.sent += 1;
            // A closed channel means the reducer has failed; the step learns it when it waits.
            let _ = sender.send(Job::Sum(ready));
        }
    }
}

/// Storage for a bucket of these parameters: one level for each bit of the counter, as many as it takes to write the number of
/// micro-steps.
fn levels(members: &[usize], specs: &[ParameterSpec], micro_steps: usize, device: Device) -> Vec<Level> {
    let level = |_| {
        // The gaps between parameters stay zero: they are reduced along with the rest and change nothing.
        let total: usize = members.iter().map(|&i| padded(&specs[i])).sum();
        let flat = Tensor::zeros([total as i64], (Kind::Float, device));
        let mut offset = 0;
        let views = members.iter().map(|&i| {
            let view = flat.narrow(0, offset, specs[i].numel() as i64).view(specs[i].shape.as_slice());
            offset += padded(&specs[i]) as i64;
            view
        });
        Level { views: views.collect(), flat: flat.shallow_clone() }
    };
    (0..=micro_steps.ilog2()).map(level).collect()
}

impl Bucket {
    fn new(members: Vec<usize>, specs: &[ParameterSpec]) -> Self {
        let width = match members.iter().map(|&i| specs[i].shape.as_slice()).collect::<Vec<_>>()[..] {
            [[_, width]] => Some(*width as usize),
            _ => None,
        };
        Self {
            levels: Vec::new(),
            counter: None,
            total: None,
            waiting: Vec::new(),
            kept: Vec::new(),
            counts_rows: false,
            seen: vec![false; members.len()],
            members,
            complete: false,
            width,
            rows: Rows::All,
            result: 0,
            shard: None,
        }
    }

    /// Has levels ready where `grad` is counted in them. A gradient that lists no rows ends their counter: what it holds goes on in the levels.
    fn make_room(
        &mut self,
        grad: Option<&Tensor>,
        specs: &[ParameterSpec],
        micro_steps: usize,
        device: Device,
    ) {
        let counter = match grad {
            Some(grad) if !grad.is_sparse() => self.counter.take(),
            _ if self.counter.is_some() => return,
            _ => None,
        };
        if self.levels.is_empty() {
            self.levels = levels(&self.members, specs, micro_steps, device);
        }
        if let Some(counter) = counter {
            // A bucket that has a counter is one table.
            counter.write(self.levels.iter().map(|level| &level.views[0]));
        }
    }

    /// Takes the gradient of a member as its sum; `None` counts as zero.
    fn keep(&mut self, position: usize, grad: Option<Tensor>, specs: &[ParameterSpec], device: Device) {
        // What it has counted of this step, the first gradient of one table, is nothing.
        self.counter = None;
        let shape = specs[self.members[position]].shape.as_slice();
        let zeros = || Tensor::zeros(shape, (Kind::Float, device));
        let sum = match grad {
            Some(grad) if grad.is_sparse() => no_grad(|| zeros().g_add_(&grad)),
            // As a bucket's views lie: kernels see the same values in the same order.
            Some(grad) if grad.kind() == Kind::Float && grad.is_contiguous() && grad.size() == shape => {
                let strides = contiguous(shape);
                // Those of axes of one value may be any, but kernels for cards compare them.
                if grad.stride() == strides {
                    grad
                } else {
                    no_grad(|| grad.as_strided(shape, strides, None))
                }
            }
            Some(grad) => {
                let mut copy = Tensor::empty(shape, (Kind::Float, device));
                no_grad(|| copy.copy_(&grad));
                copy
            }
            None => zeros(),
        };
        self.kept.resize_with(self.members.len(), || None);
        self.kept[position] = Some(sum);
    }

    /// Copies what was kept and somebody else has too, now that backward has let go of it: an update writes to gradients. Two leaves of a sum have one
    /// gradient, as an example.
    fn own(&mut self) {
        for sum in self.kept.iter_mut().flatten().filter(|sum| !is_alone(sum)) {
            *sum = no_grad(|| sum.copy());
        }
    }

    /// Adds to the leaf of micro-step `index` the gradient of a member; `None` counts as zero. Dense ones are there after [`Self::land`].
    fn add(&mut self, index: usize, position: usize, grad: Option<Tensor>) {
        if let Some(counter) = &mut self.counter {
            return counter.push(index, grad.as_ref());
        }
        let target = &mut self.levels[0].views[position];
        no_grad(|| match (index.is_multiple_of(2), grad) {
            (true, Some(grad)) if grad.is_sparse() => _ = target.zero_().g_add_(&grad),
            (false, Some(grad)) if grad.is_sparse() => _ = target.g_add_(&grad),
            (_, Some(grad)) => self.waiting.push((position, grad)),
            (true, None) => _ = target.zero_(),
            // Adds +0 as any rank that holds zeros would: −0 becomes +0 on all of them.
            (false, None) => _ = target.g_add_scalar_(0.0),
        });
    }

    /// Adds to the leaf of micro-step `index` what waits for that.
    fn land(&mut self, index: usize) {
        let (places, grads): (Vec<usize>, Vec<Tensor>) = self.waiting.drain(..).unzip();
        let views = |place: usize| self.levels[0].views[place].shallow_clone();
        let targets: Vec<Tensor> = places.into_iter().map(views).collect();
        // Even micro-steps begin a new leaf of the tree. Odd ones are added to the leaf before them at
        // once, which is the lowest level of the tree and saves its copy.
        put_each(if index.is_multiple_of(2) { Onto::Overwrite } else { Onto::Add }, &targets, &grads)
            .expect("gradients are of their parameters' shapes, and buckets lie where they do");
    }

    /// Carries the sum in level 0 upwards after micro-step `index`. For an odd index level 0 already
    /// holds two micro-steps: the new gradient was added in place. A counter of rows has done so.
    fn carry(&mut self, index: usize) {
        if self.counter.is_some() || !self.kept.is_empty() {
            return;
        }
        // Counting from `index` to `index + 1` turns its trailing ones into zeros and sets the bit above them.
        // After micro-step 7 (111) levels 1 and 2 are full: level 0 is added to 1, the sum to 2, and that
        // comes to lie at 3. Bits below stay free.
        let top = index.trailing_ones() as usize;
        for level in 1..top {
            let (low, high) = self.levels.split_at_mut(level);
            // high[0] += low[0]; the sum then moves down to level 0, where the loop expects it.
            high[0].flat += &low[0].flat;
            std::mem::swap(&mut low[0], &mut high[0]);
        }
        self.levels.swap(0, top);
    }

    /// Adds what is left on the counter after the last micro-step, smallest first.
    fn settle(&mut self, micro_steps: usize, specs: &[ParameterSpec], device: Device) {
        if let Some(counter) = self.counter.take() {
            self.total = Some(counter.total(&specs[self.members[0]].shape, device));
            return;
        }
        if !self.kept.is_empty() {
            return;
        }
        // The bits that are set in the number of micro-steps. Smallest first is the order of the tree, in
        // which an incomplete right branch is finished before it meets the left one.
        let occupied: Vec<usize> = (0..self.levels.len()).filter(|l| micro_steps >> l & 1 == 1).collect();
        for pair in occupied.windows(2) {
            let (low, high) = self.levels.split_at_mut(pair[1]);
            high[0].flat += &low[pair[0]].flat;
        }
        self.result = occupied.last().copied().unwrap_or(0);
    }
}

/// The rows that a gradient has. A gradient of a lookup lists them; any other may have all.
fn rows(grad: &Tensor) -> Rows {
    if !grad.is_sparse() {
        return Rows::All;
    }
    match Vec::<i64>::try_from(grad.internal_indices().view([-1])) {
        Ok(numbers) => Rows::Some(numbers.into_iter().map(|number| number as u32).collect()),
        Err(_) => Rows::All,
    }
}

/// Values from one index of each axis to the next.
fn contiguous(shape: &[i64]) -> Vec<i64> {
    (1..=shape.len()).map(|after| shape[after..].iter().product()).collect()
}

/// Numbers of the parameters of each bucket. Buckets of about `bucket_bytes` are filled from the last parameter backwards: about the order in which
/// backward makes gradients.
pub fn group(specs: &[ParameterSpec], bucket_bytes: usize) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut bytes = usize::MAX;
    for i in (0..specs.len()).rev() {
        let size = padded(&specs[i]) * size_of::<f32>();
        // A parameter that is larger than a bucket has one to itself; `usize::MAX` opens the first.
        if bytes.saturating_add(size) > bucket_bytes {
            groups.push(Vec::new());
            bytes = 0;
        }
        if let Some(group) = groups.last_mut() {
            group.push(i);
        }
        bytes += size;
    }
    groups
}

#[cfg(test)]
mod tests;

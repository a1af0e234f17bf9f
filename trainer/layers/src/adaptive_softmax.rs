//! Adaptive softmax (Grave et al. 2017): frequent words and one entry for each cluster of the others in a first softmax, the words of each
//! cluster in one of their own. Tail i takes head entry `cutoffs[0] + i`, the order of Hugging Face and of the TensorFlow reference of
//! Transformer-XL; its PyTorch reference counts tails from the other end.

use segue_kernels::Kernels;
use segue_kernels::libtorch::precise;
use segue_kernels::libtorch::stream::put;
use tch::Tensor;

use super::adversarial::{self, Adversary, Nll};
use super::cross_entropy::{Words, card};
use super::ids::Ids;

/// Ids by the cluster that each is of. Nothing waits for a card where the host has the ids, and what a card needs goes there at once.
pub struct ByCluster {
    /// Where the ids of each cluster lie, rising: `[count]` each.
    pub places: Vec<Tensor>,
    /// What those ids are numbered in their cluster: `[count]` each.
    pub numbers: Vec<Tensor>,
    /// What stands for each id in the first softmax, `[n]`: itself, or the entry of its cluster.
    pub entries: Tensor,
    /// Where each id lies in the list of all places, cluster after cluster: `[n]`.
    pub ranks: Tensor,
    /// The places of all clusters, one after another: `[n]`.
    pub order: Tensor,
}

impl ByCluster {
    /// Of `ids`, `[n]`; a cluster goes from one of `ends` to the next.
    pub fn new(ids: &Ids, ends: &[i64]) -> Self {
        let inner = &ends[1..ends.len() - 1];
        let mut clusters = vec![(Vec::new(), Vec::new()); ends.len() - 1];
        let mut entries = Vec::new();
        for (place, id) in (0..).zip(ids.numbers()) {
            // An id that an end is equal to belongs to the cluster that begins there.
            let cluster = inner.partition_point(|end| *end <= id);
            let (places, numbers) = &mut clusters[cluster];
            places.push(place);
            numbers.push(id - ends[cluster]);
            entries.push(if cluster == 0 { id } else { ends[1] + cluster as i64 - 1 });
        }
        let counts: Vec<i64> = clusters.iter().map(|(places, _)| places.len() as i64).collect();
        let (places, numbers): (Vec<Vec<i64>>, Vec<Vec<i64>>) = clusters.into_iter().unzip();
        let order = places.concat();
        let mut ranks = vec![0; order.len()];
        for (rank, place) in (0..).zip(&order) {
            ranks[*place as usize] = rank;
        }
        let count = order.len() as i64;
        let all = [order, numbers.concat(), entries, ranks].concat();
        let all = put(Tensor::from_slice::<i64>(&all), ids.here().device()).view([4, count]);
        let [order, numbers, entries, ranks] = [0, 1, 2, 3].map(|row| all.select(0, row));
        let of_clusters = |x: &Tensor| x.split_with_sizes(&counts[..], 0);
        Self { places: of_clusters(&order), numbers: of_clusters(&numbers), entries, ranks, order }
    }
}

/// Words that share a softmax.
pub struct Cluster {
    /// `[words, width]`, or the rows of all clusters.
    pub weight: Tensor,
    /// `[words]`, or those of all clusters.
    pub bias: Tensor,
    /// `[d_model, width]`
    pub projection: Option<Tensor>,
    /// What computes its scores.
    pub kernels: Kernels,
}

impl Cluster {
    /// `[n, d_model]` to `[n, width]`.
    fn project(&self, hidden: &Tensor) -> Tensor {
        self.projection.as_ref().map_or_else(|| hidden.shallow_clone(), |p| hidden.matmul(p))
    }

    fn words(&self) -> Words {
        Words { weight: self.weight.shallow_clone(), bias: Some(self.bias.shallow_clone()) }
    }

    /// `[n, d_model]` to scores of the words of this cluster, `[n, words]`.
    fn logits(&self, hidden: &Tensor) -> Tensor {
        self.kernels.linear(&self.project(hidden), &self.weight, Some(&self.bias))
    }

    /// `[n, d_model]` to log-probabilities inside this cluster, `[n, words]`.
    fn log_probs(&self, hidden: &Tensor) -> Tensor {
        let logits = self.logits(hidden);
        logits.log_softmax(-1, precise(logits.kind()))
    }
}

/// Hidden states to probabilities of the next token.
///
/// P(w) = P_head(w) in the first cluster, P_head(tail i) · P_tail_i(w) beyond it. Without cutoffs this is
/// the ordinary softmax.
pub struct AdaptiveSoftmax {
    clusters: Vec<Cluster>,
    /// Row and bias of each tail in the head softmax.
    tails: Option<Words>,
    ends: Vec<i64>,
    /// What scores are multiplied by before each softmax; 1 in training.
    pub inverse_temperature: f64,
}

impl AdaptiveSoftmax {
    /// Of clusters from the most frequent words on, of which the first ids are `ends` without its last, the size of the vocabulary; `tails`
    /// has a row and a bias for each cluster but the first. The tables are re-read at each step, so that slices of a shared table follow its
    /// updates.
    pub fn new(clusters: Vec<Cluster>, tails: Option<Words>, ends: Vec<i64>) -> Self {
        Self { clusters, tails, ends, inverse_temperature: 1.0 }
    }

    /// Cluster `i` with its own rows where all clusters share one table.
    fn cluster(&self, i: usize) -> Cluster {
        let c = &self.clusters[i];
        let (low, rows) = (self.ends[i], self.ends[i + 1] - self.ends[i]);
        let shared = c.bias.size()[0] != rows;
        let cut = |t: &Tensor| if shared { t.narrow(0, low, rows) } else { t.shallow_clone() };
        Cluster {
            weight: cut(&c.weight),
            bias: self.sharpened(&cut(&c.bias)),
            projection: c.projection.as_ref().map(Tensor::shallow_clone),
            kernels: c.kernels,
        }
    }

    /// States, or biases, times the inverse temperature: scores are linear in both.
    fn sharpened(&self, x: &Tensor) -> Tensor {
        if self.inverse_temperature == 1.0 { x.shallow_clone() } else { x * self.inverse_temperature }
    }

    /// Log-probabilities of shortlist and tails, `[n, cutoffs[0] + tails]`.
    fn head(&self, hidden: &Tensor) -> Tensor {
        let head = self.cluster(0);
        let hidden = head.project(hidden);
        let scores = |part: &Words| head.kernels.linear(&hidden, &part.weight, part.bias.as_ref());
        let scores: Vec<Tensor> = self.entries().iter().map(scores).collect();
        let scores = Tensor::cat(&scores, 1);
        scores.log_softmax(-1, precise(scores.kind()))
    }

    /// The rows of the head softmax: the shortlist's, then one for each tail.
    fn entries(&self) -> Vec<Words> {
        let own = |tails: &Words| Words {
            weight: tails.weight.shallow_clone(),
            bias: tails.bias.as_ref().map(|bias| self.sharpened(bias)),
        };
        let tails = self.tails.as_ref().map(own);
        [self.cluster(0).words()].into_iter().chain(tails).collect()
    }

    /// −ln P(target), in nats. `hidden`: `[n, d_model]`, `targets`: `[n]`; returns `[n]`, in order. An adversary moves words where their
    /// row stands: in the head, or in their tail.
    pub fn nll(&self, hidden: &Tensor, targets: impl Into<Ids>, adversary: Option<&Adversary>) -> Nll {
        let (hidden, ids) = (&self.sharpened(hidden), targets.into());
        let head = self.cluster(0);
        let states = head.project(hidden);
        if self.clusters.len() == 1 {
            return adversarial::nll(head.kernels, &states, &self.entries(), ids.here(), adversary);
        }
        let by_cluster = ByCluster::new(&ids, &self.ends);
        // Targets beyond the shortlist stand for their tail's head entry.
        let nll = adversarial::nll(head.kernels, &states, &self.entries(), &by_cluster.entries, adversary);
        let counts: Vec<i64> = by_cluster.places.iter().skip(1).map(|at| at.size()[0]).collect();
        let beyond = counts.iter().sum();
        if beyond == 0 {
            return nll;
        }
        let at = by_cluster.order.narrow(0, nll.trained.size()[0] - beyond, beyond);
        let hidden = match card::kernels(head.kernels, hidden, &[]) {
            // At once, tail after tail: each would add a gradient of all rows, which a card is started for several times.
            Some(_) => hidden.index_select(0, &at).split_with_sizes(&counts[..], 0),
            None => by_cluster.places.iter().skip(1).map(|at| hidden.index_select(0, at)).collect(),
        };
        let of_tail = |(i, hidden): (usize, &Tensor)| {
            let (tail, numbers) = (self.cluster(i), &by_cluster.numbers[i]);
            adversarial::nll(tail.kernels, &tail.project(hidden), &[tail.words()], numbers, adversary)
        };
        let read = (1..).zip(&hidden).filter(|(_, hidden)| hidden.size()[0] > 0);
        let of_tails =
            read.map(of_tail).reduce(|all, tail| all.join(&tail, |all, tail| Tensor::cat(&[all, tail], 0)));
        match of_tails {
            Some(of_tails) => nll.join(&of_tails, |nll, of_tails| nll.index_add(0, &at, of_tails)),
            None => nll,
        }
    }

    /// Log-probabilities of the whole vocabulary, `[n, vocab_size]`, for `hidden` of `[n, d_model]`.
    pub fn log_probs(&self, hidden: &Tensor) -> Tensor {
        let hidden = &self.sharpened(hidden);
        let head = self.head(hidden);
        let shortlist = self.ends[1];
        let mut parts = vec![head.narrow(1, 0, shortlist)];
        for i in 1..self.clusters.len() {
            let of_tail = head.narrow(1, shortlist + i as i64 - 1, 1);
            parts.push(self.cluster(i).log_probs(hidden) + of_tail);
        }
        Tensor::cat(&parts, 1)
    }
}

#[cfg(test)]
mod tests {
    use tch::Kind;

    use super::*;

    #[test]
    fn places_and_numbers_are_those_of_a_look_at_each_cluster() {
        let ends = [0, 4, 4, 9, 20];
        let ids = Tensor::from_slice(&[19i64, 3, 4, 0, 8, 9, 3, 5, 4, 0]);
        let found = ByCluster::new(&Ids::from(&ids), &ends);
        let mut entries = ids.copy();
        for (i, (at, numbers)) in found.places.iter().zip(&found.numbers).enumerate() {
            let inside = ids.ge(ends[i]).logical_and(&ids.lt(ends[i + 1]));
            assert_eq!(*at, inside.nonzero().squeeze_dim(1), "cluster {i}");
            assert_eq!(*numbers, ids.index_select(0, at) - ends[i], "cluster {i}");
            if i > 0 {
                entries = entries.masked_fill(&inside, ends[1] + i as i64 - 1);
            }
        }
        assert_eq!(found.entries, entries);
        assert_eq!(found.places.iter().map(|at| at.size()[0]).collect::<Vec<_>>(), [4, 0, 4, 2]);
        assert_eq!(found.order, Tensor::cat(&found.places, 0));
        assert_eq!(
            found.order.index_select(0, &found.ranks),
            Tensor::arange(10, (Kind::Int64, ids.device()))
        );
        // Those of the host are read, and no others.
        let elsewhere = Tensor::zeros([10], (Kind::Int64, ids.device()));
        assert_eq!(ByCluster::new(&Ids::new(&elsewhere, Some(&ids)), &ends).places, found.places);
        let none = ByCluster::new(&Ids::from(&ids.narrow(0, 0, 0)), &ends);
        assert_eq!(none.places.iter().map(|at| at.size()[0]).collect::<Vec<_>>(), [0; 4]);
    }
}

//! How far a vector stands out of all others.

use tch::{Kind, Tensor};

/// Rounds after which the distance is taken as it is.
const MOST_ROUNDS: usize = 20_000;

/// The distances of `count` words, evenly spread, or of all where there are fewer; see [`hull_distance`].
pub fn hull_distances(table: &Tensor, count: usize, accuracy: f64) -> Vec<(usize, f64)> {
    let words = table.size()[0] as usize;
    let count = count.min(words);
    let spread = (0..count).map(|i| i * words / count);
    spread.map(|word| (word, hull_distance(table, word as i64, accuracy))).collect()
}

/// How many words of `distances`, as [`hull_distances`] has them, lie farther from the hull of the others than `scale` times their own length: some
/// state makes such a word the most probable even after it has moved by that much against it.
pub fn recognisable(table: &Tensor, distances: &[(usize, f64)], scale: f64) -> usize {
    let length =
        |word: usize| table.get(word as i64).norm_scalaropt_dtype(2.0, Kind::Double).double_value(&[]);
    distances.iter().filter(|(word, distance)| *distance > scale * length(*word)).count()
}

/// The distance of row `word` of `table`, `[words, width]`, from the convex hull of the other rows, to a relative `accuracy`; 0 within it. A
/// word can have the highest score of all by a margin of ε ‖h‖, for some state h, just where this is above ε (Wang, Gong and Liu 2019,
/// definition 3.2; by the separation of convex sets).
///
/// The shortest vector of a hull, by moving weight from the point of it that lies farthest along that vector to the one that lies nearest
/// (Mitchell, Dem'yanov and Malozemov 1974).
pub fn hull_distance(table: &Tensor, word: i64, accuracy: f64) -> f64 {
    let _no_graph = tch::no_grad_guard();
    let table = table.to_kind(Kind::Double);
    let words = table.size()[0];
    let others = Tensor::cat(&[table.narrow(0, 0, word), table.narrow(0, word + 1, words - word - 1)], 0);
    let points = others - table.get(word); // [words − 1, width]
    let squares = points.square().sum_dim_intlist(1, false, Kind::Double);
    let scale = squares.max().double_value(&[]).sqrt();
    let first = squares.argmin(None, false).int64_value(&[]);
    let weights = Tensor::zeros([words - 1], (Kind::Double, points.device()));
    let _ = weights.get(first).fill_(1.0);
    let mut shortest = points.get(first).copy(); // [width]
    for _ in 0..MOST_ROUNDS {
        let along = points.mv(&shortest);
        let square = shortest.dot(&shortest).double_value(&[]);
        let nearest = along.argmin(None, false).int64_value(&[]);
        // ‖x‖ is at most this much too long, over ‖x‖ (by the hyperplane through the nearest point).
        let excess = square - along.double_value(&[nearest]);
        if square.sqrt() <= accuracy * scale {
            return 0.0;
        }
        if excess <= accuracy * square {
            break;
        }
        let used = along.masked_fill(&weights.le(0.0), f64::NEG_INFINITY);
        let farthest = used.argmax(None, false).int64_value(&[]);
        let way = points.get(nearest) - points.get(farthest);
        let length = way.dot(&way).double_value(&[]);
        if length == 0.0 {
            break;
        }
        let room = weights.double_value(&[farthest]);
        let step = (-shortest.dot(&way).double_value(&[]) / length).min(room);
        if step == room {
            let _ = weights.get(farthest).fill_(0.0);
        } else {
            let _ = weights.get(farthest).g_sub_scalar_(step);
        }
        let _ = weights.get(nearest).g_add_scalar_(step);
        shortest += way * step;
    }
    shortest.norm().double_value(&[])
}

//! Gates of recurrent cells, which lie one below the other in their matrices: in another order, under other names, with another sign.

use tch::Tensor;

use super::rules::Piece;

/// The pieces of a variable by their endings; `None` where it has not as many rows and columns as there are blocks, or a multiple of them.
pub(super) fn apart(
    variable: &Tensor,
    pieces: &[Piece],
    windows: usize,
) -> Option<Vec<(&'static str, Tensor)>> {
    let blocks = rows(variable, count(pieces))?;
    let made = pieces.iter().map(|piece| {
        let chosen: Option<Vec<Tensor>> =
            piece.blocks.iter().map(|&number| signed(blocks.get(number)?, piece, number)).collect();
        Some((piece.ending, turned(&Tensor::cat(&chosen?, 0), windows)?))
    });
    made.collect()
}

/// The variable that its pieces, in their order, are of.
pub(super) fn together(parts: &[Tensor], pieces: &[Piece], windows: usize) -> Option<Tensor> {
    let mut blocks: Vec<Option<Tensor>> = (0..count(pieces)).map(|_| None).collect();
    for (part, piece) in parts.iter().zip(pieces) {
        let own = rows(&turned(part, windows)?, piece.blocks.len())?;
        for (block, &number) in own.iter().zip(piece.blocks) {
            *blocks.get_mut(number)? = Some(signed(block, piece, number)?);
        }
    }
    Some(Tensor::cat(&blocks.into_iter().collect::<Option<Vec<_>>>()?, 0))
}

/// Number of blocks of all pieces.
fn count(pieces: &[Piece]) -> usize {
    pieces.iter().map(|piece| piece.blocks.len()).sum()
}

fn signed(block: &Tensor, piece: &Piece, number: usize) -> Option<Tensor> {
    Some(if piece.negated.contains(&number) { block.neg() } else { block.shallow_clone() })
}

/// Equal blocks of rows.
fn rows(tensor: &Tensor, count: usize) -> Option<Vec<Tensor>> {
    let all = *tensor.size().first()?;
    (count > 0 && all > 0 && all % count as i64 == 0).then(|| tensor.chunk(count as i64, 0))
}

/// The same with its blocks of columns in the opposite order.
fn turned(tensor: &Tensor, windows: usize) -> Option<Tensor> {
    if windows == 1 {
        return Some(tensor.shallow_clone());
    }
    let columns = *tensor.size().get(1)?;
    let fits = windows > 0 && columns > 0 && columns % windows as i64 == 0;
    fits.then(|| Tensor::cat(&tensor.chunk(windows as i64, 1).into_iter().rev().collect::<Vec<_>>(), 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// z, f, o of a window of two, one row each: f changes its sign, and what was read last comes last.
    const PIECES: [Piece; 2] = [
        Piece { ending: "_f", blocks: &[1], negated: &[1] },
        Piece { ending: "", blocks: &[0, 2], negated: &[] },
    ];

    #[test]
    fn gates_are_taken_apart_and_put_together_again() {
        let variable = Tensor::from_slice(&[1.0f32, 2.0, 3.0, -0.0, 5.0, 6.0]).view([3, 2]);
        let made = apart(&variable, &PIECES, 2).unwrap();
        let expected = [("_f", vec![0.0f32, -3.0]), ("", vec![2.0, 1.0, 6.0, 5.0])];
        for ((ending, tensor), (name, values)) in made.iter().zip(&expected) {
            assert_eq!((ending, &Vec::<f32>::try_from(tensor.view([-1])).unwrap()), (name, values));
        }
        let parts: Vec<Tensor> = made.into_iter().map(|(_, tensor)| tensor).collect();
        let back = together(&parts, &PIECES, 2).unwrap();
        let bits = |x: &Tensor| {
            Vec::<f32>::try_from(x.view([-1])).unwrap().iter().map(|x| x.to_bits()).collect::<Vec<_>>()
        };
        assert_eq!(bits(&back), bits(&variable));
    }

    #[test]
    fn what_has_no_such_blocks_is_refused() {
        let zeros = |shape: &[i64]| Tensor::zeros(shape, (tch::Kind::Float, tch::Device::Cpu));
        for (shape, windows) in [(&[4, 2][..], 1), (&[3, 3], 2), (&[3], 2), (&[], 1), (&[0, 2], 1)] {
            assert!(apart(&zeros(shape), &PIECES, windows).is_none(), "{shape:?}");
        }
        assert!(together(&[zeros(&[1, 2]), zeros(&[3, 2])], &PIECES, 1).is_none());
    }
}

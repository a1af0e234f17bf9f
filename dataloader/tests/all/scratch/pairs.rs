//! The reference's rules for pairs and spans, over plain lists.

use segue_random::Draws;

/// Segments A and B as (begin, end) each, and the label, by the rule of XLNet's `_split_a_and_b`.
pub fn segments(flags: &[bool], begin: usize, total: usize, draws: &mut Draws) -> ([usize; 4], bool) {
    let mut end = begin + 1;
    let mut cuts = Vec::new();
    while end < flags.len() {
        if flags[end] != flags[end - 1] {
            if end - begin >= total {
                break;
            }
            cuts.push(end);
        }
        end += 1;
    }
    let follows = !cuts.is_empty() && draws.uniform() >= 0.5;
    let mut a_end = if cuts.is_empty() { end } else { cuts[draws.below(cuts.len() as u64) as usize] };
    let (mut b_begin, mut b_end) = (a_end, end);
    if !follows {
        let length = total.saturating_sub(a_end - begin).max(1);
        b_begin = draws.below((flags.len() - length) as u64) as usize;
        b_end = b_begin + length;
        while b_begin > 0 && flags[b_begin - 1] == flags[b_begin] {
            b_begin -= 1;
        }
        while b_end < flags.len() - 1 && flags[b_end - 1] == flags[b_end] {
            b_end += 1;
        }
    }
    while a_end - begin + b_end - b_begin > total {
        if a_end - begin > b_end - b_begin {
            a_end -= 1;
        } else {
            b_end -= 1;
        }
    }
    ([begin, a_end, b_begin, b_end], follows)
}

/// Chosen tokens of a part by the rule of XLNet's `_sample_mask`, for spans of up to 5 and 1 of 6 tokens.
pub fn spans(
    part: &[i64],
    reversed: bool,
    words: bool,
    goal: usize,
    begins_word: fn(i64) -> bool,
    draws: &mut Draws,
) -> Vec<bool> {
    let mut text = part.to_vec();
    if reversed {
        text.reverse();
    }
    let mut mask = vec![false; text.len()];
    let (mut at, mut count) = (0, 0);
    while at < text.len() && count < goal {
        let mut n = 1;
        let (drawn, whole) = (draws.uniform(), (1..=5).map(|n| 1.0 / n as f64).sum::<f64>());
        while n < 5 && (1..=n).map(|n| 1.0 / n as f64 / whole).sum::<f64>() <= drawn {
            n += 1;
        }
        let n = n.min(goal - count);
        let left = draws.below(6 * n as u64) as usize;
        let mut begin = at + left;
        while begin < text.len() && !begins_word(text[begin]) {
            begin += 1;
        }
        if begin >= text.len() {
            break;
        }
        let (mut end, mut grams) = (begin + 1, 1);
        while end < text.len() {
            // The reference looks at the begin, which is the begin of a word.
            if begins_word(text[if words { end } else { begin }]) {
                grams += 1;
                if grams > n {
                    break;
                }
            }
            end += 1;
        }
        if end >= text.len() {
            break;
        }
        // Whole words may be more pieces than are wanted still.
        end = end.min(begin + goal - count);
        mask[begin..end].fill(true);
        count += end - begin;
        at = end + 6 * n - left;
    }
    while count < goal {
        let place = draws.below(text.len() as u64) as usize;
        if !mask[place] {
            mask[place] = true;
            count += 1;
        }
    }
    if reversed {
        mask.reverse();
    }
    mask
}

/// A stretch of a paragraph that is read together with the question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Number of the question.
    pub question: u32,
    /// First token of the paragraph that is in it; it stands at position 0.
    pub first: u32,
    /// Number of the paragraph's tokens in it.
    pub length: u32,
}

/// Beginnings and lengths of the windows over a paragraph of `tokens` tokens: at most `room` long, each `stride` after
/// the one before, up to the one that reaches the end. A stride beyond `room` leaves no gaps: it counts as that.
///
/// ```
/// use segue_tasks::squad::windows_over;
/// assert_eq!(windows_over(10, 6, 3), [(0, 6), (3, 6), (6, 4)]);
/// ```
pub fn windows_over(tokens: usize, room: usize, stride: usize) -> Vec<(u32, u32)> {
    let step = stride.min(room).max(1);
    let mut windows = Vec::new();
    let mut first = 0;
    while first < tokens {
        let length = room.max(1).min(tokens - first);
        windows.push((first as u32, length as u32));
        if first + length == tokens {
            break;
        }
        first += step;
    }
    windows
}

/// Which of the windows of one question has the most context around a token of the paragraph: the fewer of the tokens to
/// the left and right, plus a hundredth of the window's length; of equals, the first. None where no window has the token.
/// A start counts in this window alone, so that no token is asked twice (the rule of BERT's and XLNet's references).
pub fn window_with_most_context(windows: &[Window], token: u32) -> Option<usize> {
    let context = |window: &Window| {
        let left = token.checked_sub(window.first)?;
        let right = window.length.checked_sub(left + 1)?;
        Some(100 * u64::from(left.min(right)) + u64::from(window.length))
    };
    let mut best: Option<(u64, usize)> = None;
    for (place, window) in windows.iter().enumerate() {
        if let Some(context) = context(window)
            && best.is_none_or(|(most, _)| context > most)
        {
            best = Some((context, place));
        }
    }
    best.map(|(_, place)| place)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(tokens: usize, room: usize, stride: usize) -> Vec<Window> {
        let all = windows_over(tokens, room, stride).into_iter();
        all.map(|(first, length)| Window { question: 0, first, length }).collect()
    }

    #[test]
    fn windows_reach_the_end_without_gaps() {
        for (tokens, room, stride, expected) in [
            (0, 5, 2, vec![]),
            (5, 5, 2, vec![(0, 5)]),
            (6, 5, 2, vec![(0, 5), (2, 4)]),
            (7, 3, 9, vec![(0, 3), (3, 3), (6, 1)]),
        ] {
            assert_eq!(windows_over(tokens, room, stride), expected);
        }
    }

    /// Row X26.
    #[test]
    fn max_context_is_unique_per_token() {
        // The example of BERT's reference: `bought` counts in the third window, with one word to the left and three to
        // the right.
        let story = "the man went to the store and bought a gallon of milk";
        let bought = story.split(' ').position(|word| word == "bought").unwrap() as u32;
        assert_eq!(window_with_most_context(&windows(12, 5, 3), bought), Some(2));
        for (tokens, room, stride) in
            [(1000, 381, 128), (400, 381, 128), (500, 500, 128), (77, 10, 3), (50, 7, 7)]
        {
            let windows = windows(tokens, room, stride);
            for token in 0..tokens as u32 {
                let best = window_with_most_context(&windows, token).unwrap();
                let score = |window: &Window| {
                    let (left, right) = (token - window.first, window.first + window.length - 1 - token);
                    f64::from(left.min(right)) + 0.01 * f64::from(window.length)
                };
                let holds = |window: &&Window| (window.first..window.first + window.length).contains(&token);
                let most = windows.iter().filter(holds).map(score).fold(f64::MIN, f64::max);
                assert!(holds(&&windows[best]) && (score(&windows[best]) - most).abs() < 1e-9);
            }
            assert_eq!(window_with_most_context(&windows, tokens as u32), None);
        }
    }
}

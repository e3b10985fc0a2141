//! Histogram matching by ranks.

/// Replaces each value by the value of `wanted` with the same rank. Of equal values, the first one has the lower rank.
pub(super) fn match_ranks(values: &mut [f32], mut wanted: Vec<f32>) {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|one, other| values[*one].total_cmp(&values[*other]));
    wanted.sort_unstable_by(f32::total_cmp);
    let (last, last_wanted) = (values.len().saturating_sub(1), wanted.len().saturating_sub(1));
    for (rank, at) in order.into_iter().enumerate() {
        values[at] = wanted[rank * last_wanted / last.max(1)];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_choose_the_values() {
        let mut values = [0.5, 0.1, 0.9, 0.1];
        match_ranks(&mut values, vec![4.0, 1.0, 3.0, 2.0]);
        assert_eq!(values, [3.0, 1.0, 4.0, 2.0]);
        let mut values = [0.5, 0.1, 0.9, 0.2, 0.7];
        match_ranks(&mut values, vec![10.0, 0.0]);
        assert_eq!(values, [0.0, 0.0, 10.0, 0.0, 0.0]);
        match_ranks(&mut values[..1], vec![7.0]);
        assert_eq!(values[0], 7.0);
    }
}

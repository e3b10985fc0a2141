//! Values of one distribution by the ranks of others.

/// Replaces values by those of `wanted` that have their ranks. Of equal values, the first one has the lower rank.
pub(super) fn match_ranks(values: &mut [f32], mut wanted: Vec<f32>) {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|one, other| values[*one].total_cmp(&values[*other]));
    wanted.sort_unstable_by(f32::total_cmp);
    let (count, last) = (values.len(), wanted.len().saturating_sub(1));
    for (rank, at) in order.into_iter().enumerate() {
        let of = if wanted.len() == count { rank } else { (quantile(rank, count) * last as f32) as usize };
        values[at] = wanted[of.min(last)];
    }
}

/// The place of a rank from 0 to 1, rounded as the reference rounds it: from the nearer end.
fn quantile(rank: usize, count: usize) -> f32 {
    let step = 1.0 / count.saturating_sub(1).max(1) as f32;
    if rank < count / 2 { step * rank as f32 } else { 1.0 - step * (count - 1 - rank) as f32 }
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

//! Convolutions whose kernels differ from pixel to pixel.

use super::{Scope, channels, sum_of_rows};
use tileforge_graph::{ConvOptions, DataType, Value};

/// Side of the kernels. Upstream has no other.
const SIDE: usize = 3;
/// Number of basis kernels that are computed at once: more of them need more memory, fewer of them more operations.
const AT_ONCE: usize = 8;

/// Kernel basis attention (KBNet, <https://arxiv.org/abs/2303.02881>): each pixel of `x` `[batch, channels, height,
/// width]` is convolved with its own mixture of kernels, `mixture` `[batch, kernels, height, width]` → the size of `x`.
/// A kernel reads `group` channels. The result is multiplied by a number for each channel, the parameter `factor`.
/// Parameters: `w` `[1, kernels, channels · group · 9]`, `b` `[1, kernels, channels]`, `factor` `[1, channels, 1, 1]`.
///
/// A convolution with a mixture of kernels equals the mixture of the convolutions, and runtimes have fast kernels for
/// plain convolutions.
pub fn kernel_basis_attention(w: &Scope<'_>, x: &Value, mixture: &Value, group: usize, factor: &str) -> Value {
    let (filters, kernels) = (channels(x), channels(mixture));
    let groups = filters / group.max(1);
    let stored = [("w", group * SIDE * SIDE), ("b", 1)].map(|(name, each)| {
        let dims = [1, kernels, filters * each];
        w.stored(name, &dims)
            .and_then(|stored| stored.cast(DataType::F32)?.reshaped(vec![kernels, groups, group, each]))
    });
    let factors = w.stored(factor, &[1, filters, 1, 1]).and_then(|factors| factors.to_f32s());
    let mut sum: Option<Value> = None;
    for (number, first) in (0..kernels).step_by(AT_ONCE).enumerate() {
        let count = AT_ONCE.min(kernels - first);
        // The filters of a group follow each other: for each kernel, those of all its channels.
        let part = |i: usize, dims: &[usize]| {
            let stored = stored[i].as_ref().map_err(Clone::clone)?;
            let factors = factors.as_ref().map_err(Clone::clone)?;
            let of_filter = |filter: usize| factors[filter / (count * group) * group + filter % group];
            let rows: Vec<u32> = (first as u32..(first + count) as u32).collect();
            let made = stored.rows(rows)?.transposed(&[1, 0, 2, 3])?.reshaped(dims.to_vec())?;
            made.rows_scaled(&(0..count * groups * group).map(of_filter).collect::<Vec<_>>())
        };
        let all = count * filters;
        let weight = w.made(&format!("kernels.{number}.weight"), part(0, &[all, group, SIDE, SIDE]));
        let bias = w.made(&format!("kernels.{number}.bias"), part(1, &[all]));
        let options = ConvOptions { groups: groups as i64, ..ConvOptions::same(SIDE) };
        let split =
            |x: &Value, groups: usize, group: usize| x.reshape(&[0, groups as i64, count as i64, group as i64, -1]);
        let convolved = split(&x.conv(&weight, Some(&bias), &options), groups, group);
        let weights = if count == kernels { mixture.clone() } else { mixture.slice(1, first, first + count) };
        let mixed = sum_of_rows(w, count, &(convolved * split(&weights, 1, 1)).reshape(&[0, 0, 0, -1]));
        sum = Some(match sum {
            Some(sum) => sum + mixed,
            None => mixed,
        });
    }
    sum.unwrap_or_else(|| x.clone()).reshape_like(x)
}

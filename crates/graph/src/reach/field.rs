//! The part of a picture that each element of one value depends on.

use super::ratio::Ratio;

/// The rows and columns of the picture that an element of a value depends on: with the element at the indices `i`, rows
/// from `Σ steps[k][0] · i[k] + low[0]` to `Σ steps[k][0] · i[k] + high[0]`, and columns in the same way.
///
/// The range may be wider than what the element sees, but never narrower.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Field {
    /// For each axis of the value: the rows and columns of one step along the axis.
    pub(super) steps: Vec<[Ratio; 2]>,
    pub(super) low: [Ratio; 2],
    pub(super) high: [Ratio; 2],
}

impl Field {
    /// The field of the picture itself.
    pub(super) fn of_picture(rank: usize, axes: [usize; 2]) -> Self {
        let of = |axis: usize| [0, 1].map(|side| if axes.get(side) == Some(&axis) { Ratio::ONE } else { Ratio::ZERO });
        Self { steps: (0..rank).map(of).collect(), low: [Ratio::ZERO; 2], high: [Ratio::ZERO; 2] }
    }

    pub(super) fn step(&self, axis: usize) -> Option<[Ratio; 2]> {
        self.steps.get(axis).copied()
    }

    /// Whether elements along an axis see different places of the picture.
    pub(super) fn moves_along(&self, axis: usize) -> bool {
        self.step(axis).is_some_and(|step| !step.iter().all(|side| side.is_zero()))
    }

    /// Widens the field: an element at index `i` of `axis` sees everything that the elements from `first + scale · i`
    /// to `last + scale · i` saw.
    pub(super) fn window(mut self, axis: usize, scale: Ratio, first: Ratio, last: Ratio) -> Option<Self> {
        let step = self.step(axis)?;
        for (side, old) in step.into_iter().enumerate() {
            let ends = [old.times(first)?, old.times(last)?];
            self.low[side] = self.low[side].plus(ends[0].min(ends[1]))?;
            self.high[side] = self.high[side].plus(ends[0].max(ends[1]))?;
            self.steps.get_mut(axis)?[side] = old.times(scale)?;
        }
        Some(self)
    }

    /// Each element sees everything that the elements along an axis of this length see.
    pub(super) fn whole_axis(self, axis: usize, length: usize) -> Option<Self> {
        let last = Ratio::new(i64::try_from(length).ok()?.checked_sub(1)?.max(0), 1)?;
        let first = Ratio::ZERO.minus(last)?;
        self.window(axis, Ratio::ONE, first, last)
    }

    /// Reduces the axis to one element, which sees everything that all its elements saw.
    pub(super) fn reduced(self, axis: usize, length: usize) -> Option<Self> {
        let last = Ratio::new(i64::try_from(length).ok()?.checked_sub(1)?.max(0), 1)?;
        self.window(axis, Ratio::ZERO, Ratio::ZERO, last)
    }

    /// Removes an axis of this length.
    pub(super) fn without(mut self, axis: usize, length: usize) -> Option<Self> {
        self = self.reduced(axis, length)?;
        (axis < self.steps.len()).then(|| self.steps.remove(axis))?;
        Some(self)
    }

    /// The union of two fields, for values of these lengths. If their steps differ, the union includes everything
    /// between them.
    pub(super) fn union(mut self, mut other: Self, dims: &[usize]) -> Option<Self> {
        if self.steps.len() != other.steps.len() {
            return None;
        }
        for (axis, length) in dims.iter().enumerate() {
            for side in 0..2 {
                let (own, others) = (self.step(axis)?[side], other.step(axis)?[side]);
                if own == others {
                    continue;
                }
                // (others − own) · i, with i from 0 to length − 1.
                let last = Ratio::new(i64::try_from(*length).ok()?.checked_sub(1)?.max(0), 1)?;
                let apart = others.minus(own)?.times(last)?;
                other.low[side] = other.low[side].plus(apart.min(Ratio::ZERO))?;
                other.high[side] = other.high[side].plus(apart.max(Ratio::ZERO))?;
                other.steps.get_mut(axis)?[side] = own;
            }
        }
        for side in 0..2 {
            self.low[side] = self.low[side].min(other.low[side]);
            self.high[side] = self.high[side].max(other.high[side]);
        }
        Some(self)
    }

    /// The field after broadcasting from the shape `from` to the shape `to`, as in NumPy.
    pub(super) fn broadcast(mut self, from: &[usize], to: &[usize]) -> Option<Self> {
        for (axis, (own, length)) in from.iter().zip(to.get(to.len().checked_sub(from.len())?..)?).enumerate() {
            // An axis of one element has no steps.
            if own != length || *own == 1 {
                *self.steps.get_mut(axis)? = [Ratio::ZERO; 2];
            }
        }
        let more = to.len().checked_sub(from.len())?;
        self.steps.splice(0..0, std::iter::repeat_n([Ratio::ZERO; 2], more));
        Some(self)
    }

    /// The field of the same elements in another shape.
    pub(super) fn reshaped(self, from: &[usize], to: &[usize]) -> Option<Self> {
        let mut made = Self { steps: Vec::with_capacity(to.len()), ..self.clone() };
        let (mut own, mut target) = (0, 0);
        while own < from.len() || target < to.len() {
            // The smallest groups of axes with the same number of elements on both sides.
            let (own_start, target_start) = (own, target);
            let (mut before, mut after) = (1_usize, 1_usize);
            loop {
                let behind = own < from.len() && (before <= after || target >= to.len());
                if behind {
                    before = before.checked_mul(*from.get(own)?)?;
                    own = own.checked_add(1)?;
                } else if target < to.len() {
                    after = after.checked_mul(*to.get(target)?)?;
                    target = target.checked_add(1)?;
                } else {
                    return None;
                }
                if before == after
                    && (own > own_start || own >= from.len())
                    && (target > target_start || target >= to.len())
                {
                    break;
                }
            }
            // Axes of one element belong to the group before.
            while from.get(own) == Some(&1) {
                own = own.checked_add(1)?;
            }
            while to.get(target) == Some(&1) {
                target = target.checked_add(1)?;
            }
            let flat = made.flattened(self.steps.get(own_start..own)?, from.get(own_start..own)?)?;
            let mut inner: usize = to.get(target_start..target)?.iter().try_fold(1_usize, |n, d| n.checked_mul(*d))?;
            for length in to.get(target_start..target)? {
                inner = inner.checked_div(*length)?;
                let along = Ratio::whole(inner)?;
                made.steps.push([flat[0].times(along)?, flat[1].times(along)?]);
            }
        }
        Some(made)
    }

    /// The step of one axis that replaces several axes with these steps and lengths.
    fn flattened(&mut self, steps: &[[Ratio; 2]], dims: &[usize]) -> Option<[Ratio; 2]> {
        let lengths: Vec<(usize, [Ratio; 2])> =
            dims.iter().copied().zip(steps.iter().copied()).filter(|(length, _)| *length != 1).collect();
        let mut strides = vec![1_i64; lengths.len()];
        for at in (0..lengths.len().saturating_sub(1)).rev() {
            let (next, length) = (at.checked_add(1)?, lengths.get(at.checked_add(1)?)?.0);
            let inner = *strides.get(next)?;
            *strides.get_mut(at)? = inner.checked_mul(i64::try_from(length).ok()?)?;
        }
        let mut flat = [Ratio::ZERO; 2];
        for side in 0..2 {
            let each = lengths.iter().zip(&strides).map(|((_, step), stride)| step[side].over(*stride));
            let each = each.collect::<Option<Vec<_>>>()?;
            if let Some(last) = each.last().filter(|last| each.iter().all(|one| one == *last)) {
                flat[side] = *last;
                continue;
            }
            // ⌊j / stride⌋ steps along the first axis; anywhere along the others.
            for (at, ((length, step), stride)) in lengths.iter().zip(&strides).enumerate() {
                let (ends, count) = (step[side], i64::try_from(*length).ok()?.checked_sub(1)?);
                let apart = if at == 0 {
                    flat[side] = ends.over(*stride)?;
                    let most = Ratio::new(stride.checked_sub(1)?, *stride)?;
                    Ratio::ZERO.minus(ends.times(most)?)?
                } else {
                    ends.times(Ratio::new(count, 1)?)?
                };
                self.low[side] = self.low[side].plus(apart.min(Ratio::ZERO))?;
                self.high[side] = self.high[side].plus(apart.max(Ratio::ZERO))?;
            }
        }
        Some(flat)
    }
}

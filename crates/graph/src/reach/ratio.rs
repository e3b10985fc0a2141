//! Exact fractions for the positions of a tensor's elements in the picture.

use std::cmp::Ordering;

/// `numerator / denominator` in lowest terms, with a positive denominator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ratio {
    pub(super) numerator: i64,
    pub(super) denominator: i64,
}

impl Ratio {
    pub(super) const ZERO: Self = Self { numerator: 0, denominator: 1 };
    pub(super) const ONE: Self = Self { numerator: 1, denominator: 1 };

    /// `None` for a denominator of zero, and on overflow. This holds for every function here that returns an `Option`.
    pub(super) fn new(numerator: i64, denominator: i64) -> Option<Self> {
        let sign = denominator.signum();
        let divisor = i64::try_from(common_divisor(numerator.unsigned_abs(), denominator.unsigned_abs())).ok()?;
        let reduced = |value: i64| value.checked_mul(sign)?.checked_div(divisor);
        (sign != 0).then_some(())?;
        Some(Self { numerator: reduced(numerator)?, denominator: reduced(denominator)? })
    }

    pub(super) fn whole(value: usize) -> Option<Self> {
        Self::new(i64::try_from(value).ok()?, 1)
    }

    pub(super) fn plus(self, other: Self) -> Option<Self> {
        let left = self.numerator.checked_mul(other.denominator)?;
        let right = other.numerator.checked_mul(self.denominator)?;
        Self::new(left.checked_add(right)?, self.denominator.checked_mul(other.denominator)?)
    }

    pub(super) fn minus(self, other: Self) -> Option<Self> {
        self.plus(Self { numerator: other.numerator.checked_neg()?, ..other })
    }

    pub(super) fn times(self, other: Self) -> Option<Self> {
        let numerator = self.numerator.checked_mul(other.numerator)?;
        Self::new(numerator, self.denominator.checked_mul(other.denominator)?)
    }

    pub(super) fn over(self, divisor: i64) -> Option<Self> {
        Self::new(self.numerator, self.denominator.checked_mul(divisor)?)
    }

    /// The largest integer that is not larger.
    pub(super) fn floor(self) -> Option<i64> {
        self.numerator.checked_div_euclid(self.denominator)
    }

    pub(super) fn is_zero(self) -> bool {
        self.numerator == 0
    }

    pub(super) fn min(self, other: Self) -> Self {
        if self.compare(other) == Ordering::Greater { other } else { self }
    }

    pub(super) fn max(self, other: Self) -> Self {
        if self.compare(other) == Ordering::Less { other } else { self }
    }

    fn compare(self, other: Self) -> Ordering {
        let side = |a: i64, b: i64| i128::from(a).saturating_mul(i128::from(b));
        side(self.numerator, other.denominator).cmp(&side(other.numerator, self.denominator))
    }
}

pub(super) fn common_divisor(a: u64, b: u64) -> u64 {
    a.checked_rem(b).map_or(a, |rest| common_divisor(b, rest))
}

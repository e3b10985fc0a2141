//! Tokens as rows of a matrix, and as sequences.

use super::width;
use tileforge_graph::{Error, Size, Value};

/// How the rows of a matrix of tokens form sequences: `[batch · length, width]` is `[batch, length…, width]`.
///
/// Linear layers and normalisations are computed on rows, because weights then keep the layout in which PyTorch stores
/// them; attention is computed on sequences. Both the batch and the length may be dynamic.
#[derive(Debug, Clone)]
pub struct Sequences(Value);

impl Sequences {
    /// The sequences of a value `[batch, length…, width]`: all dimensions between the first and the last form one
    /// length.
    pub fn new(value: &Value) -> Self {
        Sequences(value.clone())
    }

    /// The sequences as rows, `[batch · length, width]`.
    pub fn rows(&self) -> Value {
        self.0.reshape(&[-1, width(&self.0) as i64])
    }

    /// Rows of the same width in the shape of the original value.
    pub fn restore(&self, rows: &Value) -> Value {
        rows.reshape_like(&self.0)
    }

    /// Rows of any width as `[batch, length, width]`.
    pub(super) fn split(&self, rows: &Value) -> Value {
        let [_, between @ .., _] = self.0.ty().dims.as_slice() else {
            self.0
                .trace()
                .fail(Error::Graph(format!("expected sequences [batch, length…, width], found {}", self.0.ty())));
            return rows.clone();
        };
        let length = between.iter().map(tileforge_graph::Dim::fixed).try_fold(1, |length, size| Some(length * size?));
        let [batch, length] = match length {
            Some(length) => [Size::Number(-1), Size::Number(length as i64)],
            None => [Size::Of(&self.0, 0), Size::Number(-1)],
        };
        rows.reshape_to(&[batch, length, Size::Number(width(rows) as i64)])
    }
}

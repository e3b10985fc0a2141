//! What text encoders make of a text.

use std::collections::BTreeMap;

use tileforge_engine::TextOutput;

use super::tokenizer::mask;

/// What all encoders make of a text.
#[derive(Debug, Default)]
pub(super) struct Embedded {
    /// By the encoder's part.
    pub(super) encoders: BTreeMap<String, Encoded>,
}

/// What one encoder makes of a text, in one piece or several.
#[derive(Debug)]
pub(super) struct Encoded {
    /// The values of each output for each piece.
    pub(super) outputs: BTreeMap<String, Vec<Vec<f32>>>,
    /// Tokens of each piece with its start and its end.
    pub(super) lengths: Vec<usize>,
    /// Tokens of a whole row.
    pub(super) tokens: usize,
}

impl Embedded {
    /// The encoders of these outputs, of which there is at least one.
    fn of(&self, outputs: &[TextOutput]) -> Option<Vec<&Encoded>> {
        let encoders = outputs.iter().map(|output| self.encoders.get(&output.part));
        encoders.collect::<Option<Vec<_>>>().filter(|encoders| !encoders.is_empty())
    }

    fn pieces(&self, output: &TextOutput) -> Option<&[Vec<f32>]> {
        self.encoders.get(&output.part)?.outputs.get(&output.output).map(Vec::as_slice)
    }

    /// A state for each token, piece after piece: the given outputs concatenated along the width. Their encoders have
    /// the same number of tokens.
    pub(super) fn states(&self, outputs: &[TextOutput]) -> Option<Vec<f32>> {
        let tokens = self.of(outputs)?.first()?.tokens;
        let outputs = outputs.iter().map(|output| self.pieces(output)).collect::<Option<Vec<_>>>()?;
        let mut states = Vec::new();
        for piece in 0..outputs.first()?.len() {
            let rows = outputs.iter().map(|pieces| pieces.get(piece)).collect::<Option<Vec<_>>>()?;
            for token in 0..tokens {
                for row in &rows {
                    let width = row.len() / tokens;
                    states.extend_from_slice(row.get(token * width..(token + 1) * width)?);
                }
            }
        }
        Some(states)
    }

    /// The vector of the whole text, which is the first piece's: the given outputs concatenated.
    pub(super) fn vector(&self, outputs: &[TextOutput]) -> Option<Vec<f32>> {
        let first = |output: &TextOutput| self.pieces(output)?.first().map(Vec::as_slice);
        Some(outputs.iter().map(first).collect::<Option<Vec<_>>>()?.concat())
    }

    /// The tokens of each piece, without padding: the most that any of these outputs' encoders has.
    fn lengths(&self, outputs: &[TextOutput]) -> Option<Vec<usize>> {
        let encoders = self.of(outputs)?;
        let most = |piece: usize| encoders.iter().filter_map(|encoded| encoded.lengths.get(piece)).copied().max();
        (0..encoders.first()?.lengths.len()).map(most).collect()
    }

    /// 1 for each token of the text with its start and its end, 0 for each padding token.
    pub(super) fn mask(&self, outputs: &[TextOutput]) -> Option<Vec<f32>> {
        let tokens = self.of(outputs)?.first()?.tokens;
        Some(self.lengths(outputs)?.into_iter().flat_map(|length| mask(length, tokens)).collect())
    }

    /// Tokens of all pieces, without padding.
    pub(super) fn length(&self, outputs: &[TextOutput]) -> Option<usize> {
        Some(self.lengths(outputs)?.into_iter().sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(part: &str) -> TextOutput {
        TextOutput { part: part.into(), output: "states".into() }
    }

    fn encoded(pieces: Vec<Vec<f32>>, lengths: Vec<usize>, tokens: usize) -> Encoded {
        Encoded { outputs: [("states".into(), pieces)].into(), lengths, tokens }
    }

    #[test]
    fn states_stand_side_by_side_and_pieces_one_after_the_other() {
        // Two pieces of two tokens: states of width 1 of one encoder, of width 2 of another.
        let narrow = encoded(vec![vec![1.0, 2.0], vec![3.0, 4.0]], vec![2, 1], 2);
        let wide = encoded(vec![vec![10.0, 11.0, 20.0, 21.0], vec![30.0, 31.0, 40.0, 41.0]], vec![1, 1], 2);
        let embedded = Embedded { encoders: [("narrow".into(), narrow), ("wide".into(), wide)].into() };
        let [narrow, wide] = ["narrow", "wide"].map(output);
        let both = [narrow.clone(), wide.clone()];
        let expected = [1.0, 10.0, 11.0, 2.0, 20.0, 21.0, 3.0, 30.0, 31.0, 4.0, 40.0, 41.0];
        assert_eq!(embedded.states(&both), Some(expected.to_vec()));
        let alone = embedded.states(std::slice::from_ref(&wide)).unwrap();
        assert_eq!(alone[..4], [10.0, 11.0, 20.0, 21.0]);
        assert_eq!(embedded.vector(&both), Some(vec![1.0, 2.0, 10.0, 11.0, 20.0, 21.0]));
        assert_eq!(embedded.mask(&both), Some(vec![1.0, 1.0, 1.0, 0.0]));
        assert_eq!(embedded.length(&both), Some(3));
        assert_eq!(embedded.mask(std::slice::from_ref(&wide)), Some(vec![1.0, 0.0, 1.0, 0.0]));
        assert_eq!(embedded.length(std::slice::from_ref(&wide)), Some(2));
        for unknown in [vec![], vec![output("gone")], vec![wide, output("gone")]] {
            assert_eq!(embedded.states(&unknown), None);
            assert_eq!(embedded.mask(&unknown), None);
            assert_eq!(embedded.length(&unknown), None);
        }
        assert_eq!(embedded.vector(&[narrow, output("gone")]), None);
    }

    #[test]
    fn each_text_has_its_own_tokens() {
        let short = encoded(vec![vec![1.0, 2.0], vec![3.0, 4.0]], vec![2, 1], 2);
        let long = encoded(vec![vec![5.0, 6.0, 7.0, 8.0]], vec![3], 4);
        let embedded = Embedded { encoders: [("short".into(), short), ("long".into(), long)].into() };
        let [short, long] = ["short", "long"].map(|part| [output(part)]);
        assert_eq!(embedded.states(&short), Some(vec![1.0, 2.0, 3.0, 4.0]));
        assert_eq!(embedded.states(&long), Some(vec![5.0, 6.0, 7.0, 8.0]));
        assert_eq!(embedded.mask(&short), Some(vec![1.0, 1.0, 1.0, 0.0]));
        assert_eq!(embedded.mask(&long), Some(vec![1.0, 1.0, 1.0, 0.0]));
        assert_eq!((embedded.length(&short), embedded.length(&long)), (Some(3), Some(3)));
    }
}

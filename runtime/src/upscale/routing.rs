//! How the channels of a picture go through a model, and back.

use tileforge_image::{Alpha, Header};

/// One run of the model on a tile: for each channel of the model, the channel of the picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) channels: Vec<usize>,
}

impl Run {
    /// Whether all of the model's channels get the same channel. The result is then one plane: the mean of the
    /// outputs.
    pub(super) fn is_replicated(&self) -> bool {
        self.channels.iter().all(|channel| *channel == self.channels[0])
    }
}

/// All runs of the model on a tile, and the channel that bypasses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Routing {
    /// In the order of the output's planes.
    pub(super) runs: Vec<Run>,
    /// The channel that bypasses the model and comes last: alpha.
    pub(super) around: Option<usize>,
    /// Channels of the output.
    pub(super) planes: usize,
}

impl Routing {
    /// A picture with the model's number of channels takes one run. Grey goes through a colour model as three equal
    /// channels. Colours go through a grey model one by one.
    pub(super) fn new(model: usize, header: &Header, alpha: Alpha) -> Self {
        let colours = header.colour.colour_channels();
        let replicated = |channel: usize| Run { channels: vec![channel; model] };
        let mut runs = if model == colours {
            vec![Run { channels: (0..colours).collect() }]
        } else {
            (0..colours).map(replicated).collect()
        };
        let alpha = Some(alpha).filter(|&alpha| header.colour.has_alpha() && alpha != Alpha::Drop);
        if alpha == Some(Alpha::Model) {
            runs.push(replicated(colours));
        }
        let around = (alpha == Some(Alpha::Bicubic)).then_some(colours);
        Self { runs, around, planes: colours + usize::from(alpha.is_some()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tileforge_image::{Colour, Depth, Size};

    fn runs(model: usize, colour: Colour, alpha: Alpha) -> (Vec<Vec<usize>>, Option<usize>, usize) {
        let header = Header::new(Size { width: 1, height: 1 }, colour, Depth::Eight);
        let routing = Routing::new(model, &header, alpha);
        (routing.runs.into_iter().map(|run| run.channels).collect(), routing.around, routing.planes)
    }

    #[test]
    fn every_channel_finds_its_way() {
        assert_eq!(runs(3, Colour::Rgb, Alpha::Bicubic), (vec![vec![0, 1, 2]], None, 3));
        assert_eq!(runs(3, Colour::Rgba, Alpha::Bicubic), (vec![vec![0, 1, 2]], Some(3), 4));
        assert_eq!(runs(3, Colour::Rgba, Alpha::Model), (vec![vec![0, 1, 2], vec![3, 3, 3]], None, 4));
        assert_eq!(runs(3, Colour::Rgba, Alpha::Drop), (vec![vec![0, 1, 2]], None, 3));
        assert_eq!(runs(3, Colour::GreyAlpha, Alpha::Model), (vec![vec![0, 0, 0], vec![1, 1, 1]], None, 2));
        assert_eq!(runs(1, Colour::Rgba, Alpha::Bicubic), (vec![vec![0], vec![1], vec![2]], Some(3), 4));
        assert_eq!(runs(1, Colour::Grey, Alpha::Model), (vec![vec![0]], None, 1));
    }
}

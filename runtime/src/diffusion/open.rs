//! The sessions that a worker has open.

use tileforge_image::Size;

use super::network::Network;
use super::texts::TextEncoder;
use crate::autoencoder::{Decoder, Encoder, Sections, pixels_of};
use crate::sessions::Worker;

/// The networks of a pipeline.
pub(super) struct Networks {
    pub(super) texts: Vec<TextEncoder>,
    pub(super) network: Network,
    pub(super) encoder: Option<Encoder>,
    pub(super) decoder: Decoder,
}

impl Networks {
    /// The sizes of pictures that they make, the smallest first.
    pub(super) fn sizes(&self) -> Vec<Size> {
        self.network.latents().into_iter().map(|latent| pixels_of(latent, self.decoder.factor())).collect()
    }
}

/// The sessions of a worker, opened when they are first needed.
pub(super) struct Open<'g> {
    networks: &'g Networks,
    stream: usize,
    pub(super) texts: Vec<Worker<'g>>,
    pub(super) network: Worker<'g>,
    pub(super) encoder: Option<Sections<'g>>,
    pub(super) decoder: Sections<'g>,
}

impl<'g> Open<'g> {
    pub(super) fn new(networks: &'g Networks, stream: usize) -> Self {
        Self {
            texts: networks.texts.iter().map(|text| text.sessions.worker(stream)).collect(),
            network: networks.network.sessions.worker(stream),
            encoder: networks.encoder.as_ref().map(|encoder| encoder.worker(stream)),
            decoder: networks.decoder.worker(stream),
            networks,
            stream,
        }
    }

    // A new worker has no session open, and the old one closes its own.

    pub(super) fn close_texts(&mut self) {
        self.texts = self.networks.texts.iter().map(|text| text.sessions.worker(self.stream)).collect();
    }

    pub(super) fn close_network(&mut self) {
        self.network = self.networks.network.sessions.worker(self.stream);
    }

    pub(super) fn close_encoder(&mut self) {
        self.encoder = self.networks.encoder.as_ref().map(|encoder| encoder.worker(self.stream));
    }

    pub(super) fn close_decoder(&mut self) {
        self.decoder = self.networks.decoder.worker(self.stream);
    }
}

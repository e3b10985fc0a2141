//! The digest of a weight file, computed while it is written.
//!
//! A separate thread digests what the writer has written, so the total time is the time of the slower one. Bytes that
//! the system copies from a checkpoint pass through no buffer of this process; the thread reads them again from the
//! checkpoint, in the system's cache.

use crate::{MappedFile, Result};
use sha2::{Digest, Sha256};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, SyncSender};
use std::thread::{self, JoinHandle};

/// The maximum number of waiting pieces. Each piece is at most as large as the writer's own buffer.
const WAITING: usize = 8;

/// What has been written.
enum Piece {
    Bytes(Vec<u8>),
    Range { file: Arc<MappedFile>, offset: u64, length: u64 },
}

/// Digests the pieces of a file in their order.
pub(super) struct Digester {
    pieces: Option<SyncSender<Piece>>,
    thread: Option<JoinHandle<Result<String>>>,
}

impl Digester {
    pub(super) fn start() -> io::Result<Self> {
        let (pieces, written) = mpsc::sync_channel(WAITING);
        let digest = move || {
            let mut digest = Sha256::new();
            for piece in written {
                match piece {
                    Piece::Bytes(bytes) => digest.update(&bytes),
                    Piece::Range { file, offset, length } => file.stream(offset, length, &mut |piece| {
                        digest.update(piece);
                        Ok(())
                    })?,
                }
            }
            Ok(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
        };
        let thread = thread::Builder::new().name("digest".into()).spawn(digest)?;
        Ok(Digester { pieces: Some(pieces), thread: Some(thread) })
    }

    pub(super) fn bytes(&self, bytes: &[u8]) {
        self.send(Piece::Bytes(bytes.to_vec()));
    }

    pub(super) fn range(&self, file: &Arc<MappedFile>, offset: u64, length: u64) {
        self.send(Piece::Range { file: file.clone(), offset, length });
    }

    fn send(&self, piece: Piece) {
        // If the thread has ended, it has failed: `finish` reports the error.
        let _ = self.pieces.as_ref().map(|pieces| pieces.send(piece));
    }

    /// The digest of everything, as 64 hexadecimal digits; `None` if the thread has panicked.
    pub(super) fn finish(mut self) -> Option<Result<String>> {
        self.pieces = None;
        self.thread.take().and_then(|thread| thread.join().ok())
    }
}

impl Drop for Digester {
    fn drop(&mut self) {
        self.pieces = None;
        // After a failed write, this waits for the last pieces, so that the thread does not outlive the write.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Receives the progress of files that are downloaded or sent.
pub trait Transfer {
    /// A file begins or continues: its name, its length in bytes if known, and the bytes that are already transferred.
    fn begin(&mut self, file: &str, length: Option<u64>, done: u64);
    /// This number of further bytes has been transferred.
    fn advance(&mut self, bytes: u64);
}

/// What is told how far files are that are downloaded or sent.
pub trait Transfer {
    /// A file begins or goes on: its name, its length if that is known, and the bytes that are there already.
    fn begin(&mut self, file: &str, length: Option<u64>, done: u64);
    /// More bytes are there.
    fn advance(&mut self, bytes: u64);
}

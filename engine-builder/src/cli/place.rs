//! Names of files that are gone when a message about them is read.

/// The beginning of the names of folders that engines are built in, as [`tileforge_engine::exchange`] makes them.
const UNFINISHED: &str = "/.building-";

/// A message without the names of unfinished folders: `engines/.building-x3/model.onnx` becomes
/// `engines/(unfinished)/model.onnx`.
pub(super) fn without_unfinished(message: &str) -> String {
    let mut parts = message.split(UNFINISHED);
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        // A random suffix of letters and digits.
        text.push_str("/(unfinished)");
        text.push_str(part.trim_start_matches(|c: char| c.is_ascii_alphanumeric()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::without_unfinished;

    #[test]
    fn unfinished_folders_are_not_named() {
        let text = "a/.building-x3Y/model.onnx: cannot load /b/.building-00/model.weights: no";
        let expected = "a/(unfinished)/model.onnx: cannot load /b/(unfinished)/model.weights: no";
        assert_eq!(without_unfinished(text), expected);
        assert_eq!(without_unfinished("engines/x: is gone"), "engines/x: is gone");
    }
}

//! Quotes texts of files and users in messages.

/// As much of a text as a message shows.
pub(super) fn quoted(text: &str) -> String {
    const MOST_CHARACTERS: usize = 80;
    match text.char_indices().nth(MOST_CHARACTERS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn long_texts_end_with_an_ellipsis() {
        let text = "ü".repeat(80);
        assert_eq!(quoted(&text), text);
        assert_eq!(quoted(&format!("{text}ü")), format!("{text}…"));
    }
}

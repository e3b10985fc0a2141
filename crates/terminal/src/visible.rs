//! Text from files on a terminal.

use std::borrow::Cow;
use std::fmt::Write;

/// The text with all characters escaped that control a terminal: control characters except line breaks and tabs, and
/// marks that change the direction of writing. Names and metadata come from files of other users.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    escaped(
        text,
        |character| !matches!(character, '\n' | '\t'),
        |out, character| {
            // Writing to a string cannot fail.
            let _ = write!(out, "{}", character.escape_default());
        },
    )
}

/// The same for JSON, where such characters are parts of strings.
pub(crate) fn visible_json(json: &str) -> Cow<'_, str> {
    escaped(
        json,
        |character| character != '\n',
        |out, character| {
            let _ = write!(out, "\\u{:04x}", u32::from(character));
        },
    )
}

fn escaped(text: &str, unless: impl Fn(char) -> bool, escape: impl Fn(&mut String, char)) -> Cow<'_, str> {
    let is_obeyed = |character: char| is_obeyed(character) && unless(character);
    if !text.contains(is_obeyed) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_obeyed(character) { escape(&mut out, character) } else { out.push(character) }
    }
    Cow::Owned(out)
}

fn is_obeyed(character: char) -> bool {
    // Unicode's bidirectional controls: <https://www.unicode.org/reports/tr9/#Directional_Formatting_Characters>.
    character.is_control() || matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_obeys_nothing_in_a_text() {
        assert_eq!(visible("ä 1\n\t×"), "ä 1\n\t×");
        assert_eq!(visible("a\u{1b}[2J\rb\u{9b}c\u{7f}"), "a\\u{1b}[2J\\rb\\u{9b}c\\u{7f}");
        assert_eq!(visible("\u{202e}gnp.exe"), "\\u{202e}gnp.exe");
    }

    #[test]
    fn json_stays_the_same_json() {
        let json = serde_json::to_string_pretty(&["a\u{1b}\u{9b}\u{7f}\u{202e}ä"]).unwrap();
        let shown = visible_json(&json);
        assert!(!shown.contains(is_obeyed_but_line_breaks), "{shown}");
        let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(read(&shown), read(&json));
    }

    fn is_obeyed_but_line_breaks(character: char) -> bool {
        character != '\n' && is_obeyed(character)
    }
}

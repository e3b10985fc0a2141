//! The notation of the texts: `section { key={ key=word key="text" key={ 1 2 "text" } } … }`.
//!
//! A text between quotation marks has no escapes. If the name of a graph's node has quotation marks, the text cannot
//! be read; this is an error and not a guess.

use crate::{Error, Result};

/// A value with an optional key.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry<'t> {
    pub(super) key: Option<&'t str>,
    pub(super) value: Value<'t>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value<'t> {
    /// A word, or a text without its quotation marks.
    Word(&'t str),
    Braces(Vec<Entry<'t>>),
}

impl<'t> Value<'t> {
    pub(super) fn word(&self) -> Option<&'t str> {
        if let Value::Word(word) = self { Some(word) } else { None }
    }

    /// The entries in braces.
    pub(super) fn entries(&self) -> &[Entry<'t>] {
        if let Value::Braces(entries) = self { entries } else { &[] }
    }

    /// The first value with a key, in braces.
    pub(super) fn get(&self, key: &str) -> Option<&Value<'t>> {
        self.entries().iter().find(|entry| entry.key == Some(key)).map(|entry| &entry.value)
    }

    /// A word with a key.
    pub(super) fn word_of(&self, key: &str) -> Option<&'t str> {
        self.get(key).and_then(Value::word)
    }

    /// The words in braces with a key; none if the key is missing.
    pub(super) fn words_of(&self, key: &str) -> Vec<&'t str> {
        self.get(key).map_or(&[][..], Value::entries).iter().filter_map(|entry| entry.value.word()).collect()
    }
}

/// The maximum nesting of braces: a section, a tensor, its list.
const DEEPEST: usize = 8;

/// Reads a whole text as if it were in braces: its entries are the sections, by their names.
pub(super) fn read(text: &str) -> Result<Value<'_>> {
    let mut reader = Reader { text, at: 0 };
    let entries = reader.entries(0)?;
    Ok(Value::Braces(entries))
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Token<'t> {
    Open,
    Close,
    Equals,
    Word(&'t str),
    Text(&'t str),
}

impl<'t> Reader<'t> {
    fn token(&mut self) -> Result<Option<Token<'t>>> {
        let rest = &self.text[self.at..];
        let rest = rest.trim_start();
        self.at = self.text.len() - rest.len();
        let is_end = |letter: char| letter.is_whitespace() || matches!(letter, '{' | '}' | '=' | '"');
        let (token, length) = match rest.chars().next() {
            None => return Ok(None),
            Some('{') => (Token::Open, 1),
            Some('}') => (Token::Close, 1),
            Some('=') => (Token::Equals, 1),
            Some('"') => {
                let Some(length) = rest[1..].find('"') else { return Err(self.unexpected("a text that does not end")) };
                (Token::Text(&rest[1..=length]), length + 2)
            }
            Some(_) => {
                let length = rest.find(is_end).unwrap_or(rest.len());
                (Token::Word(&rest[..length]), length)
            }
        };
        self.at += length;
        Ok(Some(token))
    }

    fn peek(&mut self) -> Result<Option<Token<'t>>> {
        let at = self.at;
        let token = self.token();
        self.at = at;
        token
    }

    /// The entries up to the closing brace, or at depth 0 up to the end.
    fn entries(&mut self, depth: usize) -> Result<Vec<Entry<'t>>> {
        if depth > DEEPEST {
            return Err(self.unexpected("braces in more braces than any plan has"));
        }
        let mut entries = Vec::new();
        loop {
            let (key, value) = match self.token()? {
                None if depth == 0 => return Ok(entries),
                Some(Token::Close) if depth > 0 => return Ok(entries),
                None => return Err(self.unexpected("its end within braces")),
                Some(Token::Close | Token::Equals) => return Err(self.unexpected("a sign without what it belongs to")),
                Some(Token::Open) => (None, Value::Braces(self.entries(depth + 1)?)),
                Some(Token::Text(text)) => (None, Value::Word(text)),
                Some(Token::Word(word)) => match self.peek()? {
                    Some(Token::Equals) => {
                        self.token()?;
                        (Some(word), self.value(depth)?)
                    }
                    // A section.
                    Some(Token::Open) => (Some(word), self.value(depth)?),
                    _ => (None, Value::Word(word)),
                },
            };
            entries.push(Entry { key, value });
        }
    }

    fn value(&mut self, depth: usize) -> Result<Value<'t>> {
        match self.token()? {
            Some(Token::Open) => Ok(Value::Braces(self.entries(depth + 1)?)),
            Some(Token::Word(word) | Token::Text(word)) => Ok(Value::Word(word)),
            _ => Err(self.unexpected("a key without a value")),
        }
    }

    fn unexpected(&self, what: &str) -> Error {
        Error::not_known(format!("{what} before byte {} of a program", self.at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_records_lists_and_texts_are_read() {
        let text = "header {\n  version = 5\n  accelerators={sm89 }\n}\nmain {\n label bb1: \n  \
                    mul={ name=\"a b={}\" dims={ 1 2 } list={\"x\" \"y\" } empty=\"\" grid = { 3 1 } }\n}\n";
        let value = read(text).unwrap();
        assert_eq!(value.get("header").unwrap().word_of("version"), Some("5"));
        assert_eq!(value.get("header").unwrap().words_of("accelerators"), ["sm89"]);
        let main = value.get("main").unwrap();
        assert_eq!(main.entries().iter().map(|entry| entry.key).collect::<Vec<_>>(), [None, None, Some("mul")]);
        let mul = main.get("mul").unwrap();
        assert_eq!((mul.word_of("name"), mul.word_of("empty")), (Some("a b={}"), Some("")));
        assert_eq!((mul.words_of("dims"), mul.words_of("list")), (vec!["1", "2"], vec!["x", "y"]));
        assert_eq!(mul.words_of("grid"), ["3", "1"]);
        assert!(mul.words_of("missing").is_empty());
    }

    #[test]
    fn what_is_no_such_text_is_an_error() {
        for text in ["main {", "main }", "=", "a=", "a={ \"b }", "a={ = }", &"{".repeat(1 << 16)] {
            read(text).unwrap_err();
        }
    }
}

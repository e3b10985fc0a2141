//! Errors as text.

use std::error::Error;

/// An error and its causes, one a line: "what failed", then "  because: why" for each cause.
///
/// A cause is left out if the text before it already contains its words.
pub fn chain(error: &dyn Error) -> String {
    chain_with(error, None)
}

/// As [`chain`], with advice for the user after the error itself: "what failed; what to do".
pub fn chain_with(error: &dyn Error, advice: Option<&str>) -> String {
    let mut text = error.to_string();
    if let Some(advice) = advice {
        text.push_str("; ");
        text.push_str(advice);
    }
    let mut cause = error.source();
    while let Some(error) = cause {
        let words = error.to_string();
        if !text.contains(&words) {
            text.push_str("\n  because: ");
            text.push_str(&words);
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::*;

    #[derive(Debug)]
    struct Failed(&'static str, Option<Box<Failed>>);

    impl fmt::Display for Failed {
        fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str(self.0)
        }
    }

    impl Error for Failed {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|cause| cause as _)
        }
    }

    #[test]
    fn each_cause_has_a_line_and_none_is_repeated() {
        let cause = Failed("no such file", Some(Box::new(Failed("errno 2", None))));
        let error = Failed("a.png: cannot open", Some(Box::new(cause)));
        assert_eq!(chain(&error), "a.png: cannot open\n  because: no such file\n  because: errno 2");
        let error = Failed("a.png: no such file", Some(Box::new(Failed("no such file", None))));
        assert_eq!(chain(&error), "a.png: no such file");
    }

    #[test]
    fn advice_stands_behind_the_error_itself() {
        let error = Failed("no library", Some(Box::new(Failed("not found", None))));
        assert_eq!(chain_with(&error, Some("pass --lib")), "no library; pass --lib\n  because: not found");
    }
}

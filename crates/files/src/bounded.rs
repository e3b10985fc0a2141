//! Texts from files in messages.

/// Most bytes of a message from a file reader. Usual messages are far shorter.
const MOST: usize = 2000;

/// The same message, without its middle if it is too long.
///
/// Names and texts from files can have many megabytes. The message's own words are before and behind them.
pub fn bounded(message: String) -> String {
    bounded_to(message, MOST)
}

/// As [`bounded`], with another limit in bytes.
pub fn bounded_to(message: String, most: usize) -> String {
    if message.len() <= most {
        return message;
    }
    let head = message.floor_char_boundary(most / 2);
    let tail = message.ceil_char_boundary(message.len() - most / 4);
    format!("{}… ({} more bytes) …{}", &message[..head], tail - head, &message[tail..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_and_the_end_of_a_long_message_stay() {
        assert_eq!(bounded("short".into()), "short");
        let exact = "x".repeat(MOST);
        assert_eq!(bounded(exact.clone()), exact);
        let long = bounded(format!("expected 1, found {}; download it again", "ä".repeat(5_000_000)));
        assert!(long.len() < MOST, "{}", long.len());
        assert!(long.starts_with("expected 1, found ä") && long.ends_with("ä; download it again"), "{long}");
        assert!(long.contains(" more bytes) …"), "{long}");
        // No limit cuts a character in two.
        for most in 0..40 {
            let _ = bounded_to("𝄞ä€x".repeat(9), most);
        }
    }
}

//! Numbers of things, in words.

/// "1 tile", "3 tiles": a number with its noun, whose plural ends in -s.
pub fn counted(number: impl TryInto<u64>, noun: &str) -> String {
    counted_as(number, noun, &format!("{noun}s"))
}

/// "1 entry", "3 entries".
pub fn counted_as(number: impl TryInto<u64>, one: &str, several: &str) -> String {
    // A number that does not fit counts as several, too.
    let number = number.try_into().unwrap_or(u64::MAX);
    format!("{number} {}", if number == 1 { one } else { several })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_is_no_plural() {
        assert_eq!([0_u64, 1, 2].map(|number| counted(number, "tile")), ["0 tiles", "1 tile", "2 tiles"]);
        assert_eq!([1_u32, 2].map(|number| counted_as(number, "entry", "entries")), ["1 entry", "2 entries"]);
        assert_eq!(counted(1_usize, "GPU"), "1 GPU");
    }
}

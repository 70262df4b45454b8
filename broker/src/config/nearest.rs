//! The name that was probably meant.

/// The nearest of `names` to `typed`, if any is near enough to be worth naming.
pub(super) fn nearest<'a>(typed: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // A third of the letters wrong is still a slip; more is another word.
    let limit = (typed.chars().count() / 3).max(2);
    names
        .map(|name| (distance(&typed.to_lowercase(), name), name))
        .min()
        .filter(|(distance, _)| *distance <= limit)
        .map(|(_, name)| name)
}

/// Letters to insert, remove or replace to get from one to the other (Levenshtein).
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (line, letter) in from.chars().enumerate() {
        let mut corner = line;
        let mut left = line + 1;
        let mut next = vec![left];
        for (other, above) in to.iter().zip(row.iter().skip(1)) {
            let replaced = corner + usize::from(letter != *other);
            left = replaced.min(left + 1).min(above + 1);
            corner = *above;
            next.push(left);
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slip_of_the_finger_finds_its_name() {
        let names = ["num.partitions", "min.insync.replicas", "node.id"];
        assert_eq!(nearest("num.partition", names.into_iter()), Some("num.partitions"));
        assert_eq!(nearest("min.isync.replicas", names.into_iter()), Some("min.insync.replicas"));
        assert_eq!(nearest("NODE.ID", names.into_iter()), Some("node.id"));
    }

    #[test]
    fn another_word_finds_nothing() {
        assert_eq!(nearest("colour", ["num.partitions", "node.id"].into_iter()), None);
    }
}

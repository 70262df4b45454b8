//! Kafka's names as Rust writes them.

/// `snake_case` of a name in camel case.
pub(crate) fn snake(name: &str) -> String {
    let name = name.replace("KRaft", "Kraft");
    let letters: Vec<char> = name.chars().collect();
    let mut out = String::new();
    for (index, &letter) in letters.iter().enumerate() {
        let before = index.checked_sub(1).and_then(|before| letters.get(before));
        let after = letters.get(index + 1);
        let starts_word = letter.is_uppercase()
            && before.is_some_and(|before| {
                !before.is_uppercase() || after.is_some_and(|after| after.is_lowercase())
            });
        if starts_word {
            out.push('_');
        }
        out.extend(letter.to_lowercase());
    }
    out
}

/// The name of a field, escaped where it is a keyword.
pub(crate) fn field(name: &str) -> String {
    let name = snake(name);
    if ["type", "match", "move", "ref", "use", "in", "loop", "where"].contains(&name.as_str()) {
        format!("r#{name}")
    } else {
        name
    }
}

/// Whether `text` holds `word` with no letter, digit or `_` beside it.
pub(crate) fn has_word(text: &str, word: &str) -> bool {
    let inside = |found: Option<char>| found.is_some_and(|c| c.is_alphanumeric() || c == '_');
    text.match_indices(word).any(|(at, _)| {
        let (before, rest) = text.split_at(at);
        let after = rest.strip_prefix(word).unwrap_or_default();
        !inside(before.chars().next_back()) && !inside(after.chars().next())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn camel_case_becomes_snake_case() {
        assert_eq!(snake("ThrottleTimeMs"), "throttle_time_ms");
        assert_eq!(snake("KRaftVersionFeature"), "kraft_version_feature");
        assert_eq!(snake("NoOpRecord"), "no_op_record");
        assert_eq!(snake("ISRUpdate"), "isr_update");
        assert_eq!(field("Type"), "r#type");
    }

    #[test]
    fn words_are_found_whole() {
        assert!(has_word("r.string_as(form)?", "form"));
        assert!(!has_word("format!(reform)", "form"));
    }
}

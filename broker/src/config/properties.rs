//! Files of options in the form of `java.util.Properties`, which Kafka's own are in.

use std::fmt;
use std::iter::Peekable;
use std::str::Chars;

/// One option as a file has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Property {
    /// The line that it begins on; the first is 1.
    pub(super) line: usize,
    /// Its name.
    pub(super) key: String,
    /// Its value; empty if it has none.
    pub(super) value: String,
}

/// A file that is not of this form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Broken {
    line: usize,
    escape: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, escape } = self;
        write!(out, "line {line}: \\u{escape} is no character: four hexadecimal digits follow \\u")
    }
}

/// Reads a file's text. Java reads bytes as Latin-1; what is no ASCII stands here in UTF-8.
pub(super) fn parse(text: &str) -> Result<Vec<Property>, Broken> {
    let mut properties = Vec::new();
    for (line, logical) in logical_lines(text) {
        let mut rest = logical.chars().peekable();
        let key = unescaped(&mut rest, line, |c| matches!(c, '=' | ':') || is_blank(c))?;
        skip_blanks(&mut rest);
        if rest.next_if(|c| matches!(c, '=' | ':')).is_some() {
            skip_blanks(&mut rest);
        }
        let value = unescaped(&mut rest, line, |_| false)?;
        properties.push(Property { line, key, value });
    }
    Ok(properties)
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\u{c}')
}

fn skip_blanks(rest: &mut Peekable<Chars<'_>>) {
    while rest.next_if(|c| is_blank(*c)).is_some() {}
}

/// The lines that hold options: comments and blank ones left out, continued ones joined. Each with
/// the number of its first.
fn logical_lines(text: &str) -> Vec<(usize, String)> {
    // Java ends a line at \n, \r or both.
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let mut lines = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (number, line) in (1..).zip(text.split('\n')) {
        let line = line.trim_start_matches(is_blank);
        // A comment is one only where an option could begin.
        if open.is_none() && (line.is_empty() || line.starts_with(['#', '!'])) {
            continue;
        }
        let slashes = line.chars().rev().take_while(|c| *c == '\\').count();
        let continued = slashes % 2 == 1;
        let kept = if continued { line.strip_suffix('\\').unwrap_or(line) } else { line };
        let (_, logical) = open.get_or_insert_with(|| (number, String::new()));
        logical.push_str(kept);
        if !continued {
            lines.extend(open.take());
        }
    }
    // A last line may say that it goes on where the file does not.
    lines.extend(open);
    lines
}

/// Reads up to a character at which `ends` says that it ends, with the escapes resolved.
fn unescaped(
    rest: &mut Peekable<Chars<'_>>,
    line: usize,
    ends: impl Fn(char) -> bool,
) -> Result<String, Broken> {
    // UTF-16, since an escape may be half a character.
    let mut units: Vec<u16> = Vec::new();
    while let Some(c) = rest.next_if(|c| !ends(*c)) {
        let plain = if c == '\\' {
            match rest.next() {
                Some('t') => '\t',
                Some('n') => '\n',
                Some('r') => '\r',
                Some('f') => '\u{c}',
                Some('u') => {
                    units.push(unit(rest, line)?);
                    continue;
                }
                // A backslash before any other character is not there.
                Some(other) => other,
                None => break,
            }
        } else {
            c
        };
        units.extend_from_slice(plain.encode_utf16(&mut [0; 2]));
    }
    Ok(String::from_utf16_lossy(&units))
}

fn unit(rest: &mut Peekable<Chars<'_>>, line: usize) -> Result<u16, Broken> {
    let digits: String = rest.by_ref().take(4).collect();
    let whole = digits.len() == 4 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let unit = u16::from_str_radix(&digits, 16).ok().filter(|_| whole);
    unit.ok_or(Broken { line, escape: digits })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Vec<(String, String)> {
        let properties = parse(text).unwrap();
        properties.into_iter().map(|one| (one.key, one.value)).collect()
    }

    /// Each file as `java.util.Properties` reads it.
    #[test]
    fn files_are_read_as_java_reads_them() {
        let cases: &[(&str, &[(&str, &str)])] = &[
            ("a=b", &[("a", "b")]),
            ("a:b", &[("a", "b")]),
            ("a b", &[("a", "b")]),
            ("a\tb c ", &[("a", "b c ")]),
            ("  a  =  b  ", &[("a", "b  ")]),
            ("a = = b", &[("a", "= b")]),
            ("a : = b", &[("a", "= b")]),
            ("a", &[("a", "")]),
            ("a=", &[("a", "")]),
            ("=b", &[("", "b")]),
            ("# a=b\n! c=d\n   # e\n\n \t\n", &[]),
            ("a=b # not a comment", &[("a", "b # not a comment")]),
            ("a\\=b=c", &[("a=b", "c")]),
            ("a\\:b\\ c:d", &[("a:b c", "d")]),
            ("a=b\\\n   c\\\n\td", &[("a", "bcd")]),
            ("a\\\n  =b", &[("a", "b")]),
            ("a=b\\\n# c", &[("a", "b# c")]),
            ("a=b\\\n\nc=d", &[("a", "b"), ("c", "d")]),
            ("a=b\\\\\nc=d", &[("a", "b\\"), ("c", "d")]),
            ("a=b\\\\\\\nc=d", &[("a", "b\\c=d")]),
            ("# a\\\nb=c", &[("b", "c")]),
            ("a=b\\", &[("a", "b")]),
            ("a=1\r\nb=2\rc=3", &[("a", "1"), ("b", "2"), ("c", "3")]),
            ("a=\\t\\n\\r\\f\\q\\\"", &[("a", "\t\n\r\u{c}q\"")]),
            ("a=\\u0041\\u00e4\\ud83d\\ude00", &[("a", "Aä😀")]),
            ("\\u0061=b", &[("a", "b")]),
            ("a\u{c}b", &[("a", "b")]),
            ("a=ä", &[("a", "ä")]),
            ("a=b\na=c", &[("a", "b"), ("a", "c")]),
        ];
        for (text, expected) in cases {
            let read = pairs(text);
            let read: Vec<_> = read.iter().map(|(key, value)| (&**key, &**value)).collect();
            assert_eq!(read, *expected, "{text:?}");
        }
    }

    #[test]
    fn an_option_is_told_by_the_line_it_begins_on() {
        let lines: Vec<_> = parse("# one\na=\\\n  b\n\nc=d").unwrap();
        let lines: Vec<_> = lines.iter().map(|one| (one.line, one.key.as_str())).collect();
        assert_eq!(lines, [(2, "a"), (5, "c")]);
    }

    #[test]
    fn half_an_escape_is_refused_with_its_line() {
        for text in ["a=b\nc=\\u12", "a=b\nc=\\u12x4", "\n\\u+123=c"] {
            let broken = parse(text).unwrap_err();
            assert_eq!(broken.line, 2, "{broken}");
        }
    }
}

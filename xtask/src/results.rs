//! Reads how many tests passed from what each language's own runner prints.

use crate::outcome::{Count, Done};
use crate::process::Finished;

/// The counts that a runner printed, as `read` finds them: an ending that they do not explain is a
/// failure, and so is a runner that counted nothing.
pub(crate) fn settle(finished: &Finished, read: fn(&[String]) -> Count) -> Done<Count> {
    let count = read(&finished.lines);
    if !finished.status.success() && count.failed == 0 {
        return Err(finished.failure());
    }
    if count == Count::default() {
        return Err(format!("{} counted no test", finished.shown()).into());
    }
    Ok(count)
}

/// The sum of cargo's lines `test result: ok. 3 passed; 0 failed; 1 ignored; …`.
pub(crate) fn cargo_test(lines: &[String]) -> Count {
    let mut total = Count::default();
    for line in lines {
        let Some(rest) = line.strip_prefix("test result: ") else { continue };
        let Some((_, counts)) = rest.split_once(". ") else { continue };
        total += words(counts.split("; "));
    }
    total
}

/// pytest's closing line: `== 5 passed, 1 skipped in 0.31s ==`, with or without the rule.
pub(crate) fn pytest(lines: &[String]) -> Count {
    let closing = |line: &&String| {
        let line = line.trim_matches(['=', ' ']);
        line.rsplit_once(" in ").is_some_and(|(counts, time)| {
            time.starts_with(|first: char| first.is_ascii_digit()) && counts.ends_with(is_letter)
        })
    };
    let Some(line) = lines.iter().rev().find(closing) else { return Count::default() };
    let line = line.trim_matches(['=', ' ']);
    line.rsplit_once(" in ").map(|(counts, _)| words(counts.split(", "))).unwrap_or_default()
}

/// The closing lines of node's runner, `# pass 4` (TAP) or `ℹ pass 4` (spec).
pub(crate) fn node_test(lines: &[String]) -> Count {
    let mut count = Count::default();
    for line in lines {
        let Some(rest) = line.strip_prefix("# ").or_else(|| line.strip_prefix("ℹ ")) else {
            continue;
        };
        let Some((word, number)) = rest.split_once(' ') else { continue };
        let Ok(number) = number.parse::<u64>() else { continue };
        match word {
            "pass" => count.passed = number,
            "fail" | "cancelled" => count.failed += number,
            "skipped" | "todo" => count.skipped += number,
            _ => {}
        }
    }
    count
}

/// The sum of lines that are just `3 passed, 0 failed`, as our own runners print.
pub(crate) fn plain(lines: &[String]) -> Count {
    let mut total = Count::default();
    for line in lines {
        let parts: Vec<&str> = line.split(", ").collect();
        let whole = parts.len() >= 2 && parts.iter().all(|part| numbered(part).is_some());
        if whole && line.contains(" passed, ") {
            total += words(parts.into_iter());
        }
    }
    total
}

fn words<'a>(parts: impl Iterator<Item = &'a str>) -> Count {
    let mut count = Count::default();
    for (number, word) in parts.filter_map(numbered) {
        match word {
            "passed" | "xpassed" => count.passed += number,
            "failed" | "error" | "errors" => count.failed += number,
            "skipped" | "ignored" | "xfailed" => count.skipped += number,
            _ => {}
        }
    }
    count
}

fn numbered(part: &str) -> Option<(u64, &str)> {
    let (number, word) = part.trim().split_once(' ')?;
    Some((number.parse().ok()?, word))
}

fn is_letter(last: char) -> bool {
    last.is_ascii_alphabetic()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Run;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    fn settled(script: &str) -> Done<Count> {
        settle(&Run::new("sh").args(["-c", script]).quiet().finish().unwrap(), plain)
    }

    #[test]
    fn an_ending_that_no_count_explains_is_a_failure() {
        assert_eq!(settled("echo 2 passed, 0 failed").unwrap(), count(2, 0, 0));
        assert_eq!(settled("echo 2 passed, 1 failed; exit 1").unwrap(), count(2, 1, 0));
        assert!(
            settled("echo 2 passed, 0 failed; exit 3")
                .unwrap_err()
                .to_string()
                .contains("status: 3")
        );
        assert!(settled("true").unwrap_err().to_string().contains("counted no test"));
    }

    fn count(passed: u64, failed: u64, skipped: u64) -> Count {
        Count { passed, failed, skipped }
    }

    #[test]
    fn cargo_results_are_summed_over_crates() {
        let text = "running 3 tests\n\
            test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n\
            test result: FAILED. 1 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out";
        assert_eq!(cargo_test(&lines(text)), count(4, 2, 1));
        assert_eq!(cargo_test(&lines("nothing was tested")), Count::default());
    }

    #[test]
    fn pytest_closing_line_is_read_with_and_without_its_rule() {
        assert_eq!(pytest(&lines("...\n7 passed in 0.12s")), count(7, 0, 0));
        let text = "== 1 failed, 4 passed, 2 skipped, 1 error in 10.3s (0:00:10) ==";
        assert_eq!(pytest(&lines(text)), count(4, 2, 2));
        assert_eq!(pytest(&lines("no tests ran in 0.01s")), Count::default());
    }

    #[test]
    fn node_closing_lines_are_read_in_both_forms() {
        let spec = "✔ a (1ms)\nℹ tests 5\nℹ pass 3\nℹ fail 1\nℹ cancelled 1\nℹ skipped 0";
        assert_eq!(node_test(&lines(spec)), count(3, 2, 0));
        let tap = "# tests 2\n# pass 2\n# fail 0\n# cancelled 0\n# skipped 0\n# todo 0";
        assert_eq!(node_test(&lines(tap)), count(2, 0, 0));
    }

    #[test]
    fn plain_lines_count_only_when_they_stand_alone() {
        assert_eq!(plain(&lines("ok a\n2 passed, 1 failed\n3 passed, 0 failed")), count(5, 1, 0));
        assert_eq!(plain(&lines("4 passed, 0 failed, 2 skipped")), count(4, 0, 2));
        assert_eq!(plain(&lines("we saw 4 passed, 0 failed")), Count::default());
    }
}
